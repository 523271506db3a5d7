"""The index is read by others: kept stable by a golden file. And blocks of other writers, in our form."""

import io
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.archive import boom_file, cut, lines
from tests.unit.test_archive_plan import HOUR, sources

from tidemark.archive.join import Joined, JoinOrder, VerifyOrder, fault_of, join_target
from tidemark.archive.plan import Source, Target, plan_targets, targets_of_index
from tidemark.boom.format import SCHEMA, BoomBlock, header_of
from tidemark.boom.reader import BoomReader, read_lines
from tidemark.boom.rewrite import rewrite_blocks
from tidemark.errors import CorruptFile
from tidemark.index import IndexRecord, Segment, Void, by_target, dump_index, read_index, read_segment
from tidemark.storage import FileAttributes
from tidemark.storage.local import LocalStorage

GOLDEN = Path(__file__).parents[1] / "golden"
PIECE = IndexRecord(
    srcFile="2026-11-15/07/_incoming/20261115T0700-0001-0-000.bm",
    destFile="2026-11-15/07/2026-11-15T07-0002-000.bm",
    srcFileStartOffset=377,
    srcFileEndOffset=1000,
    destFileStartOffset=377,
    destFileEndOffset=1000,
    ArchiveTimestamp=1_794_000_000_000,
    shard="0001-0",
    first_offset=100,
    last_offset=119,
    min_ms=1_793_999_000_000,
    max_ms=1_793_999_900_000,
    lines=17,
    crc=4_022_250_974,
    destBytes=1000,
    destDigest="ab" * 32,
)
VOID = Void(void="2026-11-15/07/2026-11-15T07-0001-000.bm", ArchiveTimestamp=1_794_000_000_000)


def records_of(targets: Sequence[Target]) -> list[IndexRecord]:
    return [
        IndexRecord(
            srcFile=piece.source,
            destFile=target.path,
            srcFileStartOffset=piece.blocks[0].start,
            srcFileEndOffset=piece.blocks[-1].end,
            destFileStartOffset=piece.start,
            destFileEndOffset=piece.end,
            ArchiveTimestamp=0,
            shard=piece.shard,
            first_offset=0,
            last_offset=0,
            min_ms=0,
            max_ms=0,
            lines=len(piece.blocks),
            crc=0,
            destBytes=target.size,
            destDigest="",
        )
        for target in targets
        for piece in target.pieces
    ]


def test_a_segment_is_json_lines_that_others_can_rely_on() -> None:
    assert dump_index(Segment(pieces=(PIECE,), voids=(VOID,))) == (GOLDEN / "index.jsonl").read_bytes()


def test_what_a_later_segment_voids_is_no_longer_in_the_index(tmp_path: Path) -> None:
    storage = LocalStorage(root=tmp_path, attributes=FileAttributes())
    first = IndexRecord(**{name: getattr(PIECE, name) for name in IndexRecord.__slots__} | {"destFile": VOID.void})
    storage.create("2026-11-10/_index/22-0001.jsonl", dump_index(Segment(pieces=(first,))))
    storage.create("2026-11-10/_index/22-0002.jsonl", dump_index(Segment(pieces=(PIECE,), voids=(VOID,))))
    hour = HOUR.parse("2026-11-10T22")
    assert read_index(storage, hour, 1) == [first]
    assert read_index(storage, hour, 2) == [PIECE]
    assert read_segment(storage, hour, 3) is None


@given(sources, st.integers(1, 2000), st.data())
def test_what_is_left_of_sources_is_what_no_other_target_holds_and_an_index_gives_its_targets_back(
    given_sources: list[Source], size: int, data: st.DataObject
) -> None:
    targets = plan_targets(HOUR, 1, given_sources, size)
    index = records_of(targets)
    assert targets_of_index(by_target(index), given_sources) == targets
    lost = set(
        data.draw(st.lists(st.sampled_from([target.path for target in targets]), unique=True)) if targets else []
    )
    live = [record for record in index if record.destFile not in lost]
    left = [source.without(live) for source in given_sources]
    again = records_of(plan_targets(HOUR, 2, left, size))
    for source in given_sources:
        held = sorted(
            (record.srcFileStartOffset, record.srcFileEndOffset)
            for record in [*live, *again]
            if record.srcFile == source.path
        )
        edges = [source.blocks[0].start, *(end for _, end in held)]
        assert [start for start, _ in held] == edges[:-1]
        assert edges[-1] == source.blocks[-1].end


def directory(data: bytes, name: str) -> tuple[BoomBlock, ...]:
    return tuple(
        BoomBlock(start=block.start, end=block.end, lines=1, runs=((0, 1),), min_ms=0, max_ms=0, crc=block.crc)
        for block in BoomReader(io.BytesIO(data), name).blocks()
    )


@pytest.mark.parametrize("name", ["logdriver-eventid.bm", "kaboom-ordered.bm", "kaboom-badbytes.bm"])
def test_another_writers_file_is_rewritten_block_for_block_with_its_lines_and_sort_keys(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    sink = io.BytesIO()
    copies = tuple(rewrite_blocks(io.BytesIO(data), "x.bm", directory(data, name), sink))
    written = sink.getvalue()
    assert written.startswith(header_of("x.bm"))
    assert SCHEMA.encode() in written
    assert list(read_lines(io.BytesIO(written), "x.bm")) == list(read_lines(io.BytesIO(data), name))
    assert [(copy.start, copy.end, copy.crc) for copy in copies] == [
        (block.start, block.end, block.crc) for block in BoomReader(io.BytesIO(written), "x.bm").blocks()
    ]
    assert sum(1 for _ in fastavro.reader(io.BytesIO(written))) > 0


def test_a_file_that_is_not_what_its_directory_says_is_not_rewritten() -> None:
    data = (GOLDEN / "logdriver-eventid.bm").read_bytes()
    blocks = directory(data, "x.bm")
    with pytest.raises(CorruptFile, match="is not what it was"):
        list(rewrite_blocks(io.BytesIO(data), "x.bm", (*blocks, blocks[-1]), io.BytesIO()))
    with pytest.raises(CorruptFile, match="goes on after its 0 blocks"):
        list(rewrite_blocks(io.BytesIO(data), "x.bm", (), io.BytesIO()))


def join(folder: Path) -> tuple[LocalStorage, Joined]:
    storage = LocalStorage(root=folder, attributes=FileAttributes())
    file = boom_file("a.bm", cut(lines(40), 10))
    storage.create("a.bm", file.data)
    (target,) = plan_targets(HOUR, 1, [Source(path="a.bm", shard="0001-0", blocks=file.blocks)], 10**6)
    found = join_target(JoinOrder(target=target, timestamp_ms=0, storage=storage, folder="_tmp"), 0)
    assert isinstance(found, Joined)
    return storage, found


def test_a_target_that_was_just_joined_is_whole(tmp_path: Path) -> None:
    storage, found = join(tmp_path)
    storage.rename(found.temporary, found.target.path)
    assert fault_of(VerifyOrder(pieces=found.records, storage=storage)) is None


@given(st.data())
def test_no_changed_byte_and_no_missing_byte_passes_the_reading_back(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        storage, found = join(Path(folder))
        whole = storage.read(found.temporary)
        place = data.draw(st.integers(0, len(whole) - 1))
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        storage.create(found.target.path, data.draw(st.sampled_from([whole[:place], changed])))
        assert fault_of(VerifyOrder(pieces=found.records, storage=storage))
