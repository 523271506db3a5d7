import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.boom.escape import escape, escape_array, unescape

PRIVATE = st.integers(0xEF80, 0xEFFF).map(lambda number: chr(number).encode())
PIECES = st.one_of(st.binary(max_size=6), st.text(max_size=4).map(str.encode), PRIVATE)
RAW = st.lists(PIECES, max_size=8).map(b"".join)
KINDS = st.sampled_from([pa.binary(), pa.large_binary()])


@given(RAW)
def test_escape_is_reversible_for_every_byte_string(raw: bytes) -> None:
    assert unescape(escape(raw)) == raw


@given(RAW)
def test_escaped_bytes_are_text(raw: bytes) -> None:
    escape(raw).decode()


@given(RAW, RAW)
def test_two_byte_strings_never_have_the_same_escaped_form(first: bytes, second: bytes) -> None:
    assert (escape(first) == escape(second)) == (first == second)


@given(st.text().map(lambda text: "".join(c for c in text if not "\uef80" <= c <= "\uefff").encode()))
def test_text_without_the_private_code_points_is_left_as_it_is(raw: bytes) -> None:
    assert escape(raw) == raw


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        (b"\xff", "\uefff"),
        (b"a\x80b", "a\uef80b"),
        (b"\xc3(", "\uefc3("),
        ("\uef80".encode(), "\uefee\uefbe\uef80"),
        ("\uef7f\uf000".encode(), "\uef7f\uf000"),
        (b"\xed\xb2\x80", "\uefed\uefb2\uef80"),
        (b"\xc3", "\uefc3"),
    ],
)
def test_escaped_form_is_the_decided_one(raw: bytes, escaped: str) -> None:
    assert escape(raw) == escaped.encode()


def test_what_is_not_text_was_never_escaped_and_stays() -> None:
    assert unescape("\uefff".encode() + b"\xff") == "\uefff".encode() + b"\xff"


@given(st.lists(RAW, max_size=10), KINDS, st.integers(0, 3))
def test_arrays_are_escaped_value_by_value(values: list[bytes], kind: pa.DataType, skipped: int) -> None:
    column = pa.array(values, kind)[skipped:]
    escaped = escape_array(column)
    assert escaped.to_pylist() == [escape(value) for value in values[skipped:]]
    assert [unescape(value) for value in escaped.to_pylist()] == column.to_pylist()


def test_a_character_cut_by_the_border_of_two_lines_is_escaped_in_both() -> None:
    assert escape_array(pa.array([b"\xc3", b"\xa9"])).to_pylist() == [escape(b"\xc3"), escape(b"\xa9")]


@pytest.mark.parametrize("values", [[b"plain", b""], ["Grüße".encode(), "世界".encode()], []])
def test_a_batch_that_needs_nothing_is_not_copied(values: list[bytes]) -> None:
    column = pa.array(values, pa.binary())
    assert escape_array(column) is column
