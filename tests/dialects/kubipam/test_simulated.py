"""The issue's property, on whole operators: any sequence of grants and releases of mixed lengths never
overlaps, and after all are released the range is whole again. And orders of events no real server plays on
demand: a backup that comes back, a range made anew under a waiting write."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random, seed
from typing import Any

import pytest
from tests.dialects.kubipam.simulation import NAMESPACE, Server, Simulated, cidr_of, on_fake_time, operators
from tests.support import virtual
from tests.support.deep import FACTOR

from berth.dialects.kubipam.kinds import BUSY, DELETING, FINALIZER, RANGE, READY, REQUEST
from berth.dialects.kubipam.translate import block_of, read_range
from berth.errors import NotFound
from berth.kube import meta
from berth.kube.resource import Resource
from berth.leasing import Claim, Refusal, Space, decide
from berth.net import RangeSet, parse_block, parse_range

SPACES: tuple[tuple[list[str], int, list[str]], ...] = (
    (["10.0.0.0/27", "10.0.0.40-10.0.0.50"], 32, ["10.0.0.7", "10.0.0.8/30", "10.9.9.9"]),
    (["fd00::/123", "fd00::28-fd00::32"], 128, ["fd00::7", "fd00::8/126", "10.0.0.1"]),
)
SOON = 30.0  # of the loop's own seconds, and too soon for the audit: nothing may be left for it


@pytest.fixture(autouse=True)
def fake_time(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fake_time(monkeypatch)


def status(server: Server, name: str = "p") -> dict[str, Any]:
    return server.find(RANGE, name).get("status") or {}


def taken(server: Server) -> RangeSet:
    return RangeSet(map(parse_range, status(server).get("taken") or ()))


def shown(server: Server) -> RangeSet:
    return RangeSet(block.range for one in server.all(REQUEST) if (block := block_of(one)) is not None)


@pytest.mark.parametrize("number", range(20 * FACTOR))
def test_any_sequence_of_grants_and_releases(number: int) -> None:
    virtual.run(play(number))


def opened(number: int) -> tuple[Random, Server, int, list[str]]:
    """The world of one number: its dice, a range of either family and mode, and what may be asked of it."""
    seed(number)
    random, server = Random(number), Server()
    ranges, width, pins = SPACES[number % 2]
    server.create(RANGE, "p", {"ranges": ranges, "mode": random.choice(["FirstMatch", "RoundRobin"])})
    return random, server, width, pins


async def play(number: int) -> None:
    """Three operators that lag, lose answers and die; requests of every kind under few names."""
    random, server, width, pins = opened(number)
    async with operators(server, random, 3, loss=random.choice([0.0, 0.1])) as running:
        for _ in range(40):
            for one in running:
                one.lag = random.choice([0.0, 0.05, 1.0])
            await some_acts(server, random, width, pins)
            if random.random() < 0.05:
                await replace_one(running, server, random)
        calm(running)
        await asyncio.sleep(SOON)
        check(server)
        await falls_silent(server)
        for request in server.all(REQUEST):
            server.delete(REQUEST, request["metadata"]["name"])
        await asyncio.sleep(SOON)
        assert server.all(REQUEST) == []
        assert status(server)["taken"] == []
        assert not status(server).get("pending")


async def some_acts(server: Server, random: Random, width: int, pins: list[str]) -> None:
    for _ in range(random.choice([1, 1, 6])):
        act(server, random, width, pins)
    await asyncio.sleep(random.choice([0.0, 0.1, 0.5]))


def act(server: Server, random: Random, width: int, pins: list[str]) -> None:
    name = f"r{random.randrange(24)}"
    try:
        server.find(REQUEST, name)
    except NotFound:
        pin = {"request": random.choice(pins)} if random.random() < 0.2 else {}
        server.ask(name, size=random.choice([width, width, width - 1, width - 2, width - 4]), **pin)
        return
    if random.random() < 0.5:
        server.delete(REQUEST, name)
    elif random.random() < 0.1 and not meta.is_deleting(server.find(REQUEST, name)):
        server.slip(name)


async def replace_one(running: list[Simulated], server: Server, random: Random) -> None:
    """Killed wherever it was; the next one starts from what is stored."""
    at = random.randrange(len(running))
    await running[at].stop()
    running[at] = Simulated(server, random, loss=running[at].link.loss)
    running[at].start()


def calm(running: list[Simulated]) -> None:
    for one in running:
        one.link.loss, one.lag = 0.0, 0.05


async def falls_silent(server: Server) -> None:
    """I5: no write for a minute after everything is settled."""
    before = server.revision
    await asyncio.sleep(60)
    assert server.revision == before


def check(server: Server) -> None:
    """I2: the page is what requests show. I4: each has a state, and whoever waits waits for a reason."""
    assert taken(server) == shown(server)
    space = Space(read_range(server.find(RANGE, "p")).pool)
    for request in server.all(REQUEST):
        if (block := block_of(request)) is not None:
            space.take(block, meta.uid(request))
    for request in server.all(REQUEST):
        state = (request.get("status") or {}).get("state")
        assert state == (READY if cidr_of(request) else BUSY)
        if state == BUSY:
            spec = request["spec"]
            pin = parse_block(spec["request"]) if "request" in spec else None
            wish = Claim("x", pin=pin) if pin else Claim("x", length=spec["size"])
            assert isinstance(decide(wish, (space,)), Refusal), request


# What was there before


def holder(server: Server, name: str, cidr: str, *, going: bool = False, **spec: Any) -> dict[str, Any]:
    """A request that holds a block, as upstream left it; put there without asking whether others have it."""
    found = server.find(REQUEST, server.ask(name, **spec)["metadata"]["name"])
    found["metadata"]["finalizers"] = [FINALIZER]
    found["status"] = {"cidr": cidr, "state": READY}
    if going:
        found["metadata"]["deletionTimestamp"] = "now"
    server.objects[REQUEST.plural, NAMESPACE, name] = found
    server.shown[meta.uid(found)] = cidr
    return found


def test_what_went_while_nobody_looked_is_free_at_once() -> None:
    """T23: an installation of upstream whose requests were all being deleted when we came. Their blocks are
    not put on the page by a list that still names them."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/27"]})
        server.edit(RANGE, "p", metadata={"finalizers": [FINALIZER]}, status={"state": READY})
        for number in range(20):
            holder(server, f"r{number}", f"10.0.0.{number}/32", going=True)
        async with operators(server, Random(3)):
            await asyncio.sleep(5)
            assert server.all(REQUEST) == []
            assert status(server)["taken"] == []

    virtual.run(main())


