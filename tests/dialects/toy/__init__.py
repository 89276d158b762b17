"""A dialect in 150 lines, for docs/writing-a-dialect.md: ToyPool has addresses, ToyClaim wants one.

    kinds       ToyPool (spec.cidr), ToyClaim (spec.pool, spec.address) and its status
    ledger      a dictionary: who asks second for an address is refused
    handler     the nine members that the claim reconciler asks for
    wiring      what wakes what

Everything else (finalizers, the order of claims, waiting and waking, retries, Events, metrics) is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from berth.control.controller import Controller
from berth.control.informers import Informer, WatchSpec
from berth.control.outcome import DONE, Outcome
from berth.control.webhooks import Webhook
from berth.dialects.claim import (
    Allocation,
    Ask,
    ClaimKind,
    ClaimReconciler,
    Leave,
    Plan,
    Refused,
    Release,
    Serve,
    Wait,
)
from berth.dialects.crd import Crd, record, root, text
from berth.dialects.dialect import Dependencies, Dialect, DialectRuntime
from berth.dialects.pool import Desk
from berth.dialects.view import View
from berth.dialects.wiring import Listeners, by_age, full_name, latest
from berth.errors import InvalidText, Taken
from berth.kube import meta, patch
from berth.kube.meta import Object, Ref
from berth.kube.resource import Resource
from berth.leasing.decide import Refusal
from berth.leasing.model import Claim, Pool
from berth.net import Block, parse_block
from berth.net.parse import parse_host

POOL = Resource("toy.berth.dev", "v1", "ToyPool", "toypools")
CLAIM = Resource("toy.berth.dev", "v1", "ToyClaim", "toyclaims")
FINALIZER = "toy.berth.dev/held"


class ToyLedger(dict[str, str]):
    """Address → holder. Where a real dialect writes an object named after the address."""

    def take(self, block: Block, holder: str) -> None:
        if (other := self.setdefault(block.address, holder)) != holder:
            raise Taken(block, other)

    def give_back(self, holder: str) -> None:
        for address in [address for address, other in self.items() if other == holder]:
            del self[address]


class ToyHandler:
    kind = ClaimKind("toy", FINALIZER)

    def __init__(self, claims: Informer, desks: dict[str, Desk], ledger: ToyLedger) -> None:
        self.informer = claims
        self._desks = desks
        self._ledger = ledger

    async def plan(self, claim: Object) -> Plan:
        if meta.is_deleting(claim):
            return Release() if meta.has_finalizer(claim, FINALIZER) else Leave()
        name = claim["spec"]["pool"]
        desk = self._desks.get(pool_of(claim))
        if desk is None:
            return Wait("PoolNotFound", f"ToyPool {name} not found")
        has = (claim.get("status") or {}).get("address")
        if has and desk.space.leases_of(key_of(claim)):
            return Leave()
        try:
            pin = parse_host(wanted) if (wanted := has or claim["spec"].get("address")) else None
        except InvalidText as error:
            return Wait("InvalidAddress", str(error))
        return Serve((Ask(Claim(key_of(claim), pin=pin), (desk,)),))

    def marks(self, claim: Object, blocks: tuple[Block, ...]) -> list[patch.Operation]:
        return []

    async def write(self, claim: Object, desk: Desk, block: Block) -> Object:
        self._ledger.take(block, key_of(claim))
        return claim

    async def release(self, claim: Object) -> Outcome | None:
        await self.gone(meta.ref(claim))
        return None

    async def gone(self, ref: Ref) -> Outcome:
        holder = f"{ref.namespace}/{ref.name}"
        self._ledger.give_back(holder)
        for desk in self._desks.values():
            for block in desk.space.leases_of(holder):
                desk.free(block, holder)
        return DONE

    def status(self, claim: Object, got: Sequence[Allocation], refused: Sequence[Refused]) -> Object:
        if got:
            return {"address": got[0].block.address}
        return {"reason": refused[0].reason, "message": refused[0].message}

    def explain(self, claim: Object, ask: Ask, refusal: Refusal) -> Refused:
        return Refused(str(refusal.reason), refusal.detail, ask=ask)


class ToyWiring:
    def __init__(self, kit: Dependencies, ledger: ToyLedger) -> None:
        self._pools = kit.watch(WatchSpec((POOL,)))
        self._claims = kit.watch(WatchSpec((CLAIM,), {"pool": lambda claim: (pool_of(claim),)}))
        self._desks: dict[str, Desk] = {}
        handler = ToyHandler(self._claims, self._desks, ledger)
        claims = ClaimReconciler(handler, kit.events, kit.metrics)
        self.controller = Controller("toy.claim", claims.reconcile, kit.metrics)
        self._listeners = Listeners()
        self._listeners.on(self._pools.cache, self._pool_changed)
        self._listeners.on(self._claims.cache, self._claim_changed)

    def adopt(self) -> None:
        """Existing leases before newcomers, then everything once, the oldest first."""
        self._listeners.start()
        for pool in self._pools.cache:
            self._pool_changed(None, pool)
        for claim in by_age(self._claims.cache):
            self.controller.add(meta.ref(claim))

    def _pool_changed(self, old: Object | None, new: Object | None) -> None:
        name = full_name(latest(old, new))
        if new is None:
            self._desks.pop(name, None)
        elif name not in self._desks:
            pool = Pool(name, (parse_block(new["spec"]["cidr"]).range,))
            self._desks[name] = Desk(pool, self.controller.add)
            for claim in self._claims.cache.by("pool", name):
                if has := (claim.get("status") or {}).get("address"):
                    self._desks[name].adopt(parse_host(has), key_of(claim))
        for claim in by_age(self._claims.cache.by("pool", name)):
            self.controller.add(meta.ref(claim))

    def _claim_changed(self, old: Object | None, new: Object | None) -> None:
        self.controller.add(meta.ref(latest(old, new)))


class Toy(Dialect):
    name = "toy"
    view = View()

    def __init__(self) -> None:
        self.ledger = ToyLedger()

    def crds(self) -> tuple[Object, ...]:
        pool = root(record({"cidr": text()}, ["cidr"]))
        status = record({"address": text(), "reason": text(), "message": text()})
        claim = root(record({"pool": text(), "address": text()}, ["pool"]), status)
        return Crd(POOL, pool).manifest(), Crd(CLAIM, claim).manifest()

    def webhooks(self) -> tuple[Webhook, ...]:
        return ()

    def rules(self) -> tuple[dict[str, Any], ...]:
        verbs = ["get", "list", "patch", "update", "watch"]
        names = ["toypools", "toyclaims", "toyclaims/status"]
        return ({"apiGroups": [POOL.group], "resources": names, "verbs": verbs},)

    def build(self, kit: Dependencies) -> DialectRuntime:
        wiring = ToyWiring(kit, self.ledger)
        return DialectRuntime(controllers=(wiring.controller,), adopt=wiring.adopt)


def pool_of(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['spec']['pool']}"


def key_of(claim: Object) -> str:
    return full_name(claim)
