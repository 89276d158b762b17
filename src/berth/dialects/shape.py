"""The shape all four dialects have. Read this first.

A dialect names the kinds it watches, the webhooks it answers and the rights it needs, and builds its
controllers from a kit of shared parts. Everything else is inside its package, in the same five files:
kinds, translate, ledger, reconcile, admit.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from berth.control.admission import Handler
from berth.control.controller import Controller
from berth.control.events import Recorder
from berth.control.mirror import Kept, Watched
from berth.control.webhooks import Webhook
from berth.kube.client import Client
from berth.metrics import Metrics
from berth.settings import Settings


@dataclass(frozen=True, slots=True)
class Kit:
    """What every dialect is handed: built once in run.py, passed in the open."""

    client: Client
    keep: Callable[[Watched], Kept]
    events: Recorder
    metrics: Metrics
    settings: Settings


@dataclass(frozen=True, slots=True)
class Built:
    """A dialect ready to run. `adopt` is called once, after every cache is filled, before any controller."""

    controllers: tuple[Controller, ...]
    adopt: Callable[[], None]
    routes: Mapping[str, Handler] = field(default_factory=dict)
    tasks: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()


class Dialect(Protocol):
    name: str

    def crds(self) -> tuple[dict[str, Any], ...]: ...
    def webhooks(self) -> tuple[Webhook, ...]: ...
    def rules(self) -> tuple[dict[str, Any], ...]: ...
    def build(self, kit: Kit) -> Built: ...
