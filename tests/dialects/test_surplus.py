"""An object with several claims, without a control plane: who is refused gives back only what it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.control.informers import Informer, WatchSpec
from berth.control.outcome import After
from berth.dialects.claim import Ask, ClaimHandler, ClaimKind, ClaimReconciler, Plan, Refused, Serve
from berth.dialects.pool import Desk
from berth.kube.client import Client
from berth.kube.meta import Object, Ref
from berth.kube.resource import Resource
from berth.leasing.model import Claim, Pool
from berth.metrics import Metrics
from berth.net import Block, parse_block

SERVICE = Ref("Service", "default", "s")
ONE, TWO = parse_block("10.0.0.0"), parse_block("10.0.0.1")


class Server:
    """Answers every write; `meanwhile` happens while one is on its way."""

    def __init__(self) -> None:
        self.writes: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def patch(self, resource: Resource, name: str, body: Any, *more: Any, **options: Any) -> Object:
        self.writes.append(options.get("subresource") or "finalizers")
        self.meanwhile()
        held = ["example.org/held"]
        about = {"name": name, "namespace": "default", "uid": "u", "finalizers": held}
        return {"kind": "Service", "metadata": about}


class Events:
    def event(self, *arguments: Any) -> None: ...


class Book:
    """A Service that has an address which it may not have any more."""

    kind = ClaimKind("vip", "example.org/held")

    def __init__(self, server: Server) -> None:
        self.cache = Cache()
        watched = WatchSpec((Resource("", "v1", "Service", "services"),))
        self.informer = Informer(watched, self.cache, cast(Client, server))
        about = {"name": "s", "namespace": "default", "uid": "u", "finalizers": [self.kind.finalizer]}
        self.cache.put({"kind": "Service", "metadata": about})
        self.desk = Desk(Pool("pool", (parse_block("10.0.0.0/31").range,)), lambda ref: None)
        self.desk.adopt(TWO, "another")
        self.given_back: list[Block] = []

    async def plan(self, claim: Object) -> Plan:
        return Serve((Ask(Claim("s", pin=TWO), (self.desk,)),))

    def holds(self, claim: Object) -> tuple[Block, ...]:
        return self.desk.space.leases_of("s")

    async def trim(self, claim: Object, keep: tuple[Block, ...]) -> None:
        self.given_back += [block for block in self.holds(claim) if block not in keep]

    def status(self, claim: Object, got: Any, refused: Any) -> Object:
        return {"why": refused[0].message}

    def explain(self, claim: Object, ask: Ask, refusal: Any) -> Refused:
        return Refused("failed", "taken", ask=ask)


async def reconcile(book: Book) -> object:
    handler, events = cast(ClaimHandler, book), cast(Recorder, Events())
    claims = ClaimReconciler(handler, events, Metrics(), surplus=book)
    return await claims.reconcile(SERVICE)


async def test_what_it_had_goes_when_it_is_refused() -> None:
    server = Server()
    book = Book(server)
    book.desk.adopt(ONE, "s")
    await reconcile(book)
    assert book.given_back == [ONE]
    assert server.writes == ["status", "finalizers"]


async def test_what_another_operator_took_for_it_meanwhile_stays() -> None:
    """I3: that one shows the address in a moment; its record and the finalizer must be there then."""
    server = Server()
    book = Book(server)
    server.meanwhile = lambda: book.desk.adopt(ONE, "s")
    assert await reconcile(book) == After(0.0)
    assert book.given_back == []
    assert server.writes == ["status"]