def test_a_block_over_two_others_leaves_both_to_their_holders() -> None:
    """Upstream granted a /30 over two single addresses; the /30 goes, and neither of them is free."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/29"]})
        for name, cidr in (("a", "10.0.0.0/32"), ("b", "10.0.0.2/32"), ("c", "10.0.0.0/30")):
            holder(server, name, cidr)
        async with operators(server, Random(0)):
            await asyncio.sleep(1)
            server.delete(REQUEST, "c")
            await asyncio.sleep(1)
            assert status(server)["taken"] == ["10.0.0.0", "10.0.0.2"]

    virtual.run(main())


def test_who_asks_from_another_namespace_counts_for_an_operator_of_one() -> None:
    """K-089 with `--namespace`: its block is on a page made anew, and the range stays for it."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/29"]}, "infra")
        held = server.create(REQUEST, "r", {"ipam": {"name": "p", "namespace": "infra"}}, "app")
        server.patch(REQUEST, "r", {"status": {"cidr": "10.0.0.0/32", "state": READY}}, "app")
        async with operators(server, Random(0), namespace="infra"):
            await asyncio.sleep(1)
            assert server.find(RANGE, "p", "infra")["status"]["taken"] == ["10.0.0.0"]
            server.delete(RANGE, "p", "infra")
            await asyncio.sleep(5)
            assert server.find(RANGE, "p", "infra")["status"]["state"] == DELETING
            server.delete(REQUEST, held["metadata"]["name"], "app")
            await asyncio.sleep(5)
            assert server.all(RANGE) == []

    virtual.run(main())


# A backup comes back


def test_a_request_that_a_backup_brings_back_is_served() -> None:
    """T11: it was seen to go, and is there again under its UID."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/29"]})
        async with operators(server, Random(0)) as (operator,):
            await asyncio.sleep(1)
            server.ask("r")
            backup, revision = dict(server.objects), server.revision
            await asyncio.sleep(1)
            assert cidr_of(server.find(REQUEST, "r"))
            server.delete(REQUEST, "r")
            await asyncio.sleep(1)
            assert server.all(REQUEST) == []
            server.restore(backup, revision)
            operator.relist(RANGE, REQUEST)
            await asyncio.sleep(5)
            assert cidr_of(server.find(REQUEST, "r"))
            assert taken(server) == shown(server)

    virtual.run(main())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("number", range(10 * FACTOR))
def test_any_sequence_with_a_backup_restored_in_it(number: int, count: int) -> None:
    """T11: range and requests come back one before the other, to operators that know what was later."""
    virtual.run(play_restored(number, count))


@pytest.mark.parametrize("number", [202, 298, 486, 1541])
def test_two_operators_and_a_restored_backup_that_were_wrong_once(number: int) -> None:
    """What was pending in the past that is gone was delivered, and a finalizer taken off who is back."""
    virtual.run(play_restored(number, 2))


async def play_restored(number: int, count: int) -> None:
    random, server, width, pins = opened(number)
    async with operators(server, random, count) as running:
        for _ in range(20):
            await some_acts(server, random, width, pins)
        backup, revision = deepcopy(server.objects), server.revision
        for _ in range(15):
            await some_acts(server, random, width, pins)
        server.restore(backup, revision)
        watches = [(one, resource) for one in running for resource in (RANGE, REQUEST)]
        for one, resource in random.sample(watches, len(watches)):
            one.relist(resource)
            await asyncio.sleep(random.choice([0.0, 0.02, 0.3]))
        for _ in range(10):
            await some_acts(server, random, width, pins)
        await asyncio.sleep(200)  # what was granted or released meanwhile is the audit's to find
        check(server)


# What another operator left when it died for good


def left(server: Server, **page: Any) -> None:
    """The page as another operator wrote it last."""
    server.edit(RANGE, "p", status={**page, "edition": "theirs"})


def test_a_second_block_that_a_dead_operator_granted_goes_back() -> None:
    """It had not seen that the request has one, and did not live to hear its status write refused."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/29"]})
        async with operators(server, Random(0)):
            held = server.ask("held")
            await asyncio.sleep(1)
            server.ask("next")  # with this the first is not pending any more
            await asyncio.sleep(1)
            assert taken(server) == shown(server)
            left(server, taken=["10.0.0.0-10.0.0.2"], pending=[f"{meta.uid(held)} 10.0.0.2/32"])
            await asyncio.sleep(5)
            assert cidr_of(server.find(REQUEST, "held")) == "10.0.0.0/32"
            assert taken(server) == shown(server)

    virtual.run(main())


