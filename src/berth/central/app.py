"""The HTTP API: route table, error table, and what every request passes through.

    route → limits → body → bodies.py → ledger → answers.py

The server is aiohttp's plain one with a dictionary for a router: a handful of fixed paths needs no more.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from berth.central import answers, batch, bodies, inventory, limits, pages
from berth.central.answers import HttpRefusal
from berth.central.bodies import Call
from berth.central.identity import Caller, Identities, Tokens, bearer
from berth.central.integrations.event_log import EventLog, shown
from berth.central.limits import Guesses, Throttle
from berth.central.metrics import ApiMetrics
from berth.central.openapi import document
from berth.central.settings import ApiLimits
from berth.central.zones import Zones
from berth.errors import StoreDown
from berth.leasing.decide import Refusal
from berth.leasing.model import Reason
from berth.store.clusters import Order, release_cluster
from berth.store.heartbeats import Heartbeats
from berth.store.inventory import Comparison, Difference, beside, compare
from berth.store.ledger import Ledger
from berth.store.operators import Beat
from berth.store.requests import Granted, LedgerAnswer, LedgerRequest, RegisterRequest

NO_CLUSTER = "Could not deregister cluster: no addresses with assosiated cluster_id found in the database"
NO_PATH = "no such path; see /swagger/index.html"
PROBES = ("/readyz", "/metrics")  # with a bucket of their own: who asks too much elsewhere must not stop them
TOKEN_BYTES = 32 * 1024  # of a report that count as one request: about 100 registrations
LARGE_BYTES = 64 * 1024  # what takes longer to parse is parsed beside the event loop
SHOWN_LENGTH = 200  # of what a client may choose freely, in an event
Handler = Callable[["ApiRequest"], Awaitable[web.Response]]


@dataclass(slots=True)
class Config:
    """What a reload replaces, whole values at a time."""

    zones: Zones
    tokens: Tokens
    identities: Identities | None = None


@dataclass(slots=True)
class ApiRequest:
    """One request on its way; the body stays here for the journal."""

    request: web.BaseRequest
    raw: bytes = b""
    route: str = "other"
    caller: Caller | None = None  # with identities: who asks
    limit: asyncio.Timeout | None = None

    @property
    def source(self) -> str:
        peer = self.request.transport.get_extra_info("peername") if self.request.transport else None
        return str(peer[0]) if peer else ""


class IpamApi:
    """Answers requests; `web.Server(api)` is the server."""

    def __init__(
        self,
        ledger: Ledger,
        config: Config,
        bounds: ApiLimits,
        metrics: ApiMetrics,
        journal: EventLog,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ledger = ledger
        self.config = config
        self.metrics = metrics
        self.journal = journal
        self._limits = bounds
        self.heartbeats = Heartbeats(ledger.engine)
        self._throttle = Throttle(bounds.rate_per_second, clock)
        self._parsing = asyncio.Lock()  # of large reports: one at a time
        self._guesses = Guesses(bounds.wrong_secrets, clock)
        self._routes = self._table()

    def _table(self) -> dict[str, dict[str, Handler]]:
        address: dict[str, Handler] = {"POST": self._post_address}
        service: dict[str, Handler] = {"DELETE": self._delete_service}
        cluster: dict[str, Handler] = {"DELETE": self._delete_cluster}
        report: dict[str, Handler] = {"POST": self._post_inventory}
        alive: dict[str, Handler] = {"POST": self._post_heartbeat}
        description: dict[str, Handler] = {"GET": self._description}
        return {
            "/": {"GET": self._front_page, **address, **service},
            "/v2/address": address,
            "/address": address,
            "/v2/service": service,
            "/service": service,
            "/v2/cluster": cluster,
            "/cluster": cluster,
            "/v2/inventory": report,
            "/inventory": report,
            "/v2/heartbeat": alive,
            "/heartbeat": alive,
            "/v2/batch": {"POST": self._post_batch},
            "/batch": {"POST": self._post_batch},
            "/swagger/index.html": {"GET": self._page},
            "/swagger/doc.json": description,
            "/openapi.json": description,
            "/healthz": {"GET": self._healthz},
            "/readyz": {"GET": self._readyz},
            "/metrics": {"GET": self._metrics},
        }

    async def __call__(self, request: web.BaseRequest) -> web.Response:
        started = time.perf_counter()
        incoming = ApiRequest(request)
        response, failure = await self._answer(incoming)
        seconds = time.perf_counter() - started
        self.metrics.answered(incoming.route, request.method[:10], response.status, seconds)
        if failure is not None:
            self.metrics.refused(failure.reason)
        if self.journal.on:
            self._tell(incoming, response.status, seconds, failure)
        return response

    async def _answer(self, incoming: ApiRequest) -> tuple[web.Response, HttpRefusal | None]:
        """The error table: whatever goes wrong becomes JSON with a message, and never an echo of the
        input.
        """
        try:
            methods = self._routes.get(incoming.request.path)
            if methods is not None:
                incoming.route = incoming.request.path
            self._admit(incoming)
            handler = _handler(methods, incoming.request.method)
            async with asyncio.timeout(self._limits.request_seconds) as incoming.limit:
                return await handler(incoming), None
        except HttpRefusal as refusal:
            failure = refusal
        except (StoreDown, TimeoutError):
            failure = store_down()
        except Exception as cause:
            what = {"route": incoming.route, "error": type(cause).__name__}
            self.journal.tell("request failed", "central/app", level="error", **what)
            failure = HttpRefusal(500, "internal error", "Internal")
        return answers.refused(failure), failure

    def _admit(self, incoming: ApiRequest) -> None:
        """Whatever is asked for counts, also what is not there; `/healthz` alone costs nothing."""
        if incoming.route in PROBES:
            self._throttle.admit(f"{incoming.source} probes")
        elif incoming.route != "/healthz":
            self._throttle.admit(incoming.source)

    # Addresses

    async def _post_address(self, incoming: ApiRequest) -> web.Response:
        return await self._alone(incoming, "POST")

    async def _delete_service(self, incoming: ApiRequest) -> web.Response:
        return await self._alone(incoming, "DELETE")

    async def _alone(self, incoming: ApiRequest, method: str) -> web.Response:
        incoming.raw = await self._body(incoming, self._limits.body_bytes)
        call = bodies.call_of(method, bodies.parsed(incoming.raw), self.config.zones)
        return answers.json(200, await self._submit(incoming, call))

    async def _body(self, incoming: ApiRequest, most: int) -> bytes:
        """The body of somebody who may send one: nothing is read from, or told to, anybody else."""
        if self.config.identities is not None:
            incoming.caller = self.config.identities.caller(incoming.request)
        return await self._read(incoming, most)

    async def _read(self, incoming: ApiRequest, most: int) -> bytes:
        """From the body's last byte on counts the time for an answer; until then it has its own limit."""
        assert incoming.limit is not None
        incoming.limit.reschedule(None)
        raw = await limits.body(incoming.request, most, self._limits.body_seconds)
        incoming.limit.reschedule(asyncio.get_running_loop().time() + self._limits.request_seconds)
        return raw

    async def _submit(self, incoming: ApiRequest, call: Call) -> dict[str, Any]:
        """The body of the ledger's yes; its no is a refusal."""
        request = call.request
        if incoming.caller is not None:
            incoming.caller.admit(call.fields.cluster_id, call.fields.zone)
        # Where no address is named, a secret is tried on all that the holder has.
        everywhere = request.entry.identity.key if isinstance(request, RegisterRequest) else None
        target = request.address or everywhere
        with self._guesses.trying(incoming.source, target):
            answer = await self.ledger.submit(request)
        if _is_wrong(answer):
            self._guesses.wrong(incoming.source, target)
        elif not isinstance(answer, Refusal) and not (isinstance(answer, Granted) and answer.missed):
            self._guesses.right(incoming.source, target)
        if not isinstance(answer, Refusal):
            return answers.told(answer)
        self._tell_of(request, answer)
        raise answers.translated(answer, request.pool, call.table)

    async def _post_batch(self, incoming: ApiRequest) -> web.Response:
        """Nothing of this body is kept for the journal either; each call in it has its own event there."""
        raw = await self._body(incoming, self._limits.inventory_bytes)
        calls = [self._one_of_many(incoming, item) for item in batch.items(raw)]
        return answers.json(200, {"answers": await asyncio.gather(*calls)})

    async def _one_of_many(self, incoming: ApiRequest, item: object) -> dict[str, Any]:
        try:
            self._throttle.admit(incoming.source)
            return {"status": 200, "body": await self._submit(incoming, batch.call(item, self.config.zones))}
        except HttpRefusal as refused:
            refusal = refused
        except StoreDown:
            refusal = store_down()
        self.metrics.refused(refusal.reason)
        return {"status": refusal.status, "body": refusal.body}

    # Clusters

    async def _delete_cluster(self, incoming: ApiRequest) -> web.Response:
        tokens = self.config.tokens
        if not tokens:
            raise HttpRefusal(404, NO_PATH, "NotFound")
        token = bearer(incoming.request)
        if not tokens.fits(token):
            raise unauthorized("Invalid authentication token" if token else "Authorization required")
        incoming.raw = await self._read(incoming, self._limits.body_bytes)
        cluster_id = bodies.cluster_id(incoming.raw)
        done = await release_cluster(self.ledger.engine, Order(cluster_id, "cluster"))
        if done.frozen:
            raise HttpRefusal(409, f"Could not deregister cluster: {answers.FROZEN}", Reason.CLUSTER_FROZEN)
        if not done.found:
            raise HttpRefusal(404, NO_CLUSTER, "NoMatch")
        self.journal.app("cluster released", "central/app", cluster_id=cluster_id, expired=done.expired)
        body = {"message": "Cluster expiration set successfully", "cluster_id": cluster_id}
        return answers.json(200, {**body, "expired": done.expired, "skipped": len(done.skipped)})

    # Inventories

    async def _post_inventory(self, incoming: ApiRequest) -> web.Response:
        """Nothing of this body is kept for the journal: it is the largest there is, and all secrets."""
        raw = await self._body(incoming, self._limits.inventory_bytes)
        self._throttle.charge(incoming.source, len(raw) // TOKEN_BYTES)
        sent = await self._parsed(raw)
        if incoming.caller is not None:
            incoming.caller.admit(sent.beat.cluster_id, *sent.zones)
        held_back = self._guesses.paused(incoming.source, (one.address for one in sent.listed))
        listed = [one for one in sent.listed if one.address not in held_back] if held_back else sent.listed
        trusted, newcomers = incoming.caller is not None, self.heartbeats.newcomers
        compared = await compare(self.ledger, sent.beat, listed, newcomers, trusted=trusted)
        if held_back and compared.counted:
            _leave_out(compared, [one for one in sent.listed if one.address in held_back])
        self._tell_of_inventory(incoming, sent.beat, compared)
        shown = await beside(len(sent.listed), inventory.answer, sent.beat, sent.listed, compared)
        return answers.json(200, shown)

    async def _parsed(self, raw: bytes) -> inventory.Report:
        if len(raw) <= LARGE_BYTES:
            return inventory.report(raw, self.config.zones)
        async with self._parsing:
            return await asyncio.to_thread(inventory.report, raw, self.config.zones)

    async def _post_heartbeat(self, incoming: ApiRequest) -> web.Response:
        """Of an operator that has reported before, whose epoch only it and we know."""
        beat = inventory.heartbeat(await self._body(incoming, self._limits.body_bytes))
        if incoming.caller is not None:
            incoming.caller.admit(beat.cluster_id)
        noted = await self.heartbeats.hear(beat)
        body = {"message": "Heard" if noted.counted else "Report first", "cluster_id": beat.cluster_id}
        return answers.json(200, {**body, "counted": noted.counted, "frozen": noted.frozen})

    def _tell_of_inventory(self, incoming: ApiRequest, beat: Beat, compared: Comparison) -> None:
        for address in compared.guessed:
            self._guesses.wrong(incoming.source, address)
        self.metrics.compared(compared)
        counts = {
            word: len(getattr(compared, word)) for word in ("adopted", "missing", "unknown", "conflict")
        }
        if compared.frozen:
            message = "two operators speak for one cluster"
            self.journal.tell(message, "central/app", level="error", cluster_id=beat.cluster_id)
        if any(counts.values()):
            self.journal.app(
                "inventory differs",
                "central/app",
                level="warn",
                cluster_id=beat.cluster_id,
                **counts,
            )

    # Everything else

    async def _front_page(self, incoming: ApiRequest) -> web.Response:
        return web.Response(text=pages.FRONT, content_type="text/html")

    async def _page(self, incoming: ApiRequest) -> web.Response:
        return web.Response(text=pages.description(document()), content_type="text/html")

    async def _description(self, incoming: ApiRequest) -> web.Response:
        return answers.json(200, document())

    async def _healthz(self, incoming: ApiRequest) -> web.Response:
        return answers.json(200, {"status": "ok"})

    async def _readyz(self, incoming: ApiRequest) -> web.Response:
        """Ready when the store answers and there are zones; else 503 with the reason."""
        try:
            async with asyncio.timeout(2), self.ledger.engine.snapshot() as tx:
                await tx.rows("SELECT 1 FROM pools LIMIT 1")
        except (StoreDown, TimeoutError) as cause:
            return answers.json(503, {"status": "unavailable", "reason": f"StoreDown: {cause}"})
        return answers.json(200, {"status": "ok", "zones": list(self.config.zones.names)})

    async def _metrics(self, incoming: ApiRequest) -> web.Response:
        self.metrics.pools(self.ledger.usage(), self.ledger.waiting)
        return web.Response(body=self.metrics.text(), content_type="text/plain", charset="utf-8")

    # Telling

    def _tell_of(self, request: LedgerRequest, answer: Refusal) -> None:
        """What the ledger did is told from its history (history_feed.py); a refusal is not there."""
        who = request.entry.identity
        self.journal.app(
            "address refused",
            "central/app",
            level="warn",
            pool=request.pool,
            address=request.address or "",
            reason=answer.reason,
            service_name=who.service_name,
            namespace_id=who.namespace_id,
            cluster_id=who.cluster_id,
        )

    def _tell(self, incoming: ApiRequest, status: int, seconds: float, failure: HttpRefusal | None) -> None:
        request = incoming.request
        fields: dict[str, Any] = {
            "status": status,
            "method": request.method[:10],
            "path": request.path[:SHOWN_LENGTH],
            "ip": incoming.source,
            "body": _shown(incoming.raw),
        }
        timing = {"response_time": f"{seconds * 1000:.3f}ms", "response_time_ms": round(seconds * 1000, 3)}
        agent = request.headers.get("User-Agent", "")[:SHOWN_LENGTH]
        self.journal.http({**fields, **timing, "user_agent": agent})
        if failure is not None:
            self.journal.error({**fields, "error": failure.reason})


def _leave_out(compared: Comparison, held_back: Sequence[RegisterRequest]) -> None:
    """What was guessed at too often is not compared, whoever lists it; the rest of the report counts."""
    which = {(one.address, one.entry.identity) for one in held_back}
    compared.unknown = [one for one in compared.unknown if (one.address, one.who) not in which]
    compared.conflict += [Difference(address or "", who, limits.TOO_MANY) for address, who in which]


def unauthorized(message: str) -> HttpRefusal:
    """Of the cluster route, in its documented shape."""
    refusal = HttpRefusal(401, message, "Unauthorized")
    refusal.body = {"error": message}
    return refusal


def store_down() -> HttpRefusal:
    refusal = HttpRefusal(503, "the ledger cannot answer now, try again", "StoreDown")
    refusal.headers["Retry-After"] = "1"
    return refusal


def _shown(raw: bytes) -> dict[str, Any] | None:
    try:
        return shown(orjson.loads(raw)) if raw else None
    except orjson.JSONDecodeError:
        return None


def _is_wrong(answer: LedgerAnswer) -> bool:
    """A secret that opened nothing of what it was tried on; also where it then got a fresh address."""
    if isinstance(answer, Refusal):
        return answer.missed or answer.reason == Reason.NO_MATCH
    return isinstance(answer, Granted) and answer.fresh and answer.missed


def _handler(methods: Mapping[str, Handler] | None, method: str) -> Handler:
    if methods is None:
        raise HttpRefusal(404, NO_PATH, "NotFound")
    handler = methods.get("GET" if method == "HEAD" else method)
    if handler is None:
        refusal = HttpRefusal(405, f"method not allowed; use {', '.join(methods)}", "MethodNotAllowed")
        refusal.headers["Allow"] = ", ".join(methods)
        raise refusal
    return handler
