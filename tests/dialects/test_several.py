"""An object with several claims, without a control plane: who is refused gives back only what it had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from berth.control.cache import Cache
from berth.control.events import Recorder
from berth.control.outcome import After
from berth.dialects.pool import Desk
from berth.dialects.several import Several, SeveralBook, SeveralLife
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
        return {"kind": "Service", "metadata": {"name": name, "namespace": "default", "uid": "u"}}


class Events:
    def event(self, *arguments: Any) -> None: ...


class Book:
    """A Service that has an address which it may not have any more."""

    dialect = "vip"
    announces = True
    finalizer = "example.org/held"
    guard_status = False
    failed = "failed"
    resource = Resource("", "v1", "Service", "services")

    def __init__(self) -> None:
        self.cache = Cache()
        about = {"name": "s", "namespace": "default", "uid": "u", "finalizers": [self.finalizer]}
        self.cache.put({"kind": "Service", "metadata": about})
        self.desk = Desk(Pool("pool", (parse_block("10.0.0.0/31").range,)), lambda ref: None)
        self.desk.adopt(TWO, "another")
        self.given_back: list[Block] = []

    def stance(self, claim: Object) -> Several:
        return Several(Claim("s", pin=TWO), (self.desk,))

    async def learns(self, claim: Object) -> bool:
        return False

    def holds(self, claim: Object) -> tuple[Block, ...]:
        return self.desk.space.leases_of("s")

    async def settle(self, claim: Object, keep: tuple[Block, ...]) -> None:
        self.given_back += [block for block in self.holds(claim) if block not in keep]

    def status(self, claim: Object, blocks: tuple[Block, ...], why: str) -> Object:
        return {"why": why}

    def refused(self, serve: Any, refusal: Any) -> str:
        return "taken"


async def reconcile(book: Book, server: Server) -> object:
    life = SeveralLife(cast(SeveralBook, book), cast(Client, server), cast(Recorder, Events()), Metrics())
    return await life.reconcile(SERVICE)


async def test_what_it_had_goes_when_it_is_refused() -> None:
    book, server = Book(), Server()
    book.desk.adopt(ONE, "s")
    await reconcile(book, server)
    assert book.given_back == [ONE]
    assert server.writes == ["status", "finalizers"]


async def test_what_another_operator_took_for_it_meanwhile_stays() -> None:
    """I3: that one shows the address in a moment; its record and the finalizer must be there then."""
    book, server = Book(), Server()
    server.meanwhile = lambda: book.desk.adopt(ONE, "s")
    assert await reconcile(book, server) == After(0.0)
    assert book.given_back == []
    assert server.writes == ["status"]
