from pathlib import Path

import pytest

from tidemark.storage import FileAttributes, Storage
from tidemark.storage.local import LocalStorage
from tidemark.work import discard_epochs, epochs_below

WORK = "_tmp/shift-20261115T0700"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    storage = LocalStorage(root=tmp_path, attributes=FileAttributes())
    for epoch in (9, 5, 10):
        storage.create(f"{WORK}/{epoch}/1/lines", b"of the epoch")
    return storage


def test_what_a_newer_epoch_wrote_is_never_discarded(storage: Storage) -> None:
    discard_epochs(storage, WORK, up_to=9)
    assert [status.path for status in storage.list(WORK)] == [f"{WORK}/10"]
    assert storage.read(f"{WORK}/10/1/lines") == b"of the epoch"


def test_nothing_stays_of_work_that_nobody_took_over(storage: Storage) -> None:
    for _ in range(2):
        discard_epochs(storage, WORK, up_to=10)
        assert storage.list("_tmp") == []


def test_epochs_come_in_the_order_of_their_numbers_the_newest_first(storage: Storage) -> None:
    assert epochs_below(storage, WORK, up_to=10) == [f"{WORK}/{epoch}" for epoch in (10, 9, 5)]
