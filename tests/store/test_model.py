"""P1: both stores and a plain model of the rules in lock step, driven by hypothesis over a zone of six
addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.support.deep import budget
from tests.support.postgres import PostgresServer

from berth.leasing.decide import Refusal
from berth.leasing.holders import DAY_MS, Entry, Identity
from berth.leasing.model import Pool
from berth.net import parse_range
from berth.secret import Pepper, Secret
from berth.store import queries
from berth.store.clock_guard import ClockGuard, monotonic_ms
from berth.store.clusters import Order, release_cluster, undo
from berth.store.engine import UtcClock, connect
from berth.store.ledger import Ledger
from berth.store.migrate import migrate
from berth.store.requests import Granted, RegisterRequest, Released, ReleaseRequest
from berth.store.settlement import LedgerRules
from berth.store.sweep import Sweeper

POOL = "z/4"
RANGES = ("192.0.2.0-192.0.2.1", "198.51.100.0-198.51.100.3")
ORDER = ["192.0.2.0", "192.0.2.1", *(f"198.51.100.{last}" for last in range(4))]
PEPPER = Pepper({"k": b"x" * 32})
PENDING_MS = 120_000


@dataclass(slots=True)
class Held:
    secret: str
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)


class Model:
    """The rules as one would tell them, without a thought for speed."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.now = 0

    def post(self, who: str, request: dict[str, Any]) -> str:
        address = request["address"] or self._own(who, request)
        if address is None:
            return self._fresh(who, next((one for one in ORDER if one not in self.held), None), request)
        held = self.held.get(address)
        if held is None:
            return self._fresh(who, address if address in ORDER else "outside", request)
        if held.secret not in (request["secret"], request["new_secret"]):
            return "NoMatch"
        if request["new_secret"] and request["new_secret"] != held.secret:
            living = [name for name, one in held.entries.items() if self._lives(one)]
            if len(living) > 1:
                return "SeveralHolders"
            if living and living != [who]:
                return "OtherHolder"
            held.secret = request["new_secret"]
        self._enter(held, who, request)
        return f"updated {address}"

    def _own(self, who: str, request: dict[str, Any]) -> str | None:
        mine = [
            (one.entries[who]["expires"] is not None, -(one.entries[who]["expires"] or 0), address)
            for address, one in self.held.items()
            if who in one.entries and one.secret in (request["secret"], request["new_secret"])
        ]
        return min(mine)[2] if mine else None

    def _fresh(self, who: str, address: str | None, request: dict[str, Any]) -> str:
        if request["new_secret"]:
            return "NoMatch"
        if address is None:
            return "PoolExhausted"
        if address == "outside":
            return "PinOutside"
        self.held[address] = Held(request["secret"])
        self._enter(self.held[address], who, request)
        return f"registered {address}"

    def _enter(self, held: Held, who: str, request: dict[str, Any]) -> None:
        old = held.entries.get(who)
        new = {"days": request["days"], "deny": request["deny"], "expires": None, "before": None, "by": ""}
        if request["pending"]:
            until = self.now + PENDING_MS
            if old and (old["expires"] is None or old["expires"] > until):
                return
            new["expires"] = until
        held.entries[who] = new

    def delete(self, who: str, request: dict[str, Any]) -> str:
        held = self.held.get(request["address"] or "")
        if held is None or held.secret != request["secret"]:
            return "NoMatch"
        if who not in held.entries:
            return "NotHolder"
        old, due = held.entries[who], self.now + request["days"] * DAY_MS
        before = old["before"] if old["by"] else old["expires"]
        expires = due if old["expires"] is None else min(due, old["expires"])
        held.entries[who] = {
            "days": request["days"],
            "deny": request["deny"],
            "expires": expires,
            "before": before,
            "by": "holder",
        }
        return f"released {request['address']}"

    def release_cluster(self) -> None:
        for held in self.held.values():
            for one in held.entries.values():
                due = self.now + one["days"] * DAY_MS
                if not one["deny"] and (one["expires"] is None or due < one["expires"]):
                    one.update(before=one["expires"], expires=due, by="cluster")

    def undo(self) -> None:
        for held in self.held.values():
            for one in held.entries.values():
                if one["by"] == "cluster":
                    one.update(expires=one["before"], before=None, by="")

    def sweep(self) -> None:
        for address, held in list(self.held.items()):
            held.entries = {who: one for who, one in held.entries.items() if self._lives(one)}
            if not held.entries:
                del self.held[address]

    def _lives(self, entry: dict[str, Any]) -> bool:
        return entry["expires"] is None or bool(entry["expires"] > self.now)

    def picture(self) -> dict[str, Any]:
        return {
            address: {who: (one["days"], one["deny"], one["expires"]) for who, one in held.entries.items()}
            for address, held in self.held.items()
        }


class Frozen(UtcClock):
    """Time stands still but for what the machine moves."""

    def system_ms(self) -> int:
        return self.shift_ms


TABLES = ("holders", "addresses", "history", "pools", "marks", "duties")
EMPTY = "; ".join(f"DELETE FROM {table}" for table in TABLES)


