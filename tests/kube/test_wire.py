"""The bytes of an answer, in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.kube.http.wire import LONGEST_HEAD, Malformed, Reading

PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\nC;name=value\r\n, wide world\r\n0\r\nTrailer: x\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN
UNTIL_THE_END = b"HTTP/1.1 200 OK\r\n\r\nhello"


def read(*pieces: bytes) -> Reading:
    reading = Reading()
    for piece in pieces:
        reading.feed(piece)
    return reading


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(places)]


CUTS = st.lists(st.integers(0, 10_000), max_size=20)


@given(st.sampled_from([(PLAIN, 201, b"hello"), (CHUNKED, 200, b"hello, wide world")]), CUTS)
def test_an_answer_reads_the_same_in_any_pieces(case: tuple[bytes, int, bytes], cuts: list[int]) -> None:
    data, status, body = case
    reading = read(*pieces(data, cuts))
    assert (reading.status, b"".join(reading.parts), reading.done, reading.keep) == (status, body, True, True)


@given(CUTS)
def test_words_in_between_are_passed_over(cuts: list[int]) -> None:
    reading = read(*pieces(INTERIM, cuts))
    assert (reading.status, b"".join(reading.parts), reading.done) == (201, b"hello", True)


@given(st.sampled_from([PLAIN, CHUNKED]), st.integers(0, 10_000))
def test_an_answer_that_ends_early_is_known_to_be_cut(data: bytes, place: int) -> None:
    reading = read(data[: place % len(data)])
    assert not reading.done
    with pytest.raises(Malformed, match="cut"):
        reading.end()


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    reading = read(UNTIL_THE_END)
    assert not reading.done
    reading.end()
    assert (reading.done, reading.keep, reading.parts) == (True, False, [b"hello"])


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    reading = read(f"HTTP/1.1 {status} X\r\nContent-Length: 7\r\n\r\n".encode())
    assert (reading.done, reading.keep) == (True, True)


def test_an_empty_body_is_complete_with_the_head() -> None:
    assert read(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").done


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.replace(b"X-A: b", b"Connection: close"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN + b"more than was announced",
        CHUNKED + b"more than was announced",
    ],
)
def test_a_connection_is_not_kept_when_it_may_not_or_cannot_be_trusted(data: bytes) -> None:
    reading = read(data)
    assert reading.done
    assert not reading.keep


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (LONGEST_HEAD + 1),
        b"x" * (LONGEST_HEAD + 1),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(data)


def test_header_names_are_read_in_any_case() -> None:
    assert read(PLAIN).headers == {"content-length": "5", "x-a": "b"}
