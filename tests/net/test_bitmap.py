"""Folding a bitmap finds the holes that looking at each bit finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget

from berth.net import bitmap

BITS = st.builds(lambda a, b, c: (a | b) & ~c & bitmap.ALL, *[st.integers(0, bitmap.ALL)] * 3) | st.builds(
    lambda order, at: bitmap.mask(at << order & 63, order), st.integers(0, 6), st.integers(0, 63)
)


def holes(bits: int, order: int) -> list[int]:
    size = 1 << order
    return [at for at in range(0, 64, size) if all(bits >> i & 1 for i in range(at, at + size))]


@budget(300)
@given(BITS)
def test_holes_and_the_widest_of_them_are_found(bits: int) -> None:
    for order in range(7):
        found = bitmap.holes(bits, order)
        assert [at for at in range(64) if found >> at & 1] == holes(bits, order)
    assert bitmap.widest(bits) == max((order for order in range(7) if holes(bits, order)), default=-1)


@budget(300)
@given(BITS)
def test_pieces_make_up_the_bits_and_cannot_be_merged(bits: int) -> None:
    pieces = list(bitmap.pieces(bits))
    assert sum(bitmap.mask(*piece) for piece in pieces) == bits
    assert not any((offset ^ 1 << order, order) in pieces for offset, order in pieces)
