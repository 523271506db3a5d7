"""Manifests stay for years: those of older formats are read, too."""

import json

from tests.unit.test_flag import manifest

from tidemark.ledger.records import dump, parse
from tidemark.lineage import Cursor
from tidemark.manifest import Manifest


def test_a_manifest_has_cursors_as_pairs_and_one_of_format_1_is_read_without_them() -> None:
    written = json.loads(dump(manifest()))
    assert (written["format"], written["shards"]["0001-0"].pop("cursor")) == (2, [1, 119])
    found = parse(Manifest, json.dumps({**written, "format": 1}).encode())
    assert (found.format, found.shards["0001-0"].cursor) == (1, None)
    assert parse(Manifest, dump(manifest())).shards["0001-0"].cursor == Cursor(1, 119)
