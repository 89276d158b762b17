"""One writer among replicas: election by a `coordination.k8s.io` Lease.

    candidate ── lease free, expired or released ──▶ leading ── renewed every retry_seconds ──▶ leading
                                                        │
                    renew_seconds without a renewal, or another holder ──▶ lost: the process ends

Election is for speed; storage refuses doubles anyway. Still a former leader must fall silent, so `guard()`
is called before every write and asks one question: was our last renewal *sent* less than `renew_seconds` ago?
The others wait `lease_seconds` from when they *saw* it, which is later; the difference is the safety margin,
time for a write that has passed the guard to arrive. The clock counts suspend (CLOCK_BOOTTIME): after SIGSTOP
or a sleeping machine the first `guard()` refuses, before anything else had a chance to run.

The elector's own client must have no guard: it writes the Lease before it leads.
"""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from berth import log
from berth.control.kube_api import Api, Object
from berth.errors import Conflict, KubeError, NotFound, NotLeader
from berth.kube.resource import Resource

LEASES = Resource("coordination.k8s.io", "v1", "Lease", "leases")
NEVER = -math.inf

Work = Callable[[], Awaitable[None]]


def boottime() -> float:
    """Seconds on a clock that goes on while the machine sleeps (macOS: its monotonic clock does)."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def new_identity() -> str:
    """Unique per process: a restarted one must not take its own old lease for its own."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class Election:
    """Which Lease, who we are, and the three times."""

    namespace: str
    name: str = "berth"
    identity: str = field(default_factory=new_identity)
    lease_seconds: float = 15.0
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError("election times must satisfy 0 < retry < renew < lease")


class _Sighting(NamedTuple):
    version: str
    at: float


