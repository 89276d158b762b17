"""The shape all four dialects have. Read this first.

A dialect names the kinds it watches, the webhooks it answers and the rights it needs, and builds its
controllers from a kit of shared parts. Everything else is inside its package, in the same five files:
kinds, translate, ledger, reconcile, admit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from berth.control.admission import Handler
from berth.control.controller import Controller
from berth.control.events import Recorder
from berth.control.informers import Informer, WatchSpec
from berth.control.webhooks import Webhook
from berth.kube.client import Client
from berth.metrics import Metrics
from berth.settings import Settings


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What every dialect is handed: built once in run.py, passed in the open."""

    client: Client  # refuses to write unless we lead
    watch: Callable[[WatchSpec], Informer]
    events: Recorder
    metrics: Metrics
    settings: Settings
    free: Client  # for webhooks, which answer on every replica


@dataclass(frozen=True, slots=True)
class DialectRuntime:
    """A dialect ready to run. `adopt` is called once, after every cache is filled, before any controller.

    `around` is open as long as the operator runs, on every replica: what webhooks need beyond the cluster.
    """

    controllers: tuple[Controller, ...]
    adopt: Callable[[], None]
    routes: Mapping[str, Handler] = field(default_factory=dict)
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()
    around: AbstractAsyncContextManager[object] | None = None


class Dialect(Protocol):
    name: str

    def crds(self) -> tuple[dict[str, Any], ...]: ...
    def webhooks(self) -> tuple[Webhook, ...]: ...
    def rules(self) -> tuple[dict[str, Any], ...]: ...
    def build(self, kit: Dependencies) -> DialectRuntime: ...


@runtime_checkable
class NamesItsPlans(Protocol):
    """A dialect whose webhook configurations have names of their own, or depend on settings."""

    def plans(self, settings: Settings) -> Mapping[str, tuple[Webhook, ...]]: ...


def plans_of(dialect: Dialect, settings: Settings) -> Mapping[str, tuple[Webhook, ...]]:
    """Webhooks by the name of the configuration they are registered in."""
    if isinstance(dialect, NamesItsPlans):
        return dialect.plans(settings)
    return {f"berth-{dialect.name}": dialect.webhooks()}
