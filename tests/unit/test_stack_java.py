from pathlib import Path

import pytest

from tidemark.errors import TidemarkError
from tidemark.stack.java import Java, choose_java, parse_home, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("java: command not found", None),
    ],
)
def test_the_feature_release_is_read_from_what_java_says(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def test_the_home_is_read_from_the_settings_that_java_shows() -> None:
    assert parse_home("Property settings:\n    java.home = /opt/a java\n    java.io.tmpdir = /tmp") == Path(
        "/opt/a java"
    )


def test_the_first_java_that_is_new_enough_is_taken() -> None:
    old, new = Java(home=Path("/old"), version=11), Java(home=Path("/new"), version=21)
    assert choose_java([old, new]) == new


def test_a_java_that_is_too_old_is_named_with_what_to_do() -> None:
    with pytest.raises(TidemarkError, match=r"Java 17 or newer .* found Java 11 in /old; .*apt-get install"):
        choose_java([Java(home=Path("/old"), version=11)])


def test_a_missing_java_gives_the_command_that_installs_it() -> None:
    with pytest.raises(TidemarkError, match=r"found none in JAVA_HOME or PATH; .*openjdk-17-jre-headless"):
        choose_java([])
