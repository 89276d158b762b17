"""Where records lie: many in one ConfigMap, each changed and taken away by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.support.cluster import make_namespace
from tests.support.operator import admin

from berth.control.batching import LoadGauge, Tasks
from berth.control.cache import Cache
from berth.control.informers import Informer
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds, record_store
from berth.dialects.vitistack.record_store import Cabinet, Filed, Records
from berth.dialects.vitistack.records import Record, watched
from berth.dialects.vitistack.service_annotations import Terms
from berth.errors import Conflict, StatusError
from berth.kube.client import Client
from berth.leasing.holders import Identity
from berth.metrics import Metrics
from berth.net import Address, Family

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]
MANY = 60


class Desk:
    """A replica's view: no watch, so it knows only what it wrote or looked at itself."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace
        self.cache = Cache()
        self.filed = Filed(self.cache)
        informer = Informer(watched(namespace), self.cache, client)
        self.records = Records(informer, namespace, Cabinet(self.filed, Metrics(), LoadGauge(), Tasks()))

    async def stored(self) -> list[dict[str, str]]:
        found = await self.client.list(kinds.CONFIG_MAP, self.namespace, label_selector=kinds.RECORD_LABEL)
        return [one.get("data") or {} for one in found.items]


@pytest_asyncio.fixture(loop_scope="session")
async def desk(cluster: DevCluster) -> AsyncIterator[Desk]:
    namespace = await make_namespace(cluster, "filing")
    async with admin(cluster) as client:
        yield Desk(client, namespace)


def record(number: int) -> Record:
    who = Identity(f"web-{number}", "n", "c")
    address = Address(Family.V4, 0x0A000000 + number)
    return Record("default", who, "inet", address, "default", "", Terms(), uid=f"u-{number}", until=9e9)


async def test_many_at_once_share_a_few_objects(desk: Desk) -> None:
    made = [record(number) for number in range(MANY)]
    await asyncio.gather(*map(desk.records.put, made))
    stored = await desk.stored()
    assert sum(map(len, stored)) == MANY
    assert len(stored) <= 5
    for one in made:
        assert desk.filed.seen(one.name) == one
        assert desk.filed.of_service("default", one.who.service_name) == [one]
        assert desk.filed.of_address(one.address) == [one]


async def test_each_is_changed_and_taken_away_by_itself(desk: Desk) -> None:
    await asyncio.gather(*(desk.records.put(record(number)) for number in range(MANY)))
    seen = [desk.filed.seen(record(number).name) for number in range(MANY)]
    found = [one for one in seen if one is not None]
    await asyncio.gather(*(desk.records.save(replace(one, key="k")) for one in found[:30]))
    await asyncio.gather(*(desk.records.drop(one) for one in found[30:]))
    assert sum(map(len, await desk.stored())) == 30
    keys = {one.key for one in desk.filed}
    assert keys == {"k"}
    await asyncio.gather(*(desk.records.drop(one) for one in list(desk.filed)))
    assert await desk.stored() == []
    assert not list(desk.filed)


async def test_what_another_replica_changed_is_not_overwritten(desk: Desk) -> None:
    """One of a group does not fit: only that one fails."""
    await asyncio.gather(*(desk.records.put(record(number)) for number in range(3)))
    other = Desk(desk.client, desk.namespace)
    for place in {one.place for one in desk.filed}:
        other.cache.put(await desk.client.get(kinds.CONFIG_MAP, place, desk.namespace))
    theirs = other.filed.seen(record(1).name)
    assert theirs is not None
    await other.records.save(replace(theirs, key="theirs"))
    mine = [one for one in (desk.filed.seen(record(number).name) for number in range(3)) if one is not None]
    found = await asyncio.gather(
        *(desk.records.save(replace(one, key="mine")) for one in mine), return_exceptions=True
    )
    assert [type(one) for one in found] == [type(None), Conflict, type(None)]
    before = await desk.records.put(replace(record(1), key="again"))
    assert before is not None
    assert before.key == "theirs"


async def test_what_was_emptied_is_taken_away(desk: Desk) -> None:
    """Whoever emptied it may have been cut off before that."""
    await desk.records.put(record(1))
    seen = desk.filed.seen(record(1).name)
    assert seen is not None
    emptied = {"data": {seen.name: None}}
    desk.cache.put(await desk.client.patch(kinds.CONFIG_MAP, seen.place, emptied, desk.namespace))
    await desk.records.drop(seen)  # done already, by someone whose answer was lost
    await desk.records.tidy()
    assert await desk.stored() == []


async def test_one_that_is_gone_is_written_anew(desk: Desk) -> None:
    await desk.records.put(record(1))
    seen = desk.filed.seen(record(1).name)
    assert seen is not None
    await desk.client.delete(kinds.CONFIG_MAP, seen.place, desk.namespace)
    assert await desk.records.put(replace(record(1), key="again")) is None
    assert [one.key for one in desk.filed] == ["again"]
    await desk.records.drop(seen)  # of a place that is no more
    assert [one.key for one in desk.filed] == ["again"]


async def test_large_ones_share_no_more_than_fits(desk: Desk) -> None:
    """One after the other is written where two would be more than a ConfigMap may have."""
    made = [replace(record(number), key="k" * 120_000) for number in range(20)]
    made += [record(number) for number in range(20, 26)]
    await asyncio.gather(*map(desk.records.put, made))
    stored = await desk.stored()
    assert sum(map(len, stored)) == len(made)
    assert max(sum(map(len, data.values())) for data in stored) < 1024 * 1024


async def test_nobody_is_refused_for_what_another_wrote(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too much for the API server all the same: each is written alone, and one that is too large fails."""
    monkeypatch.setattr(record_store, "TOGETHER_BYTES", 1 << 30)
    made = [replace(record(0), key="k" * 1_200_000), *(record(number) for number in range(1, 9))]
    first = asyncio.create_task(desk.records.put(record(9)))  # while it is written the others gather
    await asyncio.sleep(0)
    found = await asyncio.gather(*map(desk.records.put, made), return_exceptions=True)
    await first
    assert [isinstance(one, StatusError) for one in found] == [True, *[False] * 8]
    assert sum(map(len, await desk.stored())) == 9
