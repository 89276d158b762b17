"""Which block is granted: the contract's vectors on the real API server, exact requests, round robin."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.support.kubipam import World

from berth.dialects.kubipam.kinds import BUSY, INVALID, READY, ROUND_ROBIN
from berth.net import parse_block

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("entries", "sizes", "expected"),
    [
        pytest.param(["10.0.0.0/24"], [32], "10.0.0.0/32", id="K-041"),
        pytest.param(["10.0.0.0/24"], [32, 25], "10.0.0.0/32 10.0.0.128/25", id="K-043"),
        pytest.param(["10.0.0.0/25", "10.0.0.128/28", "10.0.0.160/28"], [30], "10.0.0.128/30", id="K-044"),
        pytest.param(["10.0.0.10-10.0.0.20"], [32] * 3, "10.0.0.20/32 10.0.0.10/32 10.0.0.11/32", id="K-045"),
        pytest.param(["10.0.0.0/26"], [28, 30, 28], "10.0.0.0/28 10.0.0.16/30 10.0.0.32/28", id="K-046"),
        pytest.param(
            ["192.168.0.0/16"],
            [24, 24, 32, 24, 32, 16, 17],
            "192.168.0.0/24 192.168.1.0/24 192.168.2.0/32 192.168.3.0/24 192.168.2.1/32 none "
            "192.168.128.0/17",
            id="mixed",
        ),
        pytest.param(
            ["10.0.0.0/24"],
            [32, 30, 26, 32, 25, 27, 28, 29],
            "10.0.0.0/32 10.0.0.4/30 10.0.0.64/26 10.0.0.1/32 10.0.0.128/25 10.0.0.32/27 10.0.0.16/28 "
            "10.0.0.8/29",
            id="small",
        ),
        pytest.param(
            ["10.0.0.0/8"], [9, 10, 12, 11], "10.0.0.0/9 10.128.0.0/10 10.192.0.0/12 10.224.0.0/11", id="big"
        ),
        pytest.param(
            ["172.16.0.0/22", "172.16.8.0/24"],
            [24, 24, 23, 24, 25],
            "172.16.8.0/24 172.16.0.0/24 172.16.2.0/23 172.16.1.0/24 none",
            id="apart",
        ),
        pytest.param(
            ["fd00:1::/48"],
            [64, 64, 128, 56],
            "fd00:1::/64 fd00:1:0:1::/64 fd00:1:0:2::/128 fd00:1:0:100::/56",
            id="ipv6",
        ),
        pytest.param(
            ["2001:db8::/120"],
            [128, 126, 121, 122],
            "2001:db8::/128 2001:db8::4/126 2001:db8::80/121 2001:db8::40/122",
            id="ipv6-small",
        ),
    ],
)
async def test_the_contracts_sequences(
    world: World, entries: list[str], sizes: list[int], expected: str
) -> None:
    await world.range(*entries)
    assert await world.grants(sizes) == expected


async def test_the_last_address_is_granted_like_any_other(world: World) -> None:
    """K-042"""
    await world.range("10.0.0.0/24")
    await world.grants([25, 26, 27, 28, 29, 30, 31, 32])
    assert await world.granted("last") == "10.0.0.255/32"


async def test_a_released_block_is_granted_again(world: World) -> None:
    """K-047"""
    await world.range("10.0.0.0/26")
    await world.grants([28, 30, 28])
    await world.release("r0")
    assert await world.granted("again", size=28) == "10.0.0.0/28"


@pytest.mark.parametrize(
    ("entry", "sizes", "whole"),
    [
        pytest.param("10.0.0.0/8", [9, 10, 12, 11], 8, id="K-048"),
        pytest.param("fd00:1::/48", [64], 48, id="K-049"),
    ],
)
async def test_a_range_that_was_released_is_whole(
    world: World, entry: str, sizes: list[int], whole: int
) -> None:
    await world.range(entry)
    await world.grants(sizes)
    for number in range(len(sizes)):
        await world.release(f"r{number}")
    assert (await world.get_range())["status"]["taken"] == []
    assert await world.granted("all", size=whole) == entry


async def test_a_full_range_says_so_on_the_range_too(world: World) -> None:
    """K-050"""
    await world.range("10.0.0.0/29")
    assert await world.grants([32] * 8) == " ".join(f"10.0.0.{n}/32" for n in range(8))
    await world.ask("ninth")
    await world.refused("ninth", BUSY, "allocation with size 32 failed")
    await world.told("Warning", "allocation", "allocation with size 32 failed")


async def test_many_at_once_never_overlap(world: World) -> None:
    """K-051"""
    await world.range("10.0.0.0/16")
    lengths = [32, 28, 30, 26, 31, 24] * 20
    granted = await world.together({f"r{number}": length for number, length in enumerate(lengths)})
    blocks = [parse_block(granted[f"r{number}"]) for number in range(len(lengths))]
    ordered = sorted(blocks, key=lambda block: block.first)
    assert all(one.last < two.first for one, two in pairwise(ordered))
    assert [block.length for block in blocks] == lengths


# Exact requests


@pytest.mark.parametrize(
    ("asked", "cidr"),
    [
        pytest.param({"request": "10.0.0.5"}, "10.0.0.5/32", id="K-052"),
        pytest.param({"request": "10.0.0.64/26"}, "10.0.0.64/26", id="K-053"),
        pytest.param({"request": " 10.0.0.9 "}, "10.0.0.9/32", id="K-060"),
        pytest.param({"request": "10.0.0.5/30"}, "10.0.0.4/30", id="K-061"),
        pytest.param({"request": "10.0.0.64/26", "size": 32}, "10.0.0.64/26", id="K-062"),
        pytest.param({"request": "::ffff:10.0.0.8"}, "10.0.0.8/32", id="K-065"),
    ],
)
async def test_an_exact_request_gets_exactly_that(world: World, asked: dict[str, Any], cidr: str) -> None:
    await world.range("10.0.0.0/24")
    assert await world.granted("r", **asked) == cidr


@pytest.mark.parametrize(
    ("asked", "state", "message"),
    [
        pytest.param({"request": "10.0.0.70"}, BUSY, "10.0.0.70/32 already busy", id="K-054"),
        pytest.param({"request": "10.0.0.0/25"}, BUSY, "10.0.0.0/25 already busy", id="K-055"),
        pytest.param(
            {"request": "10.9.0.1"},
            BUSY,
            "10.9.0.1/32 already busy: it lies outside of the range",
            id="K-056",
        ),
        pytest.param({"request": "10.0.0.0/16"}, BUSY, "10.0.0.0/16 already busy", id="K-057"),
        pytest.param(
            {"request": "fd00::1"}, BUSY, "fd00::1/128 already busy: it lies outside of the range", id="K-058"
        ),
        pytest.param(
            {"request": "foo"},
            INVALID,
            "invalid request cidr or ip foo: invalid CIDR address: foo",
            id="K-059",
        ),
        pytest.param(
            {"request": "10.0.0.64/26", "size": 40}, INVALID, "size 40 too large: network 32", id="K-063"
        ),
    ],
)
async def test_an_exact_request_that_cannot_be(
    world: World, asked: dict[str, Any], state: str, message: str
) -> None:
    await world.range("10.0.0.0/24")
    await world.granted("holder", request="10.0.0.64/26")
    await world.ask("r", **asked)
    await world.refused("r", state, message)


async def test_an_anonymous_request_goes_around_an_exact_one(world: World) -> None:
    """K-064"""
    await world.range("10.0.0.0/24")
    assert await world.granted("exact", request="10.0.0.0") == "10.0.0.0/32"
    assert await world.granted("any") == "10.0.0.1/32"


async def test_a_waiting_exact_request_gets_its_block_when_it_is_released(world: World) -> None:
    """K-066"""
    await world.range("10.0.0.0/24")
    await world.granted("holder", request="10.0.0.64/26")
    await world.ask("waiting", request="10.0.0.70")
    await world.refused("waiting", BUSY, "10.0.0.70/32 already busy")
    await world.delete("holder")
    await world.becomes("waiting", state=READY, cidr="10.0.0.70/32", message=None)


# Round robin


@pytest.mark.parametrize(
    ("entry", "size", "expected"),
    [
        pytest.param("10.0.0.0/28", 29, "10.0.0.0/29 10.0.0.8/29 10.0.0.0/29", id="K-067"),
        pytest.param(
            "10.0.0.0/25",
            27,
            "10.0.0.0/27 10.0.0.32/27 10.0.0.64/27 10.0.0.96/27 10.0.0.0/27",
            id="quarters",
        ),
        pytest.param("10.0.0.0/8", 9, "10.0.0.0/9 10.128.0.0/9 10.0.0.0/9", id="halves"),
    ],
)
async def test_round_robin_goes_on_behind_what_was_released(
    world: World, entry: str, size: int, expected: str
) -> None:
    await world.range(entry, mode=ROUND_ROBIN)
    found = []
    for number in range(len(expected.split())):
        found.append(await world.granted(f"r{number}", size=size))
        await world.release(f"r{number}")
    assert " ".join(found) == expected


async def test_each_length_has_a_cursor_of_its_own(world: World) -> None:
    """K-068, K-069, K-070"""
    await world.range("192.168.0.0/16", mode=ROUND_ROBIN)
    assert await world.grants([24, 24]) == "192.168.0.0/24 192.168.1.0/24"
    await world.range_becomes(roundRobin=["192.168.2.0/24"])
    await world.release("r0")
    assert await world.grants([24], start=2) == "192.168.2.0/24"
    assert await world.grants([32, 32], start=3) == "192.168.0.0/32 192.168.0.1/32"
    await world.range_becomes(roundRobin=["192.168.3.0/24", "192.168.0.2/32"])


@pytest.mark.parametrize(
    ("entries", "size", "expected"),
    [
        pytest.param(
            ["10.0.0.0/30", "10.0.1.0/30"],
            32,
            " ".join(f"10.0.{n // 4}.{n % 4}/32" for n in range(8)),
            id="K-071",
        ),
        pytest.param(
            ["255.255.255.252/30"], 32, " ".join(f"255.255.255.{n}/32" for n in range(252, 256)), id="K-075"
        ),
        pytest.param(
            ["172.16.0.0/22", "172.16.8.0/24"],
            24,
            "172.16.8.0/24 172.16.0.0/24 172.16.1.0/24 172.16.2.0/24 172.16.3.0/24 none",
            id="apart",
        ),
    ],
)
async def test_round_robin_over_everything(
    world: World, entries: list[str], size: int, expected: str
) -> None:
    await world.range(*entries, mode=ROUND_ROBIN)
    assert await world.grants([size] * len(expected.split())) == expected


async def test_an_exact_request_does_not_move_the_cursor(world: World) -> None:
    """K-073"""
    await world.range("10.0.0.0/24", mode=ROUND_ROBIN)
    await world.grants([32, 32])
    await world.range_becomes(roundRobin=["10.0.0.2/32"])
    assert await world.granted("exact", request="10.0.0.100") == "10.0.0.100/32"
    assert (await world.get_range())["status"]["roundRobin"] == ["10.0.0.2/32"]
    assert await world.granted("next") == "10.0.0.2/32"
