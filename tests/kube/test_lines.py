"""Chunks → lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from berth.kube.http.lines import Lines


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_come_out_whole_whatever_the_chunks(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    splitter, found = Lines(), []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += splitter.feed(text[:size])
        text = text[size:]
    assert found == lines
    assert not splitter.is_cut


def test_a_line_of_many_megabytes_is_one_line() -> None:
    splitter = Lines()
    for _ in range(100):
        assert splitter.feed(b"x" * 100_000) == []
    assert splitter.is_cut
    (line,) = splitter.feed(b"\n")
    assert len(line) == 10_000_000


def test_blank_lines_are_left_out() -> None:
    assert Lines().feed(b"\na\n\n\nb\n") == [b"a", b"b"]
