from hypothesis import given
from hypothesis import strategies as st

from tidemark.consume.results import Split
from tidemark.consume.spread import spread
from tidemark.names import Shard


def splits_of_sizes(sizes: list[int]) -> list[Split]:
    return [
        Split(shard=Shard(1, order), index=0, order=order, start=7, end=7 + size) for order, size in enumerate(sizes)
    ]


def load_of(share: list[Split]) -> int:
    return sum(split.end - split.start for split in share)


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=60), st.integers(1, 20))
def test_every_split_has_one_task_and_no_task_has_more_than_a_split_more_than_another(
    sizes: list[int], tasks: int
) -> None:
    splits = splits_of_sizes(sizes)
    shares = spread(splits, tasks)
    assert sorted(split.order for share in shares for split in share) == list(range(len(splits)))
    assert len(shares) == min(tasks, len(splits))
    loads = [load_of(share) for share in shares]
    assert all(shares)
    assert max(loads) - min(loads) <= max(sizes)


def test_many_small_splits_go_beside_one_large_one() -> None:
    shares = spread(splits_of_sizes([1, 1, 1, 100, 1]), 2)
    assert [[split.order for split in share] for share in shares] == [[3], [0, 1, 2, 4]]


def test_the_same_splits_are_always_spread_alike() -> None:
    splits = splits_of_sizes([5] * 10)
    assert spread(splits, 3) == spread(splits[::-1], 3)
