"""Another cluster, or whoever else reaches the IPAM-API: what it tries, and that it gets nothing by it."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from tests.central.faults.telling import A, B, report
from tests.support.central import (
    CLUSTER,
    OTHER_SECRET,
    Options,
    Reply,
    Seconds,
    World,
    request_body,
    running,
)

from berth.central import inventory
from berth.central.integrations.disk_queue import DiskQueue
from berth.central.integrations.event_log import EventLog
from berth.central.settings import ApiLimits
from berth.store.newcomers import Newcomers
from berth.store.operators import EPOCHS, Beat
from berth.store.sighting import Sighting

Start = Callable[..., AbstractAsyncContextManager[World]]
EVIL = "evil-cluster"


@pytest.fixture
def start(database: str, tmp_path: Path) -> Start:
    def begin(options: Options | None = None) -> AbstractAsyncContextManager[World]:
        return running(database, tmp_path / "pepper", options)

    return begin


@pytest_asyncio.fixture
async def world(start: Start) -> AsyncIterator[World]:
    async with start() as one:
        yield one


def listed(service: str, address: str, **changes: Any) -> dict[str, Any]:
    return request_body(service, address=address, **changes)


async def beat(world: World, sequence: int, **changes: Any) -> Reply:
    body = {"cluster_id": CLUSTER, "epoch": "one", "sequence": sequence, "alive_ms": 10_000}
    return await world.send("POST", "/v2/heartbeat", body | changes)


async def kept(world: World) -> tuple[int, int]:
    """How many operators the database remembers, and the bytes of what they listed."""
    async with world.ledger.engine.snapshot() as tx:
        row = (await tx.rows("SELECT count(*), coalesce(sum(length(missing)), 0) FROM operators"))[0]
    return int(row[0]), int(row[1])


async def test_reading_out_and_freezing_a_cluster_with_an_address_of_another(world: World) -> None:
    """An address of his own opens nothing of the victim's: nothing is told, noted or frozen."""
    await world.post("victim", address=A)
    await world.post("mine", address=B, cluster=EVIL, secret=OTHER_SECRET)
    for item in (listed("mine", B, secret=OTHER_SECRET), listed("victim", A, secret=OTHER_SECRET)):
        reply = await report(world, 1, item, listed("free", "83.118.168.99"), epoch="evil")
        assert reply.body["counted"] is reply.body["frozen"] is False
        assert not any(reply.body[kind] for kind in ("adopted", "missing", "unknown", "conflict"))
    assert await kept(world) == (0, 0)
    await report(world, 1, listed("victim", A))
    await report(world, 2, listed("mine", B, secret=OTHER_SECRET), epoch="evil")
    assert (await world.delete("victim", address=A)).status == 200


async def test_keeping_a_cluster_frozen_with_heartbeats_alone(world: World) -> None:
    """A heartbeat counts only for a process whose report has counted."""
    await world.post("victim", address=A)
    await report(world, 1, listed("victim", A))
    stranger = await beat(world, 1, epoch="evil")
    assert (stranger.status, stranger.body["counted"], stranger.body["frozen"]) == (200, False, False)
    assert (await kept(world))[0] == 1
    assert (await world.delete("victim", address=A)).status == 200


async def test_guessing_a_secret_without_naming_the_address(start: Start) -> None:
    """Past the limit nothing is compared, and no fresh address is spent; his own ones do not begin the count
    anew.
    """
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(wrong_secrets=5), seconds=seconds)) as world:
        await world.post("victim", address=A)
        statuses = []
        for number in range(10):
            statuses.append((await world.post("victim", secret=f"guess-{number:04}")).status)
            if number < 4:  # this one opens what the guess has got
                assert (await world.post("victim", secret=f"guess-{number:04}")).status == 200
        assert statuses == [200] * 5 + [429] * 5
        calls = [
            {"method": "POST", "body": request_body("victim", secret=f"batch-{n:04}")} for n in range(256)
        ]
        many = await world.send("POST", "/v2/batch", {"calls": calls})
        assert {one["status"] for one in many.body["answers"]} == {429}
        assert (await world.post("victim")).status == 429, "the right one was told from a wrong one"
        assert len(await world.stored()) == 6
        seconds.now += 60
        assert (await world.post("victim")).address == A


