"""The vitistack dialect: LoadBalancer Services get their address from the IPAM-API during admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.webhooks import Webhook
from berth.dialects.dialect import Dependencies, Dialect, DialectRuntime
from berth.dialects.vitistack import admit, policies, reconcile
from berth.dialects.vitistack.examples import EXAMPLES
from berth.dialects.vitistack.settings import VitistackSettings
from berth.dialects.vitistack.view import VIEW
from berth.settings import Settings

Object = dict[str, Any]


class Vitistack(Dialect):
    name = "vitistack"
    view = VIEW
    settings = VitistackSettings
    examples = EXAMPLES
    needs_api = True
    advice = "vitistack needs --api-url, and beside vip each needs loadBalancerClass values of its own."

    def crds(self) -> tuple[Object, ...]:
        """None of our own: Services, and MetalLB's IPAddressPool."""
        return ()

    def webhooks(self) -> tuple[Webhook, ...]:
        return admit.webhooks(VitistackSettings())

    def plans(self, settings: Settings) -> Mapping[str, tuple[Webhook, ...]]:
        return admit.plans(settings.of(VitistackSettings))

    def rules(self) -> tuple[Object, ...]:
        """Cluster-wide. Secrets are read by name, never listed; Services are created in dry runs only."""
        return (
            _rule("", ["services"], ["get", "list", "watch", "create", "update", "patch"]),
            _rule("", ["services/status"], ["patch"]),
            _rule("", ["secrets"], ["get"]),
            _rule("", ["namespaces"], ["get"]),
            _rule("", ["events"], ["create", "patch"]),
            _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
        )

    def local_rules(self, settings: Settings) -> Mapping[str, tuple[Object, ...]]:
        """What is needed in one namespace only."""
        records = ["get", "list", "watch", "create", "patch", "delete"]
        own = (
            _rule("", ["configmaps"], records),
            _rule("", ["secrets"], ["get", "create", "update", "delete"]),
        )
        metallb = (
            _rule("", ["pods"], ["list"]),
            _rule("metallb.io", ["ipaddresspools"], ["get", "list", "watch", "create", "patch", "delete"]),
        )
        told = settings.of(VitistackSettings)
        places = {told.namespace: own}
        return {**places, told.metallb_namespace: metallb} if told.metallb_namespace else places

    def foreign_namespaces(self, settings: Settings) -> frozenset[str]:
        return frozenset({settings.of(VitistackSettings).metallb_namespace})

    def policies(self, settings: Settings, account: str) -> Mapping[str, Object]:
        return policies.policies(settings.of(VitistackSettings))

    def service_classes(self, settings: Settings) -> tuple[str, ...]:
        return settings.of(VitistackSettings).classes

    def check(self, settings: Settings) -> None:
        settings.of(VitistackSettings).refuse_early_return(settings.webhook_deadline_seconds)

    def build(self, kit: Dependencies) -> DialectRuntime:
        return reconcile.build(kit)


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
