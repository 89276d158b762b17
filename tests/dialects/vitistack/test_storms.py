"""T14, T15, T19, T22, T23: lost answers, a store that hangs, failing webhooks, Services that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.faults.books import Books
from tests.faults.proxy import Cut, FaultProxy, Pass, Plan, Say, Verdict, Write
from tests.faults.store_auditor import store_right
from tests.support.killing import API_PENDING, PENDING_SECONDS, serves, settled
from tests.support.line import at_random, line
from tests.support.operator import eventually
from tests.support.refusing import Silent, is_theirs, refusing, until_refused
from tests.support.started import free_port
from tests.support.vitistack import Api, World, address_of, emptied, fresh, operating, service

from berth.control.webhooks import MUTATING, VALIDATING
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import NotFound, StatusError
from berth.kube import meta

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.faults,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
Object = dict[str, Any]
DEADLINE_SECONDS = 3.0
OTHERS = [f"plain-{number}" for number in range(14)]
WRITES = 2520  # of them, while each of four faults lasts


@pytest.fixture
def api_flags() -> tuple[str, ...]:
    return API_PENDING


async def asked_again(action: Callable[[], Awaitable[object]], seconds: float = 60) -> None:
    """As a user does, or a GitOps tool: until it is done."""

    async def is_done() -> bool:
        await action()
        return True

    await eventually(is_done, seconds)


async def empty(world: World, seconds: float = 60) -> None:
    async def is_empty() -> bool:
        return not world.api.of_namespace(world.namespace_id)

    assert await eventually(is_empty, seconds)


# T14


def spoiling(share: float, seed: int) -> Plan:
    """Writes to the API server refused, cut, or done without an answer."""
    random = Random(seed)

    async def before(write: Write) -> Verdict:
        faults: list[Verdict] = [Cut(), Say(429, "TooManyRequests", {"Retry-After": "0"}), Say(500, "")]
        spoiled = write.counts and "/admissionregistration" not in write.path and random.random() < share
        return random.choice(faults) if spoiled else Pass()

    async def after(write: Write) -> Verdict:
        return Cut() if write.counts and random.random() < share / 3 else Pass()

    return Plan(before, after)


async def test_lost_answers_cost_no_address(
    cluster: DevCluster, bare: World, tmp_path: Path, seed: int, tried: Callable[[int], None]
) -> None:
    """T14: 2,000 writes and calls, 12% and 25% of them refused, cut or done unheard: one address each."""
    names = [f"web-{number}" for number in range(160)]
    limit = asyncio.Semaphore(16)

    async def create(name: str) -> None:
        async with limit:
            await asked_again(lambda: _created(bare, name))

    async def deny(name: str, word: str) -> None:
        async with limit:
            await asked_again(lambda: bare.annotate(name, deny_external_cleanup=word))

    async with (
        store_right(Books(f"sqlite:///{bare.api.folder}/api.db"), tmp_path),
        FaultProxy(cluster, tmp_path).running() as proxy,
        line(bare.api.url) as (wire, url),
        operating(
            cluster,
            bare.api,
            kubeconfig=proxy.kubeconfig,
            api_url=url,
            vitistack_pending_seconds=PENDING_SECONDS,
        ),
    ):
        await serves(bare)
        proxy.plan, wire.before = spoiling(0.12, seed), at_random(0.25, seed)
        await asyncio.gather(*map(create, names))
        while (ops := len(proxy.writes) + wire.calls) < 2000:
            for word in ("true", "false"):
                await asyncio.gather(*(deny(name, word) for name in names[:80]))
        await asyncio.gather(*(bare.delete(name) for name in names[80:]))
        proxy.plan, wire.before = Plan(), at_random(0, 0)
        assert not await settled(bare)
        listed = [address_of(one) for one in await bare.services()]
        assert len(set(listed)) == len(listed) == 80
    assert wire.spoiled > 20
    tried(ops)


async def _created(world: World, name: str) -> None:
    """A refused or lost create may have been stored all the same."""
    try:
        await world.create(name)
    except StatusError:
        assert address_of(await world.get(name))


# T15


@contextmanager
def locked(api: Api) -> Iterator[None]:
    """Another writer holds the database."""
    with closing(sqlite3.connect(api.folder / "api.db", isolation_level=None, timeout=10)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


@contextmanager
def stopped(api: Api) -> Iterator[None]:
    """As under a disk that does not come back from fsync: it takes connections and never answers."""
    assert api.process is not None
    pid = api.process.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_store_that_hangs_is_answered_for_in_time(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T15: 10 creates with the database locked, 10 with an API that hangs; each has its answer within the
    deadline, and nothing is left of those that were refused.
    """
    async with operating(
        cluster,
        bare.api,
        webhook_deadline_seconds=DEADLINE_SECONDS,
        vitistack_pending_seconds=PENDING_SECONDS,
    ):
        await serves(bare)
        for word, hanging in (("locked", locked), ("stopped", stopped)):
            with hanging(bare.api):
                waited = await asyncio.gather(*(_held_up(bare, f"{word}-{n}") for n in range(10)))
                assert not await bare.services()
            # Both webhooks may use their time; the rest is for a slow machine.
            assert max(waited) < 2 * DEADLINE_SECONDS + 10, word
            tried(len(waited))
        assert not await settled(bare)
        await asked_again(lambda: bare.create("after"))


