"""The NetBox mirror: every address is a NetBox prefix of host length with our `k8s_uuid`. Pushed and
taken away from the outbox; only what carries our uuid is ever deleted, and "not found" counts as done.
The ledger never waits for it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from berth.central.integrations.event_log import EventLog
from berth.central.metrics import ApiMetrics
from berth.central.settings import Netbox
from berth.central.tokens import RotatedToken
from berth.errors import StoreDown
from berth.net import parse_block
from berth.net.host import masked
from berth.store import outbox
from berth.store.engine import Engine
from berth.store.outbox import OutboxItem
from berth.store.requests import zone_of

PREFIXES = "/api/ipam/prefixes/"
EVERY_SECONDS = 1.0
Json = dict[str, Any]


class NetboxClient:
    """The few calls we make."""

    def __init__(self, settings: Netbox, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session
        self._base = settings.url.rstrip("/")
        assert settings.token_file is not None
        self._token = RotatedToken(settings.token_file)

    async def call(self, method: str, path: str, body: Json | None = None, **params: str) -> Any:
        """The answer's JSON; None for 404 and for answers without a body."""
        headers = {"Authorization": f"Token {self._token.read()}", "Accept": "application/json"}
        async with self._session.request(
            method, self._base + path, json=body, params=params, headers=headers, allow_redirects=False
        ) as response:
            if response.status == 404:
                return None
            if response.status >= 300:
                raise aiohttp.ClientError(f"status {response.status}")
            return await response.json() if response.status != 204 else None

    async def pages(self, path: str, **params: str) -> list[Json]:
        """All results, page after page; only path and query of a `next` link are used, never its host."""
        found: list[Json] = []
        while True:
            answer = await self.call("GET", path, None, **params) or {}
            found += answer.get("results", [])
            following = answer.get("next")
            if not following:
                return found
            parts = urlsplit(following)
            path, params = f"{parts.path}?{parts.query}", {}

    async def containers(self, zone: str) -> list[Json]:
        return await self.pages(PREFIXES, cf_k8s_zone=zone, status="container")

    async def zones(self) -> list[str]:
        found = await self.pages("/api/extras/custom-field-choice-sets/", q="k8s_zone_choices")
        return [choice[0] for choice in found[0]["extra_choices"]] if found else []

    async def tags(self) -> list[int]:
        if not self._settings.tag:
            return []
        return [tag["id"] for tag in await self.pages("/api/extras/tags/", name=self._settings.tag)]


class NetboxMirror:
    def __init__(
        self, settings: Netbox, engine: Engine, metrics: ApiMetrics, who: str, journal: EventLog | None = None
    ) -> None:
        self._settings = settings
        self._journal = journal or EventLog()
        self._engine = engine
        self._metrics = metrics
        self._who = who

    async def mirror_forever(self) -> None:
        timeout = aiohttp.ClientTimeout(total=20)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            client = NetboxClient(self._settings, session)
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                try:
                    await self.deliver(client)
                    self._metrics.outbox.set(await outbox.length(self._engine))
                except StoreDown as cause:
                    self._trouble("outbox not readable", cause=str(cause))

    async def deliver(self, client: NetboxClient) -> int:
        """Everything that is due; how many parcels were delivered."""
        delivered = 0
        for item in await outbox.due(self._engine, self._who):
            try:
                await (push(client, item) if item.kind == "push" else drop(client, item))
            except Exception as cause:  # whatever the answer's shape: the others are not kept waiting
                self._metrics.netbox_failures.inc()
                self._trouble("NetBox refused", kind=item.kind, cause=type(cause).__name__)
                await outbox.failed(self._engine, item)
                continue
            await outbox.done(self._engine, item)
            delivered += 1
        return delivered

    def _trouble(self, message: str, **fields: Any) -> None:
        self._journal.tell(message, "central/netbox", level="warn", **fields)


async def ours(client: NetboxClient, item: OutboxItem) -> Json | None:
    """The prefix of this address that carries our uuid."""
    found = await client.pages(PREFIXES, prefix=masked(item.address))
    return next((one for one in found if (one.get("custom_fields") or {}).get("k8s_uuid") == item.uid), None)


async def push(client: NetboxClient, item: OutboxItem) -> None:
    """Pushed once, however often it is tried."""
    if await ours(client, item):
        return
    zone = zone_of(item.pool)
    body: Json = {
        "prefix": masked(item.address),
        "tags": await client.tags(),
        "custom_fields": {
            "domain": "na",
            "env": "na",
            "purpose": "na",
            "k8s_zone": zone,
            "k8s_uuid": item.uid,
        },
    }
    container = await covering(client, zone, item.address)
    for key in ("vrf", "tenant", "role"):
        if container.get(key):
            body[key] = container[key]["id"]
    body["custom_fields"]["infra"] = (container.get("custom_fields") or {}).get("infra") or "na"
    await client.call("POST", PREFIXES, body)


async def covering(client: NetboxClient, zone: str, address: str) -> Json:
    wanted = parse_block(address)
    for container in await client.containers(zone):
        if parse_block(container["prefix"]).covers(wanted):
            return container
    return {}


async def drop(client: NetboxClient, item: OutboxItem) -> None:
    found = await ours(client, item)
    if found:
        await client.call("DELETE", f"{PREFIXES}{found['id']}/")
