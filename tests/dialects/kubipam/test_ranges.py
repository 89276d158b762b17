"""How the entries of `ranges` are read, and what sizes mean: contract rows K-013 to K-040."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.kubipam import World

from berth.dialects.kubipam.kinds import BUSY, INVALID, READY

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


async def everything(world: World, count: int) -> list[str]:
    """What so many requests get, all asked at once."""
    return sorted((await world.together({f"r{number}": None for number in range(count)})).values())


async def test_a_cidr_gives_every_one_of_its_addresses(world: World) -> None:
    """K-013"""
    await world.range("10.0.0.0/24")
    assert await everything(world, 256) == sorted(f"10.0.0.{last}/32" for last in range(256))
    assert await world.granted("more") == "none"


@pytest.mark.parametrize(
    ("entries", "addresses"),
    [
        pytest.param(["10.0.0.9-10.0.0.14"], [f"10.0.0.{n}/32" for n in range(9, 15)], id="K-014"),
        pytest.param(["10.1.2.3"], ["10.1.2.3/32"], id="K-015"),
        pytest.param(["10.0.0.77/29"], [f"10.0.0.{n}/32" for n in range(72, 80)], id="K-016"),
        pytest.param(
            ["10.0.0.0/29", "10.0.0.4/30", "10.0.0.6"], [f"10.0.0.{n}/32" for n in range(8)], id="K-023"
        ),
        pytest.param(["::ffff:10.0.0.0/126"], [f"10.0.0.{n}/32" for n in range(4)], id="K-026"),
    ],
)
async def test_exactly_these_addresses_are_granted(
    world: World, entries: list[str], addresses: list[str]
) -> None:
    await world.range(*entries)
    assert await everything(world, len(addresses)) == sorted(addresses)
    await world.ask("more")
    await world.refused("more", BUSY, "allocation with size 32 failed")


async def test_host_bits_of_an_entry_are_dropped(world: World) -> None:
    """K-016"""
    await world.range("10.0.0.77/24")
    assert await world.granted("r", size=24) == "10.0.0.0/24"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param(
            ["10.3.0.0-10.2.3.4"],
            'invalid ip range "10.3.0.0-10.2.3.4": end of range before start',
            id="K-017",
        ),
        pytest.param(
            ["10.0.0.1-fd00::5"],
            'invalid ip range "10.0.0.1-fd00::5": start and end ip have different version',
            id="K-018",
        ),
        pytest.param(["10.0.0.1 - 10.0.0.5"], 'invalid ip range "10.0.0.1 - 10.0.0.5"', id="K-019"),
        pytest.param(
            ["10.0.0.0-10.2.3.4-1.2.3.4"], 'invalid ip range "10.0.0.0-10.2.3.4-1.2.3.4"', id="K-020"
        ),
        pytest.param(["10.0.0.0/24-10.0.1.0/24"], 'invalid ip range "10.0.0.0/24-10.0.1.0/24"', id="K-021"),
        pytest.param(["10.0.0.0/24", "nonsense"], 'invalid ip range "nonsense"', id="K-022"),
        pytest.param(
            ["10.0.0.0/24", "fd00::/64"],
            "invalid ip ranges: IPv4 and IPv6 entries in one range",
            id="K-025",
        ),
        pytest.param(["10.0.0.010"], 'invalid ip range "10.0.0.010"', id="K-027"),
    ],
)
async def test_a_faulty_entry_makes_the_range_invalid(world: World, entries: list[str], message: str) -> None:
    await world.range(*entries)
    await world.range_becomes(state=INVALID, message=message)


async def test_entries_that_overlap_are_one_block(world: World) -> None:
    """K-023"""
    await world.range("10.0.0.0/24", "10.0.0.128/25", "10.0.0.200")
    assert await world.grants([24, 32]) == "10.0.0.0/24 none"


async def test_entries_that_touch_are_one_block(world: World) -> None:
    """K-024"""
    await world.range("10.0.0.0/25", "10.0.0.128/25")
    assert await world.grants([24]) == "10.0.0.0/24"


async def test_a_mapped_cidr_is_of_ipv4(world: World) -> None:
    """K-026"""
    await world.range("::ffff:10.0.0.0/104")
    assert await world.grants([8]) == "10.0.0.0/8"


# Sizes


@pytest.mark.parametrize(
    ("entry", "chunk", "size", "cidr"),
    [
        pytest.param("192.168.0.0/16", 24, None, "192.168.0.0/24", id="K-028"),
        pytest.param("192.168.0.0/16", 24, 32, "192.168.0.0/32", id="K-029"),
        pytest.param("192.168.0.0/16", None, None, "192.168.0.0/32", id="K-030"),
        pytest.param("fd00::/64", None, None, "fd00::/128", id="K-031"),
        pytest.param("fd00::/48", 64, None, "fd00::/64", id="K-033"),
        pytest.param("192.168.0.0/16", 24, 0, "192.168.0.0/24", id="K-037"),
        pytest.param("192.168.0.0/16", -5, None, "192.168.0.0/32", id="K-038"),
    ],
)
async def test_the_size_of_a_grant(
    world: World, entry: str, chunk: int | None, size: int | None, cidr: str
) -> None:
    spec: dict[str, Any] = {} if chunk is None else {"chunkSize": chunk}
    await world.range(entry, **spec)
    await world.range_becomes(state=READY)
    asked: dict[str, Any] = {} if size is None else {"size": size}
    assert await world.granted("r", **asked) == cidr


async def test_a_chunk_wider_than_the_family_is_invalid(world: World) -> None:
    """K-032"""
    await world.range("10.0.0.0/24", chunkSize=33)
    await world.range_becomes(state=INVALID, message="chunk size 33 too large: network 32")


@pytest.mark.parametrize(
    ("entry", "size", "state", "message"),
    [
        pytest.param("10.0.0.0/24", 33, INVALID, "size 33 too large: network 32", id="K-034"),
        pytest.param("fd00::/64", 129, INVALID, "size 129 too large: network 128", id="K-035"),
        pytest.param("10.0.0.0/24", -1, INVALID, "invalid size -1", id="K-036"),
        pytest.param("10.0.0.0/24", 16, BUSY, "allocation with size 16 failed", id="K-039"),
    ],
)
async def test_sizes_that_cannot_be(world: World, entry: str, size: int, state: str, message: str) -> None:
    await world.range(entry)
    await world.ask("r", size=size)
    await world.refused("r", state, message)


async def test_only_aligned_blocks_are_granted(world: World) -> None:
    """K-040"""
    await world.range("10.0.0.10-10.0.0.20", chunkSize=30)
    assert [await world.granted(name) for name in "abc"] == ["10.0.0.12/30", "10.0.0.16/30", "none"]