async def _held_up(world: World, name: str) -> float:
    """Seconds until one of our webhooks said that the IPAM-API gave no answer."""
    started = time.monotonic()
    error = await world.refusal(name)
    assert error.code in (503, 504), str(error)
    assert "service-v1.kb.io" in error.message
    return time.monotonic() - started


# T19


@asynccontextmanager
async def webhooks_at(world: World, url: str) -> AsyncIterator[None]:
    """Our registered webhooks, turned to somebody else while the operator is away."""
    before: list[tuple[Any, Object]] = []
    for resource, name in (
        (MUTATING, kinds.MUTATING_CONFIGURATION),
        (VALIDATING, kinds.VALIDATING_CONFIGURATION),
    ):
        found = await world.client.get(resource, name)
        path = found["webhooks"][0]["clientConfig"]["url"].rpartition("/")[2]
        hook = {**found["webhooks"][0], "timeoutSeconds": 1}
        hook["clientConfig"] = {**hook["clientConfig"], "url": f"{url}/{path}"}
        about = {"name": f"copy-{name}"}
        before.append((resource, about))
        await world.client.create(
            resource, {**found, "metadata": about, "webhooks": [{**hook, "name": f"copy.{hook['name']}"}]}
        )
    try:
        yield
    finally:
        for resource, about in before:
            await world.client.delete(resource, about["name"])


