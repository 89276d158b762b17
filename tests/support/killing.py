"""A vitistack operator that is killed at a step: before or after its n-th write, in the cluster or at the
IPAM-API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.process import Child, operator
from tests.faults.proxy import Cut, FaultProxy, Pass, Plan, Verdict, Write
from tests.support.line import Fate, Line, line
from tests.support.operator import eventually
from tests.support.settings import settings_of
from tests.support.started import free_port
from tests.support.vitistack import SYSTEM, World, address_of, service

from berth.control.webhooks import MUTATING, VALIDATING
from berth.devcluster import DevCluster
from berth.dialects.vitistack import kinds
from berth.errors import NotFound, StatusError
from berth.kube.client import Client
from berth.net import RangeSet, parse_range

REGISTRATION = "/admissionregistration"
# Longer than a review may take and its object then needs to be stored, as the defaults are: the operator's,
# and the API's, which gives back what nobody confirmed.
PENDING_SECONDS = 12.0
API_PENDING = ("--pending-seconds", "15")
Object = dict[str, Any]


@dataclass(slots=True)
class Victim:
    """The operator's process, and what is counted of what it does once it is armed."""

    child: Child
    proxy: FaultProxy
    line: Line
    webhook_url: str
    at: int = 0  # 0: it lives
    after: bool = False
    steps: int = 0
    done: bool = False  # it came to that
    names: list[str] = field(default_factory=list)

    def arm(self, at: int, *, after: bool) -> None:
        """Writes and calls are numbered from 1 on."""
        self.at, self.after = at, after
        self.proxy.plan = Plan(before=self._before_write, after=self._after_write)
        self.line.before, self.line.after = self._before_call, self._after_call

    @property
    def killed(self) -> bool:
        return not self.child.alive

    async def _before_write(self, write: Write) -> Verdict:
        if not write.counts or REGISTRATION in write.path:
            return Cut() if self.killed else Pass()
        return Cut() if await self._step(str(write)) and not self.after else self._still()

    async def _after_write(self, write: Write) -> Verdict:
        await self._die_after()
        return self._still()

    async def _before_call(self, number: int) -> Fate:
        dies = await self._step(f"call {number}")
        return Fate.CUT if self.killed or (dies and not self.after) else Fate.PASS

    async def _after_call(self, number: int) -> Fate:
        await self._die_after()
        return Fate.CUT if self.killed else Fate.PASS

    async def _die_after(self) -> None:
        if self.steps >= self.at > 0 and self.after:
            await self._die()

    async def _die(self) -> None:
        self.done = True
        await asyncio.to_thread(self.child.kill)

    def _still(self) -> Verdict:
        return Cut() if self.killed else Pass()

    async def _step(self, name: str) -> bool:
        """Whether this is the one; before it has its effect the process dies here."""
        self.steps += 1
        self.names.append(name)
        if self.steps != self.at:
            return False
        if not self.after:
            await self._die()
        return True


@asynccontextmanager
async def victim(cluster: DevCluster, world: World, home: Path) -> AsyncIterator[Victim]:
    """A process that serves: the first Service in the world's namespace has its address."""
    webhook_url = f"https://127.0.0.1:{free_port()}"
    async with FaultProxy(cluster, home).running() as proxy, line(world.api.url) as (wire, api_url):
        settings = settings_of(
            kubeconfig=proxy.kubeconfig,
            dialects=("vitistack",),
            webhook_url=webhook_url,
            api_url=api_url,
            vitistack_pending_seconds=PENDING_SECONDS,
            vitistack_heartbeat_seconds=1.0,
        )
        async with operator(settings, home / f"{world.namespace}.log") as child:
            await serves(world)
            yield Victim(child, proxy, wire, webhook_url)


@asynccontextmanager
async def unhooked(client: Client) -> AsyncIterator[None]:
    """An operator that is killed leaves its webhooks behind: others of this control plane go on without."""
    try:
        yield
    finally:
        for resource, name in (
            (MUTATING, kinds.MUTATING_CONFIGURATION),
            (VALIDATING, kinds.VALIDATING_CONFIGURATION),
        ):
            with suppress(NotFound):
                await client.delete(resource, name)


async def serves(world: World) -> None:
    """Webhooks are registered, and the API server has taken notice: what is nonsense is refused, in words."""

    async def is_refused() -> bool:
        probe = service("probe", world.namespace, annotations={"ip-family": "both"})
        try:
            await world.client.create(kinds.SERVICE, probe)
        except StatusError as error:
            return "illegal ip-address family" in error.message
        await world.client.delete(kinds.SERVICE, "probe", world.namespace)
        return False

    assert await eventually(is_refused, 60)


async def wrong(world: World) -> list[str]:
    """What differs between live Services, the IPAM-API, records and pool; nothing once all is settled."""
    live = await world.services()
    listed = {
        address.partition("/")[0]: one for one in live for address in address_of(one).split(",") if address
    }
    found = [f"{name} lists no address" for one in live if not address_of(one) for name in [_name(one)]]
    pool = RangeSet(map(parse_range, await world.pool() or []))
    for address, one in listed.items():
        entry = world.api.entries(address).get(_name(one))
        if entry is None or not entry.active or entry.uid != one["metadata"]["uid"]:
            found.append(f"{_name(one)} lists {address}, the IPAM-API has {entry}")
        if not pool.contains(parse_range(address)):
            found.append(f"{address} of {_name(one)} is not in the pool")
    everyone = (address_of(one) for one in (await world.client.list(kinds.SERVICE)).items)
    wanted = RangeSet(parse_range(text) for listed_ in everyone for text in listed_.split(",") if text)
    found += [f"{item} is in the pool for nobody" for item in pool.minus(wanted)]
    held = world.api.of_namespace(world.namespace_id)
    found += [f"{address} is held for nobody" for address in sorted(set(held) - set(listed))]
    everything = await world.records()
    records = {one["data"]["address"] for one in everything if _is_of(world, one)}
    names = {_name(one) for one in everything}
    copies = {_name(one) for one in (await world.client.list(kinds.SECRET, SYSTEM)).items} - {"default"}
    found += [f"copy {name} of a secret without a record" for name in sorted(copies - names)]
    found += [f"record of {address} for nobody" for address in sorted(records - set(listed))]
    return found


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _is_of(world: World, record: Object) -> bool:
    return bool(record["data"]["namespace"] == world.namespace and record["data"].get("released") != "true")


async def settled(world: World, seconds: float = 60) -> list[str]:
    """What is wrong for good. Right at one look is not enough: an API that hung has yet to do what it was
    asked meanwhile."""

    async def is_right() -> bool:
        if await wrong(world):
            return False
        await asyncio.sleep(1.0)
        return not await wrong(world)

    try:
        await eventually(is_right, seconds)
    except AssertionError:
        return await wrong(world)  # says more
    return []
