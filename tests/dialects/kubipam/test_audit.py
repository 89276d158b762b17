"""What is taken and nobody's comes back: after two sightings, by live reads, and not if it is too much."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from tests.support.kubipam import World
from tests.support.operator import eventually, gone, running

from berth.devcluster import DevCluster
from berth.dialects.kubipam import Kubipam
from berth.dialects.kubipam.crds import crds
from berth.dialects.kubipam.kinds import BUSY, FINALIZER, RANGE, READY, REQUEST
from berth.dialects.kubipam.orphans import AuditSettings
from berth.dialects.orphans import RELEASE_ORPHANS

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="session")]


@dataclass(slots=True)
class Clock:
    now: float = 1000.0
    asked: int = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now

    async def some_sweeps(self) -> None:
        """Every sweep asks what time it is."""
        until = self.asked + 6

        async def swept() -> bool:
            return self.asked >= until

        await eventually(swept)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def audited(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    """The operator with an audit that runs all the time, by a clock of the test's own, on its ranges only."""
    settings = AuditSettings(every_seconds=0.05, clock=clock)
    monkeypatch.setattr("berth.dialects.DIALECTS", (Kubipam(settings),))
    async with running(cluster, crds=crds(), dialects=("kubipam",), namespace=namespace) as operator:
        yield World(operator.client, namespace)


async def tear_out(world: World, *names: str) -> None:
    """Gone without us: all finalizers taken off by hand, while another's kept us from our part."""
    for name in names:
        both = {"metadata": {"finalizers": [FINALIZER, "example.org/in-use"]}}
        await world.client.patch(REQUEST, name, both, world.namespace)
        await world.delete(name)
        await world.client.patch(REQUEST, name, {"metadata": {"finalizers": None}}, world.namespace)
        await gone(world.client, REQUEST, name, world.namespace)


async def test_a_block_whose_request_was_torn_out_comes_back(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audited(cluster, namespace, clock, monkeypatch) as world:
        await world.range("10.0.0.0/31")
        await world.grants([32, 32])
        await tear_out(world, "r0")
        assert await world.granted("waiting") == "none"
        await clock.some_sweeps()
        clock.now += 89
        await clock.some_sweeps()
        assert (await world.status("waiting"))["state"] == BUSY
        clock.now += 2
        await world.becomes("waiting", state=READY, cidr="10.0.0.0/32")
        assert (await world.status("r1"))["cidr"] == "10.0.0.1/32"


async def test_what_is_pending_for_one_who_never_was_comes_back(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audited(cluster, namespace, clock, monkeypatch) as world:
        await world.range("10.0.0.0/30")
        await world.range_becomes(state=READY)
        status = {"taken": ["10.0.0.0-10.0.0.2"], "pending": ["nobody 10.0.0.0/32"], "released": ["no-one"]}
        await world.client.patch(RANGE, "p", {"status": status}, namespace, subresource="status")
        assert await world.grants([32, 32]) == "10.0.0.3/32 none"
        await clock.some_sweeps()
        clock.now += 91
        await world.becomes("r1", state=READY, cidr="10.0.0.0/32")
        await world.range_becomes(taken=["10.0.0.0", "10.0.0.3"], released=None)


async def test_what_is_in_use_and_not_on_the_page_is_put_there(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone edited the record; the requests' own status is the truth."""
    async with audited(cluster, namespace, clock, monkeypatch) as world:
        await world.range("10.0.0.0/29")
        await world.grants([32, 32])
        await world.client.patch(RANGE, "p", {"status": {"taken": []}}, namespace, subresource="status")
        await world.range_becomes(taken=["10.0.0.0-10.0.0.1"])
        assert await world.grants([32], start=2) == "10.0.0.2/32"


async def test_too_much_at_once_is_left_to_people(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audited(cluster, namespace, clock, monkeypatch) as world:
        await world.range("10.0.0.0/27")
        granted = await world.together({f"r{number}": None for number in range(24)})
        # With one more write the page says that these have theirs; what is pending goes back by itself.
        assert await world.grants([32], start=24) == "10.0.0.24/32"
        odd = [name for name, cidr in granted.items() if int(cidr.split(".")[3].split("/")[0]) % 2]
        await tear_out(world, *odd)
        await clock.some_sweeps()
        clock.now += 91
        text = "12 blocks are taken and nobody's: too many to give back unasked; see status.taken"
        await world.told("Warning", "audit", text)
        assert (await world.get_range())["status"]["taken"] == ["10.0.0.0-10.0.0.24"]
        # A person looks and says what is really taken.
        taken = [f"10.0.0.{number}" for number in range(0, 25, 2)]
        await world.client.patch(RANGE, "p", {"status": {"taken": taken}}, namespace, subresource="status")
        await world.ask("again", request="10.0.0.1")
        await world.becomes("again", state=READY, cidr="10.0.0.1/32")


async def test_a_persons_word_on_the_range_lets_just_those_go(
    cluster: DevCluster, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Event names it."""
    async with audited(cluster, namespace, clock, monkeypatch) as world:
        await world.range("10.0.0.0/27")
        granted = await world.together({f"r{number}": None for number in range(24)})
        # With one more write the page says that these have theirs; what is pending goes back by itself.
        assert await world.grants([32], start=24) == "10.0.0.24/32"
        odd = [name for name, cidr in granted.items() if int(cidr.split(".")[3].split("/")[0]) % 2]
        await tear_out(world, *odd)
        await clock.some_sweeps()
        clock.now += 91
        said: list[str] = []

        async def told() -> bool:
            said[:] = [text for _, reason, text in await world.events("p") if reason == "TooManyOrphans"]
            return bool(said)

        await eventually(told)
        agreed = {"metadata": {"annotations": {RELEASE_ORPHANS: said[0].rpartition("=")[2]}}}
        await world.client.patch(RANGE, "p", agreed, namespace)

        async def given_back() -> bool:
            taken = (await world.get_range())["status"]["taken"]
            return bool(taken == [f"10.0.0.{number}" for number in range(0, 25, 2)])

        await eventually(given_back)
