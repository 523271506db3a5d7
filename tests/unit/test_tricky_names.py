"""Names that try to leave their root, at every door where one comes in."""

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.config import load_stream, load_streams
from tidemark.errors import WrongUse
from tidemark.ledger import paths
from tidemark.names import valid_cluster, valid_stream, valid_topic

PIECES = ["..", ".", "/", "\\", "．．", "‥", "․", "／", "∕", "⁄", "％2e", "%2e%2f", "\x00", "\n", "\r\n", "\u2028"]
PIECES += ["\x1b[2J", "\u202e", "\u200b", "\ufeff", "ı", "ｃ", "с", "K", "ﬁ", "é", "e\u0301", "\ud800", "🌊"]
PIECES += [":", ";", ",", " ", "~", "$HOME", "{{ x }}", "'", '"', "<b>", "-", "_", "a", "Z", "0", "a" * 300]
TRICKS = st.one_of(st.lists(st.sampled_from(PIECES), max_size=6).map("".join), st.text(max_size=80))
LINE = re.compile(r"[\x20-\x7e…]+")


def refusal(valid: Callable[[str], str], name: str) -> str | None:
    try:
        valid(name)
    except WrongUse as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(
    ("valid", "allowed", "longest"),
    [(valid_stream, r"[a-z0-9_-]+", 63), (valid_cluster, r"[a-z0-9_]+", 63), (valid_topic, r"[a-zA-Z0-9._-]+", 249)],
)
@given(name=TRICKS)
@example(name="..")
@example(name="a" * 100_000)
def test_a_name_is_plain_and_short_or_refused_in_one_short_line(
    valid: Callable[[str], str], allowed: str, longest: int, name: str
) -> None:
    refused = refusal(valid, name)
    if refused is not None:
        assert LINE.fullmatch(refused)
        assert len(refused) < 2000
        return
    assert valid(name) == name
    assert re.fullmatch(allowed, name, re.ASCII)
    assert len(name) <= longest
    assert name not in (".", "..")
    assert unicodedata.normalize("NFKC", name) == name


@given(name=TRICKS)
def test_every_node_of_a_stream_lies_below_the_stream(name: str) -> None:
    if refusal(valid_stream, name) is None:
        assert paths.stream(name).split("/")[-2:] == ["streams", name]


@given(name=TRICKS, topic=TRICKS, folder=TRICKS)
def test_a_configuration_takes_plain_names_and_tells_of_others_in_one_line(name: str, topic: str, folder: str) -> None:
    settings = {"cluster": "main", "topic": topic, "root": f"hdfs:///data/{folder}", "owner": "web"}
    with TemporaryDirectory() as place:
        path = Path(place) / "streams.yaml"
        path.write_text(yaml.safe_dump({"streams": {name: settings}}, allow_unicode=False), "utf-8")
        loaded = load_streams(path)
        if not loaded.streams:
            assert loaded.errors
            assert all(LINE.fullmatch(error) for error in loaded.errors)
            with pytest.raises(WrongUse):
                load_stream(path, name)
            return
    (stream,) = loaded.streams.values()
    assert (valid_stream(stream.name), valid_topic(stream.topic)) == (name, topic)
    parts = unicodedata.normalize("NFKC", stream.root).removeprefix("hdfs:///data").split("/")[1:]
    assert not {"", ".", ".."} & set(parts)


@given(name=TRICKS)
def test_asking_for_a_stream_by_a_trick_is_refused_in_one_line(name: str) -> None:
    with TemporaryDirectory() as place:
        path = Path(place) / "streams.yaml"
        path.write_text("streams: {}", "utf-8")
        with pytest.raises(WrongUse) as refused:
            load_stream(path, name)
    assert LINE.fullmatch(str(refused.value))
