"""The shape all dialects have. Read this first.

A dialect names the kinds it watches, the webhooks it answers and the rights it needs, builds its controllers
from the shared parts it is handed, and shows itself to people. Everything else is inside its package:

    kinds, translate, claims, pools, leases, admit, reconcile     what it does
    settings                                                      what it can be told
    crds, policies, view, examples                                what it installs and shows
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from berth.control.admission import Handler
from berth.control.controller import Controller
from berth.control.events import Recorder
from berth.control.informers import Informer, WatchSpec
from berth.control.webhooks import Webhook
from berth.dialects.examples import Examples
from berth.dialects.view import View
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


@dataclass(frozen=True, slots=True)
class NoSettings:
    """Of a dialect that nothing is told."""


class ClusterApiProvider(NamedTuple):
    """As clusterctl knows a dialect: its name there, and the namespace it is installed in."""

    name: str
    namespace: str


class Dialect(Protocol):
    """The four methods without a body are what a dialect must have; the rest is as most have it."""

    name: str
    view: View
    settings: type[Any] = NoSettings  # a dataclass of what it can be told, all of it with defaults
    examples: Examples = Examples()
    needs_api: bool = False  # the IPAM-API: such a dialect is served only where it is asked for
    own_class: str = ""  # the loadBalancerClass it serves where another dialect serves Services without one
    advice: str = ""  # a sentence for those who choose dialects
    provider: ClusterApiProvider | None = None

    def crds(self) -> tuple[dict[str, Any], ...]: ...
    def webhooks(self) -> tuple[Webhook, ...]: ...
    def rules(self) -> tuple[dict[str, Any], ...]: ...
    def build(self, kit: Dependencies) -> DialectRuntime: ...

    def plans(self, settings: Settings) -> Mapping[str, tuple[Webhook, ...]]:
        """Webhooks by the name of the configuration they are registered in."""
        return {f"berth-{self.name}": self.webhooks()}

    def local_rules(self, settings: Settings) -> Mapping[str, tuple[dict[str, Any], ...]]:
        """Namespace → what is needed there and nowhere else."""
        return {}

    def foreign_namespaces(self, settings: Settings) -> frozenset[str]:
        """Which of those come with somebody else's installation: never ours to make or to delete."""
        return frozenset()

    def policies(self, settings: Settings, account: str) -> Mapping[str, dict[str, Any]]:
        """ValidatingAdmissionPolicies by name; `account` is the operator's own."""
        return {}

    def service_classes(self, settings: Settings) -> tuple[str, ...]:
        """The loadBalancerClass values it serves, "" for Services without one; nothing: it serves none."""
        return ()

    def check(self, settings: Settings) -> None:
        """Raises a UserError where what was told makes no sense together."""
        return

    @property
    def classes_flag(self) -> str:
        return f"--{self.name}-classes"
