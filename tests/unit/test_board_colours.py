"""The board's colours, in light and in dark: small text wants a contrast of 4.5 (WCAG 2, AA)."""

import re
from functools import cache

import pytest

from tidemark.environment import repository_folder

ENOUGH = 4.5
# A ready hour has no sign.
TEXT_ON = [
    ("text", "page"),
    ("text", "panel"),
    ("quiet", "page"),
    ("quiet", "panel"),
    ("focus", "page"),
    ("focus", "panel"),
    ("wrong", "page"),
    ("wrong", "panel"),
    ("on-strong", "revised"),
    ("on-strong", "blocked"),
    ("on-strong", "gap"),
    ("on-late", "late"),
    ("text", "open"),
    ("on-empty", "empty"),
    ("text", "empty"),
]


def style() -> str:
    return (repository_folder() / "plugins" / "tidemark_airflow" / "board" / "page" / "board.css").read_text()


@cache
def colours() -> dict[str, tuple[str, str]]:
    """By name, as in light and as in dark."""
    folder = repository_folder() / "plugins" / "tidemark_airflow" / "board" / "page"
    found = re.findall(
        r"--([a-z-]+): (?:light-dark\((#\w{6}), (#\w{6})\)|(#\w{6}));", (folder / "board.css").read_text()
    )
    return {name: (light or both, dark or both) for name, light, dark, both in found}


def luminance(colour: str) -> float:
    parts = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
def test_each_text_can_be_read_on_its_ground_in_light_and_in_dark(text: str, ground: str) -> None:
    for scheme in (0, 1):
        found = contrast(colours()[text][scheme], colours()[ground][scheme])
        assert found >= ENOUGH, f"{text} on {ground} in {('light', 'dark')[scheme]}: {found:.2f}"


def test_what_is_wrong_is_written_in_the_colour_that_was_tested() -> None:
    assert ".wrong { color: var(--wrong);" in style()
