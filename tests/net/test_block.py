"""Blocks: nested or apart, and the fewest of them for any range."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import budget

from berth.net import Family, Range, RangeSet, block_at, blocks_of, parse_block, parse_range


@pytest.mark.parametrize(
    ("ranges", "blocks"),
    [
        ("10.0.0.9-10.0.0.14", "10.0.0.9/32 10.0.0.10/31 10.0.0.12/31 10.0.0.14/32"),
        ("10.0.0.8-10.0.0.15", "10.0.0.8/29"),
        ("10.0.0.0/25 10.0.0.128/25", "10.0.0.0/24"),
        ("10.0.0.0/25 10.0.0.128/28 10.0.0.160/28", "10.0.0.0/25 10.0.0.128/28 10.0.0.160/28"),
        ("10.0.0.0-10.0.0.10 10.0.0.11-10.0.0.20", "10.0.0.0/28 10.0.0.16/30 10.0.0.20/32"),
        ("10.0.0.5 10.0.0.6 10.0.0.7", "10.0.0.5/32 10.0.0.6/31"),
        (
            "10.0.8.0-10.0.247.0",
            "10.0.8.0/21 10.0.16.0/20 10.0.32.0/19 10.0.64.0/18 10.0.128.0/18 10.0.192.0/19 10.0.224.0/20 "
            "10.0.240.0/22 10.0.244.0/23 10.0.246.0/24 10.0.247.0/32",
        ),
        (
            "192.168.1.10-192.168.1.20 192.168.1.15-192.168.1.30 192.168.1.31",
            "192.168.1.10/31 192.168.1.12/30 192.168.1.16/28",
        ),
        ("10.0.0.0/24 10.0.0.128/25 10.0.0.200", "10.0.0.0/24"),
        ("0.0.0.0/0 8000::/1", "0.0.0.0/0 8000::/1"),
    ],
)
def test_ranges_are_cut_into_the_blocks_of_kubipams_table(ranges: str, blocks: str) -> None:
    merged = RangeSet(map(parse_range, ranges.split()))
    assert [str(block) for block in merged.blocks()] == blocks.split()


def test_all_addresses_there_are_make_one_block() -> None:
    assert [str(block) for block in blocks_of(Range(Family.V6, 0, Family.V6.top))] == ["::/0"]


@budget(200)
@given(st.integers(0, 2000), st.integers(1, 3000), st.sampled_from(list(Family)))
def test_the_blocks_of_a_range_are_aligned_cover_it_and_cannot_be_merged(
    first: int, size: int, family: Family
) -> None:
    blocks = list(blocks_of(Range(family, first, first + size - 1)))
    assert [block.first for block in blocks] == [first, *(block.last + 1 for block in blocks[:-1])]
    assert blocks[-1].last == first + size - 1
    assert all(block.first % block.size == 0 for block in blocks)
    assert not any(a.size == b.size and a.first % (2 * a.size) == 0 for a, b in itertools.pairwise(blocks))


@pytest.mark.parametrize(
    ("one", "other", "covers", "overlaps"),
    [
        ("10.0.0.0/24", "10.0.0.77", True, True),
        ("10.0.0.77", "10.0.0.0/24", False, True),
        ("10.0.0.0/24", "10.0.1.0/24", False, False),
        ("10.0.0.0/24", "10.0.0.0/24", True, True),
        ("0.0.0.0/0", "::/0", False, False),
    ],
)
def test_blocks_are_nested_or_apart(one: str, other: str, covers: bool, overlaps: bool) -> None:
    assert parse_block(one).covers(parse_block(other)) is covers
    assert parse_block(one).overlaps(parse_block(other)) is overlaps


def test_a_block_knows_its_ends_size_and_texts() -> None:
    block = parse_block("fd00::/64")
    assert (block.size, block.last - block.first, block.is_address) == (1 << 64, (1 << 64) - 1, False)
    assert (str(block), block.address) == ("fd00::/64", "fd00::")
    assert parse_block("10.0.0.1").is_address


@pytest.mark.parametrize("length", [-1, 33])
def test_there_is_no_block_of_a_length_the_family_does_not_have(length: int) -> None:
    with pytest.raises(ValueError, match="no blocks of length"):
        block_at(Family.V4, 0, length)