async def test_other_writes_do_not_feel_a_webhook_that_fails(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T19: gone, hanging, answering with an error, or with a certificate that is not its own; 10,000 writes
    of other Services pass meanwhile, no webhook is asked about one of them, and ours are refused and served
    afterwards.
    """
    silent = Silent()
    async with operating(cluster, bare.api) as operator:
        await serves(bare)
        await asyncio.gather(*(bare.create(name, type="ClusterIP") for name in OTHERS))
        hanging = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = hanging.sockets[0].getsockname()[1]
        lost = f"{operator.settings.webhook_url}/nowhere"
        # The API server itself has a certificate, but none that our CA signed.
        for url in (f"https://127.0.0.1:{free_port()}", f"https://127.0.0.1:{port}", lost, cluster.api_url):
            async with webhooks_at(bare, url):
                await eventually(lambda: _is_refused(bare), 60)
                asked_before = silent.asked
                slowest = await _write_others(bare)
                assert slowest < 10, f"I7: {url}"
                assert silent.asked == asked_before, "I7: a webhook was asked about others' Services"
                tried(1)
        hanging.close()
        assert silent.asked, "nobody asked the one that hangs"
        await asked_again(lambda: bare.create("ours"))


async def _is_refused(world: World) -> bool:
    try:
        await world.client.create(kinds.SERVICE, service("early", world.namespace))
    except StatusError:
        return True
    await world.delete("early")
    return False


async def _write_others(world: World) -> float:
    """Each of them is written again and again; the time of the slowest write."""
    return max(await asyncio.gather(*(_write(world, name) for name in OTHERS)))


async def _write(world: World, name: str) -> float:
    slowest = 0.0
    for number in range(WRITES // len(OTHERS)):
        started = time.monotonic()
        await world.patch({"metadata": {"labels": {"round": str(number)}}}, name)
        slowest = max(slowest, time.monotonic() - started)
    return slowest


# T22, T23


async def test_made_again_at_once_each_keeps_a_good_entry(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T22: 50 deletions, each followed by a creation of the same name at once, ten at a time."""
    names = [f"web-{number}" for number in range(10)]

    async def again(name: str) -> None:
        await bare.delete(name)
        await asked_again(lambda: bare.create(name))

    async with operating(cluster, bare.api, vitistack_pending_seconds=PENDING_SECONDS):
        await serves(bare)
        await asyncio.gather(*(bare.create(name) for name in names))
        for _ in range(5):
            await asyncio.gather(*map(again, names))
            tried(len(names))
        assert not await settled(bare)
        assert len(await bare.services()) == len(names)


@contextmanager
def away(api: Api) -> Iterator[None]:
    api.stop()
    try:
        yield
    finally:
        api.start()


async def _go(world: World, names: list[str]) -> None:
    await asyncio.gather(*(world.delete(name) for name in names))


async def _free(world: World) -> None:
    await empty(world)
    assert not await settled(world)


async def _noticed(world: World, names: list[str]) -> None:
    """The operator has tried to release each of them, could not, and said so."""

    async def is_told() -> bool:
        return all(["ReleasePending" in await world.events(name) for name in names])

    assert await eventually(is_told, 60, every=0.2)
    assert len(world.api.of_namespace(world.namespace_id)) == len(names)


async def test_what_goes_while_somebody_is_away_is_released(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T23: 30 deletions while the operator, the API or its database is away; free within a minute after, by
    another operator, or by the same one that could not release them.
    """
    names = [f"web-{number}" for number in range(10)]
    for fault in (None, away, locked):
        world = await fresh(bare)
        async with operating(cluster, world.api):
            await serves(world)
            await asyncio.gather(*(world.create(name) for name in names))
            if fault is not None:
                with fault(world.api):
                    await _go(world, names)
                    await _noticed(world, names)
                await _free(world)
        if fault is None:
            await _go(world, names)
            async with operating(cluster, world.api):
                await _free(world)
        await emptied(world)
        tried(len(names))


async def _keep(world: World, made: list[Object]) -> None:
    """After a pass of the controller, as others' Services come and go, each still has its address."""
    other = await fresh(world)
    await other.passed()
    for one in made:
        assert world.api.entries(address_of(one))[one["metadata"]["name"]].active
    await emptied(other)


async def test_a_finalizer_keeps_addresses(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T22: ten that another's finalizer holds; their addresses are theirs until the objects are gone."""
    async with operating(cluster, bare.api):
        await serves(bare)
        names = [f"held-{number}" for number in range(10)]
        made = [await bare.create(name, finalizers=["example.com/hold"]) for name in names]
        await _go(bare, names)
        assert all([meta.is_deleting(await bare.get(name)) for name in names])
        await _keep(bare, made)
        for name in names:
            await bare.patch({"metadata": {"finalizers": None}}, name)
        await empty(bare)
        tried(len(names))


async def _not_deleted(world: World, name: str) -> bool:
    try:
        await world.delete(name)
    except StatusError as error:
        return is_theirs(error)
    return False


async def test_a_refused_deletion_without_a_finalizer_keeps_addresses(
    cluster: DevCluster, bare: World, tried: Callable[[int], None]
) -> None:
    """T22: ten whose deletion another's webhook refuses; they keep their addresses until they may go."""
    async with operating(cluster, bare.api):
        await serves(bare)
        async with refusing(bare, "DELETE"):
            await bare.create("probe")
            await until_refused(lambda: bare.delete("probe"), lambda: bare.create("probe"))
            names = [f"kept-{number}" for number in range(10)]
            made = [await bare.create(name) for name in names]
            assert all([await _not_deleted(bare, name) for name in names])
            await _keep(bare, made)
            assert {one["metadata"]["name"] for one in await bare.services()} >= set(names)
        for one in await bare.services():
            await asked_again(partial(_deleted, bare, one["metadata"]["name"]))
        await empty(bare)
        tried(len(names))


async def _deleted(world: World, name: str) -> None:
    with suppress(NotFound):
        await world.delete(name)
