"""Probes over plain HTTP, and metrics, over HTTPS where they are given a certificate.

    /healthz   alive: 200 unless a check of life fails (the kubelet then restarts the process)
    /readyz    ready: 503 with each open check and its reason until all pass, then 200
    /metrics   the registry, as Prometheus reads it

A check is a function that returns "" or a reason; it only looks, it never waits. Probes and metrics may have
an address each, or share one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from berth.control.listen import Server, parse_listen, serve
from berth.errors import UserError

Check = Callable[[], str]


class Checks:
    """Named checks of life and of readiness; parts add theirs while the process is built."""

    def __init__(self) -> None:
        self._alive: dict[str, Check] = {}
        self._ready: dict[str, Check] = {}

    def alive(self, name: str, check: Check) -> None:
        self._alive[name] = check

    def ready(self, name: str, check: Check) -> None:
        self._ready[name] = check

    def not_alive(self) -> dict[str, str]:
        return _open(self._alive)

    def not_ready(self) -> dict[str, str]:
        """What is open, name → reason; a process that is not alive is not ready either."""
        return {**_open(self._alive), **_open(self._ready)}


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where to listen, as the flags give it; empty turns a server off."""

    health: str = ""
    metrics: str = ""
    tls: ssl.SSLContext | None = None  # of the metrics; the kubelet asks for the probes without


@dataclass(frozen=True, slots=True)
class Probes:
    """What runs, and where; port 0 in the flags has become a real one here."""

    health: Server | None
    metrics: Server | None

    async def stop(self) -> None:
        for server in {id(each): each for each in (self.health, self.metrics) if each}.values():
            await server.stop()


async def serve_probes(addresses: Addresses, checks: Checks, registry: CollectorRegistry) -> Probes:
    """Start what is asked for; one server if both have the same address."""
    if addresses.tls and addresses.metrics in ("", addresses.health):
        raise UserError("--metrics-cert-dir needs --metrics-listen: metrics over HTTPS have their own port.")
    if addresses.health == addresses.metrics and addresses.health:
        app = _with_metrics(_with_health(web.Application(), checks), registry)
        both = await _serve(app, addresses.health, "--health-listen")
        return Probes(both, both)
    health = metrics = None
    if addresses.health:
        health = await _serve(_with_health(web.Application(), checks), addresses.health, "--health-listen")
    if addresses.metrics:
        app = _with_metrics(web.Application(), registry)
        metrics = await _serve_second(app, addresses, health)
    return Probes(health, metrics)


async def _serve(app: web.Application, text: str, flag: str) -> Server:
    return await serve(app, parse_listen(text, flag), flag)


async def _serve_second(app: web.Application, addresses: Addresses, first: Server | None) -> Server:
    """A second server that cannot start takes the first one with it."""
    flag = "--metrics-listen"
    try:
        return await serve(app, parse_listen(addresses.metrics, flag), flag, tls=addresses.tls)
    except BaseException:
        if first is not None:
            await first.stop()
        raise


def _with_health(app: web.Application, checks: Checks) -> web.Application:
    async def healthz(request: web.Request) -> web.Response:
        return _told(checks.not_alive())

    async def readyz(request: web.Request) -> web.Response:
        return _told(checks.not_ready())

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    return app


def _with_metrics(app: web.Application, registry: CollectorRegistry) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(registry), headers={"Content-Type": kind})

    app.router.add_get("/metrics", metrics)
    return app


def _open(checks: dict[str, Check]) -> dict[str, str]:
    reasons = {name: _reason(check) for name, check in checks.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(check: Check) -> str:
    try:
        return check()
    except Exception as error:
        return f"the check itself failed: {type(error).__name__}"


def _told(reasons: dict[str, str]) -> web.Response:
    if not reasons:
        return web.Response(text="ok\n")
    lines = "".join(f"{name}: {reason}\n" for name, reason in reasons.items())
    return web.Response(status=503, text=lines)