async def test_guessing_in_one_batch_without_naming_the_address(start: Start) -> None:
    """Only a crowd's worth is under way at once; after it the count stands."""
    async with start(Options(limits=ApiLimits(wrong_secrets=5))) as world:
        await world.post("victim", address=A)
        calls = [
            {"method": "POST", "body": request_body("victim", secret=f"batch-{n:04}")} for n in range(256)
        ]
        many = await world.send("POST", "/v2/batch", {"calls": calls})
        assert [one["status"] for one in many.body["answers"]].count(429) >= 256 - 64
        assert (await world.post("victim")).status == 429


async def test_telling_the_right_secret_by_a_full_zone(start: Start) -> None:
    """Where nothing is free a wrong guess is refused, and counts all the same."""
    zones = "zones: [{name: inet, ipv4: [83.118.168.10/32]}]"
    async with start(Options(zones=zones, limits=ApiLimits(wrong_secrets=5))) as world:
        await world.post("victim", address=A)
        statuses = [(await world.post("victim", secret=f"guess-{n:04}")).status for n in range(7)]
        assert statuses == [503] * 5 + [429] * 2


async def test_silencing_a_clusters_heartbeat_by_an_address_it_lists(start: Start) -> None:
    """The address that was guessed at is left out of the report as a conflict; the rest counts."""
    async with start(Options(limits=ApiLimits(wrong_secrets=5))) as world:
        await world.post("victim", address=A)
        await world.post("theirs", address=B, cluster=EVIL, secret=OTHER_SECRET)
        both = (listed("victim", A), listed("gone", B))
        reasons = []
        for sequence in range(1, 9):
            reply = await report(world, sequence, *both)
            assert (reply.status, reply.body["counted"], reply.body["unknown"]) == (200, True, [])
            reasons += [one["reason"] for one in reply.body["conflict"]]
        assert reasons == ["NoMatch"] * 5 + ["TooManyRequests"] * 3


async def test_paths_that_do_not_exist_count_under_the_rate(start: Start) -> None:
    """Every route does, but what tells that the server lives; probes have a share of their own."""
    async with start(Options(limits=ApiLimits(rate_per_second=1), seconds=Seconds())) as world:
        paths = ["/nothing", "/", "/swagger/index.html", "/openapi.json", "/v2/address"]
        assert [(await world.send("GET", path)).status for path in paths] == [404, 200, 200, 429, 429]
        probes = [
            (await world.send("GET", path)).status for path in ("/readyz", "/metrics", "/readyz", "/readyz")
        ]
        assert probes == [200, 200, 200, 429]
        assert {(await world.send("GET", "/healthz")).status for _ in range(20)} == {200}


async def test_filling_splunks_queue_with_long_requests(start: Start, tmp_path: Path) -> None:
    """What a client chooses freely is cut, and the queue is full at so many bytes."""
    lost: list[int] = []
    spool = DiskQueue(tmp_path / "queue.db", 100_000, lost.append, limit_bytes=100_000)
    try:
        async with start(Options(journal=EventLog(spool.add))) as world:
            for _ in range(100):
                await world.send("GET", "/" + "a" * 4000, headers={"User-Agent": "b" * 4000})
                await spool.store()
        events = [orjson.loads(body)["event"] for _, body in await spool.oldest(1000)]
        assert {len(event["path"]) for event in events} == {200}
        assert {len(event.get("user_agent", "")) for event in events} == {0, 200}
        assert sum(len(body) for _, body in await spool.oldest(1000)) <= 100_000
        assert 100 < len(events) < 200
        assert sum(lost) == 200 - len(events)
    finally:
        await spool.close()
    again = DiskQueue(tmp_path / "queue.db", 100_000, lost.append, limit_bytes=100_000)
    again.add({"event": "x" * 1000})
    await again.store()
    assert again.length == len(events), "the bytes of an earlier process are not counted"
    first = (await again.oldest(3))[-1][0]
    await again.remove(first)
    again.add({"event": "x" * 1000})
    await again.store()
    assert again.length == len(events) - 3 + 1
    await again.close()
    assert (tmp_path / "queue.db").stat().st_mode & 0o077 == 0


