"""The assets of a stream, defined here and nowhere else: Airflow wants each of them to be one.

The key of an event is the name of its hour or day, UTC, as everywhere in Tidemark: `2026-11-15T07`, `2026-11-15`; its
`extra` is `{"revision": n}`.
"""

from collections.abc import Iterable

from airflow.sdk import Asset, AssetAll, PartitionedAssetTimetable, StartOfDayMapper, StartOfHourMapper

from tidemark.names import valid_stream

GROUP = "tidemark"
KEY = "{{ dag_run.partition_key }}"
"""The hour or day of a run that is scheduled by these assets, as a template."""


def hour_asset(stream: str) -> Asset:
    return Asset(name=f"{valid_stream(stream)}/hour", uri=f"tidemark://{stream}/hour", group=GROUP)


def day_asset(stream: str) -> Asset:
    return Asset(name=f"{valid_stream(stream)}/day", uri=f"tidemark://{stream}/day", group=GROUP)


def assets_of(stream: str) -> list[Asset]:
    return [hour_asset(stream), day_asset(stream)]


def asset_of(stream: str, subject: str) -> Asset:
    return hour_asset(stream) if "T" in subject else day_asset(stream)


def every_hour_of(*streams: str) -> PartitionedAssetTimetable:
    """One run for each hour, when it is ready in all of these streams, and again for each revision of one stream's.

    With several streams a new revision in one of them waits for the others' (`tidemark flags replay` does not).
    """
    mapper = StartOfHourMapper(input_format="%Y-%m-%dT%H")
    return PartitionedAssetTimetable(assets=_all_of(map(hour_asset, streams)), default_partition_mapper=mapper)


def every_day_of(*streams: str) -> PartitionedAssetTimetable:
    """The same for days."""
    mapper = StartOfDayMapper(input_format="%Y-%m-%d")
    return PartitionedAssetTimetable(assets=_all_of(map(day_asset, streams)), default_partition_mapper=mapper)


def _all_of(assets: Iterable[Asset]) -> AssetAll | Asset:
    found = list(assets)
    return found[0] if len(found) == 1 else AssetAll(*found)
