from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemark.archive.plan import HEADER_BYTES, Source, plan_targets
from tidemark.boom.format import BoomBlock
from tidemark.names import Hour

HOUR = Hour.parse("2026-11-15T07")


def source(number: int, sizes: Sequence[int], min_ms: int) -> Source:
    blocks = []
    position = HEADER_BYTES
    for index, size in enumerate(sizes):
        blocks.append(
            BoomBlock(
                start=position,
                end=position + size,
                lines=1,
                runs=((index, index + 1),),
                min_ms=min_ms + index,
                max_ms=min_ms + index,
                crc=0,
            )
        )
        position += size
    return Source(path=f"2026-11-15/07/_incoming/{number}.bm", shard=f"0001-{number}", blocks=tuple(blocks))


sources = st.lists(
    st.tuples(st.lists(st.integers(17, 400), min_size=1, max_size=8), st.integers(0, 50)), max_size=8
).map(lambda drawn: [source(number, sizes, min_ms) for number, (sizes, min_ms) in enumerate(drawn)])


@given(sources, st.integers(1, 2000))
def test_the_pieces_tile_each_source_and_each_target_exactly_once(given_sources: list[Source], size: int) -> None:
    targets = plan_targets(HOUR, 1, given_sources, size)
    for target in targets:
        assert target.pieces[0].start == HEADER_BYTES
        assert all(before.end == after.start for before, after in pairwise(target.pieces))
    for known in given_sources:
        copied = [
            block
            for target in targets
            for piece in target.pieces
            if piece.source == known.path
            for block in piece.blocks
        ]
        assert tuple(copied) == known.blocks


@given(sources, st.integers(1, 2000))
def test_every_target_but_the_last_has_reached_its_size_with_its_last_block(
    given_sources: list[Source], size: int
) -> None:
    for target in plan_targets(HOUR, 1, given_sources, size)[:-1]:
        last = target.pieces[-1].blocks[-1]
        assert target.size >= size
        assert target.size - (last.end - last.start) < max(size, HEADER_BYTES + 1)


def test_sources_are_joined_in_order_of_time() -> None:
    (target,) = plan_targets(HOUR, 3, [source(0, [50], 900), source(1, [50], 100)], 2000)
    assert [piece.shard for piece in target.pieces] == ["0001-1", "0001-0"]
    assert target.path == "2026-11-15/07/2026-11-15T07-0003-000.bm"


def test_an_hour_without_sources_has_no_target() -> None:
    assert plan_targets(HOUR, 1, [], 2000) == ()
