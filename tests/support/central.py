"""The IPAM-API in this process, on a real socket and a real store, with a clock that tests may move."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from berth.central.app import Config, IpamApi
from berth.central.identity import Identities, Tokens
from berth.central.integrations.event_log import EventLog
from berth.central.metrics import ApiMetrics
from berth.central.settings import ApiLimits
from berth.central.sweep import count, sweep_once
from berth.central.zones import EXAMPLE, parse_zones
from berth.leasing.holders import DAY_MS, Entry
from berth.secret import Pepper, load_pepper
from berth.store import rows
from berth.store.clock_guard import ClockGuard, monotonic_ms
from berth.store.engine import UtcClock, connect
from berth.store.heartbeats import Heartbeats
from berth.store.ledger import Ledger
from berth.store.migrate import migrate
from berth.store.operators import LISTENING_MS
from berth.store.settlement import LedgerRules
from berth.store.sweep import Sweeper, Swept

SECRET = "SuperSecret"
OTHER_SECRET = "AnotherSecret"
TOKEN = "cluster-token-1"
X = "ingress_inet"
NAMESPACE = "467579ae-b8d5-4524-9ce8-bcb66ee02ce0"
CLUSTER = "0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def address(self) -> str:
        return str(self.body.get("address", ""))


def request_body(service: str = X, **changes: Any) -> dict[str, Any]:
    """The document's body; `retention`, `deny`, `cluster`, `namespace` and `uid` go to the service."""
    who = {
        "service_name": service,
        "namespace_id": changes.pop("namespace", NAMESPACE),
        "cluster_id": changes.pop("cluster", CLUSTER),
        "retention_period_days": changes.pop("retention", 0),
        "deny_external_cleanup": changes.pop("deny", False),
    }
    if "uid" in changes:
        who["uid"] = changes.pop("uid")
    body = {"secret": SECRET, "zone": "inet", "ip_family": "ipv4", "service": who}
    return {key: value for key, value in (body | changes).items() if value is not None}


@dataclass(slots=True)
class World:
    """One server and its store."""

    url: str
    api: IpamApi
    ledger: Ledger
    clock: UtcClock
    sweeper: Sweeper
    session: aiohttp.ClientSession
    database: str
    pepper: Pepper
    paths: dict[str, Path] = field(default_factory=dict)

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        async with self.session.request(method, self.url + path, data=data, **options) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return Reply(response.status, orjson.loads(raw) if is_json else raw.decode())

    async def post(self, service: str = X, **changes: Any) -> Reply:
        return await self.send("POST", "/v2/address", request_body(service, **changes))

    async def delete(self, service: str = X, **changes: Any) -> Reply:
        return await self.send("DELETE", "/v2/service", request_body(service, **changes))

    async def release_cluster(self, cluster: str = CLUSTER, token: str = TOKEN) -> Reply:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.send("DELETE", "/v2/cluster", {"cluster_id": cluster}, headers=headers)

    async def sweep(self) -> Swept:
        swept = await sweep_once(self.sweeper, self.api.metrics)
        await count(self.ledger.engine, self.api.metrics, swept)
        return swept

    def advance(self, *, days: float = 0, seconds: float = 0) -> None:
        self.clock.shift_ms += round(days * DAY_MS + seconds * 1000)

    async def listen(self, seconds: float) -> None:
        """Time passes, in which the server is there to hear whoever speaks."""
        while seconds > 0:
            self.advance(seconds=min(seconds, LISTENING_MS / 1000))
            await self.api.heartbeats.note()
            seconds -= LISTENING_MS / 1000

    async def entries(self, address: str) -> dict[str, Entry]:
        """The entries on an address, by service name."""
        bare = address.partition("/")[0]
        async with self.ledger.engine.snapshot() as tx:
            found = await rows.holders_by(tx, "address", [bare])
        return {row.entry.identity.service_name: row.entry for row in found}

    async def stored(self) -> list[str]:
        async with self.ledger.engine.snapshot() as tx:
            return sorted(row[0] for row in await tx.rows("SELECT address FROM addresses"))


class Seconds:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Options:
    """What differs from test to test."""

    zones: str = EXAMPLE
    limits: ApiLimits = field(default_factory=ApiLimits)
    journal: EventLog | None = None
    identities: Identities | None = None
    tokens: tuple[str, ...] = (TOKEN,)
    rules: Mapping[str, Any] = field(default_factory=dict)
    seconds: Callable[[], float] = time.monotonic  # the clock of rates and guesses


@asynccontextmanager
async def running(database: str, pepper_file: Path, options: Options | None = None) -> AsyncIterator[World]:
    options = options or Options()
    clock = UtcClock()
    async with AsyncExitStack() as stack:
        engine = await connect(database, clock)
        stack.push_async_callback(engine.close)
        await migrate(engine)
        pepper = load_pepper(pepper_file, create=True)
        zones = parse_zones(options.zones, "the test's zones")
        rules = LedgerRules(pepper, **dict(options.rules))
        ledger = await stack.enter_async_context(Ledger.open(engine, rules, zones.pools))
        config = Config(zones, Tokens(options.tokens), options.identities)
        journal = options.journal or EventLog()
        api = IpamApi(ledger, config, options.limits, ApiMetrics(), journal, clock=options.seconds)
        api.heartbeats = Heartbeats(engine, every_seconds=0.02)
        beating = asyncio.create_task(api.heartbeats.run())
        stack.push_async_callback(_ended, beating)
        url = await stack.enter_async_context(_listening(api))
        guard = ClockGuard(lambda: monotonic_ms() + clock.shift_ms, boot="test")
        session = await stack.enter_async_context(aiohttp.ClientSession())
        sweeper = Sweeper(ledger, guard, "test")
        await api.heartbeats.note()  # behind run's own first: whoever holds up this loop then holds no lock
        yield World(url, api, ledger, clock, sweeper, session, database, pepper)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@asynccontextmanager
async def _listening(api: IpamApi) -> AsyncIterator[str]:
    bound = socket.create_server(("127.0.0.1", 0), backlog=256)
    runner = web.ServerRunner(
        web.Server(api, access_log=None, auto_decompress=False, lingering_time=0.5), handle_signals=False
    )
    await runner.setup()
    await web.SockSite(runner, bound).start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        await runner.cleanup()
