"""START HERE: builds the operator from its parts, and one task group owns everything that runs.

    credentials ─► client ─► mirror (caches, kept in step by watches)
                     │          │ filled
                     │          ▼
                     │   dialects, each with its controllers ◄── the lease says we may write
                     └─► admission server, Events, probes and metrics: on every replica, leading or not

From a change in the cluster to an address and back: docs/flow.md.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import combinations

from berth import log
from berth.control.certs import Certificates, Directory
from berth.control.events import Recorder
from berth.control.health import Addresses, Checks, Probes, serve_probes
from berth.control.informers import Informers
from berth.control.leader import Election, Elector, NoElection
from berth.control.listen import Server
from berth.control.webhook_server import WebhookServer
from berth.dialects import named
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.errors import UserError
from berth.kube import auth
from berth.kube.client import Client
from berth.metrics import Metrics
from berth.settings import Settings

_log = log.get("berth.run")
# New objects before the collector looks through them. Its own 700 doubled the time that a large review takes,
# of which nothing is garbage before the answer.
COLLECTED_AFTER = (50_000, 20, 50)
DRAIN_SECONDS = 1.0  # for Events that wait when we are told to stop


@dataclass(frozen=True, slots=True)
class Listening:
    """Told to whoever started us, once everything listens. 0: off."""

    health: int
    metrics: int
    webhook: int


async def operate(settings: Settings, tell: Callable[[Listening], None] = lambda ports: None) -> None:
    """The operator, until cancelled."""
    _refuse_two_masters(settings)
    credentials = auth.load(settings.kubeconfig)
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        # Leases, certificates and registrations are written by every replica; all else by the leader alone.
        free = await stack.enter_async_context(Client(credentials, user_agent="berth-operator"))
        await free.check()  # a server that cannot be reached is told now, in one sentence
        elector = _elector(settings, free, metrics)
        client = Client(
            credentials,
            guard=elector.guard,
            user_agent="berth-operator",
            in_flight=settings.at_once,
            observe=metrics.kube_request,
        )
        await stack.enter_async_context(client)
        await Operator(settings, Clients(client, free), elector, metrics).run(tell)


@dataclass(frozen=True, slots=True)
class Clients:
    leading: Client  # refuses to write unless we lead
    free: Client


class Operator:
    def __init__(
        self, settings: Settings, clients: Clients, elector: Elector | NoElection, metrics: Metrics
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._elector = elector
        self._metrics = metrics
        self._mirror = Informers(clients.leading, settings.namespace)
        self._events = Recorder(clients.leading, metrics, component="berth")
        self._dialects = named(settings.dialects)
        kit = Dependencies(clients.leading, self._mirror.watch, self._events, metrics, settings, clients.free)
        self._built: list[DialectRuntime] = [dialect.build(kit) for dialect in self._dialects]
        self._door: WebhookServer | None = None
        self._scraped = _certificates(settings)
        self._filled = False
        self._checks = Checks()
        self._checks.ready("caches", lambda: "" if self._filled else "the first lists are not complete")

    async def run(self, tell: Callable[[Listening], None]) -> None:
        gc.set_threshold(*COLLECTED_AFTER)
        async with AsyncExitStack() as stack:
            probes = await self._probes()
            stack.push_async_callback(probes.stop)
            for built in self._built:
                if built.around is not None:
                    await stack.enter_async_context(built.around)
            door = await self._open_door(stack)
            tell(Listening(_port(probes.health), _port(probes.metrics), door.port if door else 0))
            self._door = door
            async with asyncio.TaskGroup() as tasks:
                always = [self._mirror.run(), self._events.run(), *(door.tasks() if door else ())]
                always += [self._scraped.run()] if self._scraped else []
                running = [tasks.create_task(work) for work in always]
                await self._mirror.filled()
                self._filled = True
                gc.freeze()  # the caches are no garbage, and to look through them takes long
                try:
                    await self._elector.run(self._work)
                finally:
                    await self._events.drain(DRAIN_SECONDS)
                    for task in running:
                        task.cancel()

    async def _open_door(self, stack: AsyncExitStack) -> WebhookServer | None:
        """The admission server, where it is asked for: on every replica, leading or not."""
        if not self._settings.serves_webhooks:
            return None
        routes = {path: handler for built in self._built for path, handler in built.routes.items()}
        plans = {
            name: webhooks
            for dialect in self._dialects
            for name, webhooks in dialect.plans(self._settings).items()
        }
        door = WebhookServer(self._settings, self._clients.free, self._metrics)
        await door.open(stack, routes, plans)
        self._checks.ready("webhook", door.not_ready)
        return door

    async def _work(self) -> None:
        """What only the leader does: adopt what is there, then serve."""
        async with asyncio.TaskGroup() as group:
            for built in self._built:
                built.adopt()
                for controller in built.controllers:
                    group.create_task(controller.run())
                for task in built.tasks:
                    group.create_task(task())
            for work in self._door.leading_tasks() if self._door else ():
                group.create_task(work)
            _log.info("serving", dialects=",".join(dialect.name for dialect in self._dialects))

    async def _probes(self) -> Probes:
        health, metrics = self._settings.health_listen, self._settings.metrics_listen
        if self._scraped:
            await self._scraped.refresh()
        tls = self._scraped.context if self._scraped else None
        where = Addresses(health, metrics or health, tls)
        return await serve_probes(where, self._checks, self._metrics.registry)


def _certificates(settings: Settings) -> Certificates | None:
    """For the metrics; the webhooks' are the door's own."""
    folder = settings.metrics_cert_dir
    return None if folder is None else Certificates(Directory(folder))


def _refuse_two_masters(settings: Settings) -> None:
    """A Service has one dialect: two that both wrote to it would take its address in turns."""
    for one, other in combinations(named(settings.dialects), 2):
        both = set(one.service_classes(settings)) & set(other.service_classes(settings))
        if both:
            classes = ", ".join(repr(name) for name in sorted(both))
            raise UserError(
                f"{one.name} and {other.name} would both serve Services of loadBalancerClass {classes} "
                "('' is a Service without one): give them different lists with "
                f"{one.classes_flag} and {other.classes_flag}."
            )


def _elector(settings: Settings, client: Client, metrics: Metrics) -> Elector | NoElection:
    if not settings.leader_elect:
        return NoElection(tell=metrics.leading)
    election = Election(
        settings.lease_namespace,
        settings.lease_name,
        lease_seconds=settings.lease_seconds,
        renew_seconds=settings.lease_seconds * 2 / 3,
        retry_seconds=settings.lease_seconds * 2 / 15,
    )
    return Elector(client, election, tell=metrics.leading)


def _port(server: Server | None) -> int:
    return 0 if server is None else server.port