async def test_filling_the_database_with_reports(world: World) -> None:
    """Invented clusters leave nothing, further epochs push earlier ones out, and a long list is a few
    digests.
    """
    for number in range(20):
        await report(world, 1, listed("x", A, cluster=f"c{number}"), cluster_id=f"c{number}")
    assert await kept(world) == (0, 0)
    await world.post("mine", address=A)
    many = [listed(f"s{n}", f"10.1.{n // 250}.{n % 250}", zone="hnet-private") for n in range(3000)]
    for number in range(12):
        assert (await report(world, 1, listed("mine", A), *many, epoch=f"e{number}")).body["counted"]
    rows, size = await kept(world)
    assert rows == EPOCHS
    assert size < EPOCHS * 8_000


async def test_filling_the_memory_with_invented_clusters() -> None:
    """The oldest is forgotten."""
    newcomers = Newcomers(most=10)
    for number in range(100):
        newcomers.heard(Beat(f"c{number}", "e", 1), Sighting.of(["x"]))
    assert len(newcomers) == 10
    assert newcomers.know(Beat("c99", "e", 2))
    assert not newcomers.know(Beat("c0", "e", 2))


async def test_a_large_report_is_paid_for_and_holds_nobody_up(start: Start) -> None:
    """20,000 registrations pass under a small rate; the sender's next request waits; nobody else does."""
    seconds = Seconds()
    async with start(Options(limits=ApiLimits(rate_per_second=2), seconds=seconds)) as world:
        items = [listed(f"s{n}", f"10.1.{n // 250}.{n % 250}", zone="hnet-private") for n in range(20_000)]
        body = orjson.dumps({"cluster_id": CLUSTER, "epoch": "one", "sequence": 1, "addresses": items})
        before = time.process_time()
        inventory.report(body, world.api.config.zones)
        parsing = time.process_time() - before  # that long the loop stood still, on a machine like this
        async with stops() as longest:
            status, answer = await asyncio.to_thread(posted, world.url + "/v2/inventory", body)
        assert (status, len(orjson.loads(answer)["missing"])) == (200, 20_000)
        assert longest() < parsing / 4
        assert (await world.post()).status == 429
        seconds.now += 11
        assert (await world.post()).status == 200


def posted(url: str, body: bytes) -> tuple[int, bytes]:
    """From a thread: the event loop that is watched has nothing to do with sending."""
    with urllib.request.urlopen(urllib.request.Request(url, body), timeout=60) as response:
        return response.status, response.read()


@asynccontextmanager
async def stops() -> AsyncIterator[Callable[[], float]]:
    """How long the event loop stood still at most, in this process's own time: others use the machine too."""
    most = 0.0

    async def watch() -> None:
        nonlocal most
        while True:
            before = time.process_time()
            await asyncio.sleep(0.001)
            most = max(most, time.process_time() - before)

    task = asyncio.create_task(watch())
    try:
        yield lambda: most
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_releasing_as_the_first_to_be_heard_after_an_outage(start: Start) -> None:
    """A copy that comes back before the original finds the cluster as frozen as it was."""
    both = (listed("a", A),)
    async with start() as world:
        await world.post("a", address=A)
        for epoch in ("original", "copy"):
            await report(world, 1, *both, epoch=epoch, alive_ms=10_000)
        assert (await world.delete("a", address=A)).status == 409
    async with start() as world:  # nobody was there to hear the original, for an hour
        world.advance(seconds=3600)
        assert (await world.delete("a", address=A)).status == 409
        assert (await beat(world, 2, epoch="copy")).body["frozen"]
        assert (await world.delete("a", address=A)).status == 409
        for sequence in range(3, 6):
            await world.listen(seconds=10)
            await beat(world, sequence, epoch="copy")
        assert (await world.delete("a", address=A)).status == 200
