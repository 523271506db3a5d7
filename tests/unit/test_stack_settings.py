import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.cli.stack import to_exports
from tidemark.errors import TidemarkError, WrongUse
from tidemark.stack import DEFAULT_SERVICES, SPARK_CLUSTER, Stack
from tidemark.stack.embedded import WANTED_FREE_BYTES, in_order, require_free_space

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(TEXTS)
def test_a_shell_reads_back_what_was_exported(value: str) -> None:
    script = to_exports({"SOME_NAME": value}) + '\nprintf %s "$SOME_NAME"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == value


def test_services_are_started_in_one_order_with_those_they_need() -> None:
    assert in_order(["triggerer", "datanode", "zookeeper"]) == [
        "zookeeper",
        "namenode",
        "datanode",
        "api-server",
        "triggerer",
    ]


def test_an_unknown_service_is_refused_with_the_known_ones() -> None:
    with pytest.raises(WrongUse, match=r"Cannot start oracle: not one of zookeeper, kafka"):
        in_order(["oracle"])


def test_the_spark_cluster_is_started_only_when_asked_for() -> None:
    assert not set(SPARK_CLUSTER) & set(DEFAULT_SERVICES)


def test_a_disk_that_is_nearly_full_is_named_with_what_to_do() -> None:
    message = r"Cannot start the stack in /data: 0\.5 GiB are free there, 2 GiB are wanted; make room"
    with pytest.raises(TidemarkError, match=message):
        require_free_space(Path("/data"), WANTED_FREE_BYTES // 4)


def test_a_disk_with_room_is_fine() -> None:
    require_free_space(Path("/data"), WANTED_FREE_BYTES)


def test_a_stack_that_never_ran_has_a_status_and_no_environment(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "never")
    assert [each.name for each in stack.status() if not each.running] == list(DEFAULT_SERVICES)
    with pytest.raises(TidemarkError, match="no stack runs"):
        stack.environment()


def test_one_cannot_act_on_a_service_that_is_not_of_the_stack(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match=r"Cannot act on kafka: not one of the stack's services \(none\)"):
        Stack(tmp_path).kill("kafka")