class Elector:
    """Wins the lease, holds it while the work runs, gives it back when the work has ended."""

    def __init__(
        self,
        api: Api,
        election: Election,
        *,
        clock: Callable[[], float] = boottime,
        tell: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        self._api = api
        self._election = election
        self._clock = clock
        self._tell = tell
        self._held: Object = {}
        self._asked = False  # whether a write of ours was ever sent, answered or not
        self._may_write_until = NEVER
        self._sighting = _Sighting("", NEVER)
        self._log = log.get("berth.leader")

    def guard(self) -> None:
        """Call right before a write is sent."""
        if self._clock() >= self._may_write_until:
            raise NotLeader(f"this process does not hold the lease {self._election.name}")

    async def run(self, work: Work) -> None:
        """Wait until we lead, then run the work. Raises NotLeader as soon as the lease is lost."""
        try:
            await self._win()
            await self._lead(work)
        finally:
            await self._resign()

    async def _win(self) -> None:
        patience = self._election.renew_seconds / 2
        while not await self._attempt(self._campaign, patience):
            pause = self._election.retry_seconds * random.uniform(1.0, 1.2)
            await asyncio.sleep(pause)

    async def _lead(self, work: Work) -> None:
        self._show(True)
        try:
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(self._hold())
                await work()
                holding.cancel()
        except BaseExceptionGroup as failures:
            if failures.subgroup(NotLeader) is None:
                raise
            self._lose()
            raise NotLeader(f"the lease {self._election.name} is lost") from failures

    async def _hold(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._at_most(self._election.retry_seconds))
                self.guard()
                await self._attempt(self._renew, self._at_most(self._election.renew_seconds / 2))
        except NotLeader:
            self._lose()
            raise

    async def _attempt(self, step: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """One bounded try; no answer and refusals are the same to us: we do not lead by it."""
        try:
            async with asyncio.timeout(seconds):
                return await step()
        except (KubeError, TimeoutError) as error:
            self._log.warning("lease not written", lease=self._election.name, error=str(error) or "timed out")
            return False

    async def _campaign(self) -> bool:
        lease = await self._read()
        if lease is None:
            return await self._create()
        return self._is_free(lease) and await self._write(lease)

    async def _renew(self) -> bool:
        try:
            return await self._write(self._held)
        except (Conflict, NotFound):
            # Our own earlier write may have arrived after we gave up on it; then the lease still names us.
            if await self._campaign():
                return True
            raise NotLeader(f"another process took the lease {self._election.name}") from None

    async def _read(self) -> Object | None:
        try:
            return await self._api.get(LEASES, self._election.name, self._election.namespace)
        except NotFound:
            return None

    def _is_free(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        if spec.get("holderIdentity", "") in ("", self._election.identity):
            return True
        version = lease["metadata"]["resourceVersion"]
        if version != self._sighting.version:
            self._sighting = _Sighting(version, self._clock())
        lasts = spec.get("leaseDurationSeconds") or self._election.lease_seconds
        return self._clock() >= self._sighting.at + lasts

    async def _create(self) -> bool:
        election = self._election
        meta = {"name": election.name, "namespace": election.namespace}
        lease: Object = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": meta}
        sent_at = self._sent_at()
        return self._keep(await self._api.create(LEASES, self._ours(lease), election.namespace), sent_at)

    async def _write(self, lease: Object) -> bool:
        """Compare and swap: the resourceVersion in the lease is the one we read."""
        sent_at = self._sent_at()
        return self._keep(await self._api.replace(LEASES, self._ours(lease)), sent_at)

    def _sent_at(self) -> float:
        self._asked = True
        return self._clock()

    def _keep(self, lease: Object, sent_at: float) -> bool:
        self._held = lease
        self._may_write_until = sent_at + self._election.renew_seconds
        return True

    def _ours(self, lease: Object) -> Object:
        spec = lease.get("spec") or {}
        stays = spec.get("holderIdentity") == self._election.identity
        now = _micro_time()
        taken = {
            "holderIdentity": self._election.identity,
            "leaseDurationSeconds": math.ceil(self._election.lease_seconds),
            "acquireTime": spec.get("acquireTime", now) if stays else now,
            "renewTime": now,
            "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if stays or not spec else 1),
        }
        return {**lease, "spec": {**spec, **taken}}

    async def _resign(self) -> None:
        """Empty the lease so that a successor need not wait; a lost one is not touched again."""
        self._may_write_until = NEVER
        self._show(False)
        unsettled = self._asked and not self.lost.is_set()
        if unsettled and await self._attempt(self._release, self._election.retry_seconds):
            self._log.info("lease released", lease=self._election.name)

    async def _release(self) -> bool:
        lease = await self._read()
        if lease is None or lease["spec"].get("holderIdentity") != self._election.identity:
            return False
        emptied = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time()}
        await self._api.replace(LEASES, {**lease, "spec": {**lease["spec"], **emptied}})
        return True

    def _at_most(self, seconds: float) -> float:
        """No longer than we may still write: a loss is noticed when it happens."""
        return max(0.0, min(seconds, self._may_write_until - self._clock()))

    def _lose(self) -> None:
        self._may_write_until = NEVER
        if not self.lost.is_set():
            self.lost.set()
            self._log.error("lease lost", lease=self._election.name, identity=self._election.identity)
        self._show(False)

    def _show(self, leads: bool) -> None:
        if leads == self.leading.is_set():
            return
        if leads:
            self.leading.set()
            self._log.info("lease won", lease=self._election.name, identity=self._election.identity)
        else:
            self.leading.clear()
        self._tell(leads)


class NoElection:
    """The twin for a single process: leads from the start, the guard always passes."""

    def __init__(self, *, tell: Callable[[bool], None] = lambda leads: None) -> None:
        self.leading = asyncio.Event()
        self.lost = asyncio.Event()
        self._tell = tell

    def guard(self) -> None:
        return

    async def run(self, work: Work) -> None:
        self.leading.set()
        self._tell(True)
        try:
            await work()
        finally:
            self.leading.clear()
            self._tell(False)


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
