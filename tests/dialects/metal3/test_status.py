"""A pool's status: `indexes` as upstream keeps it, as long as it fits into one object."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.metal3 import PAUSED, A, World, address, capi_address, pool, ranged
from tests.support.operator import Operator, eventually

from berth.dialects.metal3 import kinds
from berth.dialects.metal3.claim_api import Flavour
from berth.dialects.metal3.ipaddressclaim import Capi
from berth.dialects.metal3.ipclaim import Native
from berth.dialects.metal3.pools import OpenPool
from berth.dialects.metal3.status import INDEXES_BYTES, pool_status
from berth.dialects.metal3.translate import read_pool
from berth.dialects.pool import Desk
from berth.net import Block, Family

Object = dict[str, Any]
NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Given:
    """Leases and pools as far as a status looks at them."""

    def __init__(self, *records: tuple[Flavour, Object]) -> None:
        self._records = records

    def addresses(self, key: str) -> Iterator[tuple[Any, Object]]:
        for flavour, record in self._records:
            self.flavour = flavour
            yield self, record


def shown(stored: Object, *records: tuple[Flavour, Object]) -> Object:
    stored["metadata"] |= {
        "namespace": "default",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "generation": 1,
    }
    spec = read_pool(stored)
    opened = OpenPool(Desk(spec.pool, lambda ref: None), spec, "uid")
    return pool_status(stored, opened, Given(*records), NOW)  # type: ignore[arg-type]


def test_a_new_pool_was_updated_when_it_was_made() -> None:
    status = shown(pool("pool", A))
    assert status["lastUpdated"] == "2026-01-01T00:00:00Z"
    assert status["indexes"] is None
    assert status["ipAddresses"] == {"total": 3, "used": 0, "free": 3, "reserved": 0, "outOfRange": 0}


def test_both_apis_are_listed_and_equal_names_told_apart() -> None:
    """X-04: the bare name stays Metal3's."""
    mine = (Native(), address("a-10-0-0-10", "10.0.0.10", "n"))
    theirs = (Capi(), capi_address("a-10-0-0-11", "10.0.0.11", "n"))
    status = shown(pool("pool", A), mine, theirs)
    assert status["indexes"] == {"n": "10.0.0.10", "n.ipaddressclaim": "10.0.0.11"}
    assert status["lastUpdated"] == "2026-01-02T00:00:00Z"


def test_a_second_look_finds_nothing_to_write() -> None:
    record = (Native(), address("a-10-0-0-10", "10.0.0.10", "n"))
    first = shown(pool("pool", A), record)
    again = pool("pool", A)
    again["status"] = first
    assert shown(again, record) == first


def many(count: int) -> list[tuple[Flavour, Object]]:
    flavour = Native()
    texts = [Block(Family.V4, (10 << 24) + i, 32).address for i in range(count)]
    return [(flavour, address(f"a-{i}", text, f"cluster-worker-machine-{i}")) for i, text in enumerate(texts)]


def test_a_pool_with_more_allocations_than_fit_says_so_and_stays_below_the_limit() -> None:
    """Issue 4.8: past 20,000 addresses nothing breaks; the API server refuses objects above 1.5 MiB."""
    status = shown(pool("pool", ranged({"subnet": "10.0.0.0/8"})), *many(40_000))
    assert status["indexesTruncated"] is True
    assert 15_000 < len(status["indexes"]) < 40_000
    assert len(orjson.dumps(status)) < INDEXES_BYTES * 1.1
    assert status["conditions"][0]["status"] == "True"


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("reserved", [0, 12_000])
async def test_the_longest_status_is_taken_by_the_api_server(world: World, reserved: int) -> None:
    """Also beside a spec that is long itself: both count."""
    reservations = {
        f"kept-for-machine-{i}": Block(Family.V4, (11 << 24) + i, 32).address for i in range(reserved)
    }
    spec = ranged({"subnet": "10.0.0.0/7"}, preAllocations=reservations)
    stored = await world.create(pool("pool", spec, annotations=PAUSED))  # the operator leaves it to us
    status = shown(stored, *many(40_000))
    assert status["indexesTruncated"] is True
    assert len(status["indexes"]) > 5_000
    written = await world.edit(kinds.POOL, "pool", {"status": status}, "status")
    assert written["status"]["indexes"] == status["indexes"]


@pytest.mark.cluster
@pytest.mark.asyncio(loop_scope="session")
async def test_metrics_tell_the_use_of_a_pool_and_how_many_wait(world: World, operator: Operator) -> None:
    """Issue 4.8: the same counts as in the status."""
    await world.create(pool("pool", {**A, "preAllocations": {"v": "10.0.0.12"}}))
    await world.ask("c1")
    labels = f'{{dialect="metal3",namespace="{world.namespace}",pool="pool"}}'
    counts = {"": 3, "_used": 2, "_free": 0, "_reserved": 1}
    expected = {f"berth_pool_addresses{name}{labels} {count}.0" for name, count in counts.items()}
    before = await claims_told(operator)
    await world.ask_capi("m")
    await world.refused("waits")

    async def told() -> bool:
        return expected <= set(await metrics(operator))

    await eventually(told)
    after = await claims_told(operator)
    assert (after["Bound"] - before["Bound"], after["Waiting"] - before["Waiting"]) == (1, 1)


async def metrics(operator: Operator) -> list[str]:
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{operator.listening.metrics}/metrics")
        return (await answer.text()).splitlines()


async def claims_told(operator: Operator) -> Counter[str]:
    told = re.compile(r'berth_claims\{dialect="metal3",state="(.*)"\} (.*)')
    found = [match for line in await metrics(operator) if (match := told.fullmatch(line))]
    return Counter({state: int(float(count)) for state, count in (match.groups() for match in found)})


def test_a_huge_pool_is_counted_as_far_as_the_field_goes() -> None:
    """int64, where a /32 of IPv6 has 2^96 addresses."""
    status = shown(pool("pool", ranged({"subnet": "2001:db8::/32"})))
    assert status["ipAddresses"]["total"] == 2**63 - 1