class Store:
    """One engine behind the same face as the model; a ledger's life for each machine."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = Frozen()

    async def connect(self) -> None:
        self.engine = await connect(self.url, self.clock)
        await migrate(self.engine)

    async def open(self) -> None:
        self.clock.shift_ms = 0
        async with self.engine.transaction() as tx:
            await tx.script(EMPTY)
        self._context = Ledger.open(
            self.engine, LedgerRules(PEPPER, PENDING_MS), {POOL: Pool(POOL, tuple(map(parse_range, RANGES)))}
        )
        self.ledger = await self._context.__aenter__()
        guard = ClockGuard(lambda: monotonic_ms() + self.clock.shift_ms, "test")
        self.sweeper = Sweeper(self.ledger, guard, "test")

    async def close(self) -> None:
        await self._context.__aexit__(None, None, None)

    async def end(self) -> None:
        await self.engine.close()

    async def ask(self, request: RegisterRequest | ReleaseRequest) -> str:
        match await self.ledger.submit(request):
            case Granted(address, fresh):
                return f"{'registered' if fresh else 'updated'} {address}"
            case Released(address):
                return f"released {address}"
            case Refusal(reason):
                return str(reason)

    async def picture(self) -> dict[str, Any]:
        async with self.engine.transaction() as tx:
            records = [record async for record in queries.all_records(tx)]
        return {
            record.address.address: {
                row.entry.identity.service_name: (
                    row.entry.retention_days,
                    row.entry.deny,
                    row.entry.expires_at,
                )
                for row in record.holders
            }
            for record in records
        }


SERVICES = st.sampled_from(["a", "b", "c"])
SECRETS = st.sampled_from(["secret-one", "secret-two"])
WISHES = st.fixed_dictionaries(
    {
        "address": st.one_of(st.none(), st.sampled_from([*ORDER[:3], "203.0.113.1"])),
        "secret": SECRETS,
        "new_secret": st.one_of(st.none(), st.none(), SECRETS),
        "days": st.integers(0, 3),
        "deny": st.booleans(),
        "pending": st.booleans(),
    }
)


def run_machines(urls: list[str], most: settings) -> None:
    """All in one loop and on the same connections: making these for each would take most of the time."""
    loop, stores = asyncio.new_event_loop(), [Store(url) for url in urls]

    def all_of(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
        return [loop.run_until_complete(one) for one in work]

    all_of(store.connect() for store in stores)
    try:
        run_state_machine_as_test(machine(stores, all_of), settings=most)
    finally:
        all_of(store.end() for store in stores)
        loop.close()


def machine(stores: list[Store], all_of: Callable[..., list[Any]]) -> type[RuleBasedStateMachine]:
    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.stores = stores
            self.all(store.open() for store in self.stores)

        def all(self, work: Any) -> list[Any]:
            return all_of(work)

        def teardown(self) -> None:
            self.all(store.close() for store in self.stores)

        def request(
            self, kind: type[RegisterRequest | ReleaseRequest], who: str, request: dict[str, Any]
        ) -> Any:
            entry = Entry(Identity(who, "n", "cluster"), request["days"], request["deny"])
            secret, new = Secret(request["secret"]), request["new_secret"]
            if kind is ReleaseRequest:
                return ReleaseRequest(POOL, entry, secret, request["address"])
            fresh = Secret(new) if new and new != request["secret"] else None
            return RegisterRequest(POOL, entry, secret, request["address"], fresh, request["pending"])

        @rule(who=SERVICES, request=WISHES)
        def post(self, who: str, request: dict[str, Any]) -> None:
            if request["new_secret"] == request["secret"]:
                request = {**request, "new_secret": None}
            expected = self.model.post(who, request)
            asked = self.request(RegisterRequest, who, request)
            assert self.all(store.ask(asked) for store in self.stores) == [expected] * len(self.stores)

        @rule(who=SERVICES, request=WISHES)
        def delete(self, who: str, request: dict[str, Any]) -> None:
            expected = self.model.delete(who, request)
            asked = self.request(ReleaseRequest, who, request)
            assert self.all(store.ask(asked) for store in self.stores) == [expected] * len(self.stores)

        @rule()
        def release_the_cluster(self) -> None:
            self.model.release_cluster()
            self.all(release_cluster(store.engine, Order("cluster", "ror")) for store in self.stores)

        @rule()
        def undo_releases(self) -> None:
            self.model.undo()
            self.all(undo(store.engine, "cluster_id", "cluster") for store in self.stores)

        @rule()
        def sweep(self) -> None:
            self.model.sweep()
            self.all(store.sweeper.sweep() for store in self.stores)

        @rule(ms=st.sampled_from([1, PENDING_MS, DAY_MS, 2 * DAY_MS]))
        def wait(self, ms: int) -> None:
            self.model.now += ms
            for store in self.stores:
                store.clock.shift_ms += ms

        @invariant()
        def stores_and_model_show_the_same(self) -> None:
            pictures = self.all(store.picture() for store in self.stores)
            assert pictures == [self.model.picture()] * len(self.stores)
            for store in self.stores:
                self.all([store.ledger.refresh()])
                usage = store.ledger.usage()[POOL]
                assert (usage.total, usage.used) == (len(ORDER), len(self.model.held))

    return Machine


def test_sqlite_follows_the_model(tmp_path: Path) -> None:
    run_machines([f"sqlite:///{tmp_path}/model.db"], budget(30, steps=25))


@pytest.mark.postgres
def test_p1_both_stores_follow_the_model_in_lock_step(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: 200 machines. PostgreSQL's own time stands at zero here, so that only the machine's time passes."""
    monkeypatch.setattr("berth.store.postgres.NOW", "0::bigint")
    run_machines([f"sqlite:///{tmp_path}/model.db", postgres.database()], budget(200, steps=15))