def test_who_waits_gets_what_a_dead_operator_granted_it() -> None:
    """It released the holder's block and granted it on, and did not live to write who has it now."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.1"]})
        async with operators(server, Random(0)):
            holder = server.ask("holder")
            await asyncio.sleep(1)
            waiting = server.ask("waiting")
            await asyncio.sleep(1)
            assert server.find(REQUEST, "waiting")["status"]["state"] == BUSY
            pending = [f"{meta.uid(waiting)} 10.0.0.1/32"]
            left(server, taken=["10.0.0.1"], pending=pending, released=[meta.uid(holder)])
            tear_out(server, REQUEST, "holder")
            await asyncio.sleep(5)
            assert cidr_of(server.find(REQUEST, "waiting")) == "10.0.0.1/32"

    virtual.run(main())


# Under the same name


@pytest.mark.parametrize("number", range(5 * FACTOR))
def test_range_and_request_made_anew_under_passes_that_still_run(number: int) -> None:
    """K-102: torn out and made again while operators still write for those before. Identity is the UID."""

    async def main() -> None:
        seed(number)
        random, server = Random(number), Server()
        async with operators(server, random, 2):
            for turn in range(8):
                server.create(RANGE, "p", {"ranges": [f"10.0.{turn}.0/30"]})
                server.ask("r")
                await asyncio.sleep(random.uniform(0.0, 0.4))
                if turn < 7:
                    tear_out(server, REQUEST, "r")
                    tear_out(server, RANGE, "p")
            await asyncio.sleep(20)
            mine = cidr_of(server.find(REQUEST, "r"))
            assert parse_block("10.0.7.0/30").covers(parse_block(mine))
            # What was granted to one that is gone, in the last moment, is the audit's.
            await asyncio.sleep(300)
            assert cidr_of(server.find(REQUEST, "r")) == mine
            assert taken(server) == shown(server)

    virtual.run(main())


def tear_out(server: Server, resource: Resource, name: str) -> None:
    server.edit(resource, name, metadata={"finalizers": None})
    server.delete(resource, name)


# The clock


def test_a_freed_block_is_granted_within_a_second() -> None:
    """K-088, by the clock of the loop."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.1"]})
        server.ask("holder")
        async with operators(server, Random(0)):
            await asyncio.sleep(1)
            server.ask("waiting")
            await asyncio.sleep(1)
            assert server.find(REQUEST, "waiting")["status"]["state"] == BUSY
            server.delete(REQUEST, "holder")
            await asyncio.sleep(1)
            assert cidr_of(server.find(REQUEST, "waiting")) == "10.0.0.1/32"

    virtual.run(main())


def test_two_hundred_that_waited_are_served_within_five_seconds() -> None:
    """T33, by the clock of the loop: they are not served one after the other, and waiting cost no write."""

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.0/24"]})
        server.ask("holder", size=24)
        async with operators(server, Random(0)):
            await asyncio.sleep(1)
            for number in range(200):
                server.ask(f"r{number}")
            await asyncio.sleep(10)
            assert [one["status"]["state"] for one in server.all(REQUEST)].count(BUSY) == 200
            await falls_silent(server)
            server.delete(REQUEST, "holder")
            await asyncio.sleep(5)
            assert [one["status"]["state"] for one in server.all(REQUEST)] == [READY] * 200
            assert status(server)["taken"] == ["10.0.0.0-10.0.0.199"]

    virtual.run(main())


def test_who_missed_every_call_looks_again_after_two_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-088: at the latest."""
    monkeypatch.setattr("berth.dialects.pool.Desk._freed", lambda desk, block: None)

    async def main() -> None:
        server = Server()
        server.create(RANGE, "p", {"ranges": ["10.0.0.1"]})
        server.ask("holder")
        async with operators(server, Random(0)):
            await asyncio.sleep(1)
            server.ask("waiting")
            await asyncio.sleep(1)
            server.delete(REQUEST, "holder")
            await asyncio.sleep(80)
            assert server.find(REQUEST, "waiting")["status"]["state"] == BUSY
            await asyncio.sleep(80)
            assert cidr_of(server.find(REQUEST, "waiting")) == "10.0.0.1/32"

    virtual.run(main())
