from pathlib import Path

import pytest

from tidemark.errors import TidemarkError
from tidemark.stack.state import ProcessRecord, State, load_state, save_state


def test_a_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    state = State(
        java_home=Path("/opt/java"),
        services=["kafka"],
        ports={"kafka": 9092},
        processes={"kafka": ProcessRecord(pid=12, started=1.5)},
        extra_environment={"A": "b"},
    )
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state


def test_the_state_holds_secrets_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    save_state(tmp_path, State())
    assert (tmp_path / "state.json").stat().st_mode & 0o777 == 0o600


def test_every_home_has_secrets_of_its_own() -> None:
    assert State().secrets != State().secrets


def test_a_home_without_a_state_is_empty(tmp_path: Path) -> None:
    assert load_state(tmp_path / "nowhere").services == []


def test_a_state_that_is_not_ours_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"services": ')
    with pytest.raises(TidemarkError, match=r"state\.json.*delete it"):
        load_state(tmp_path)
