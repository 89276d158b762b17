"""The vitistack dialect: LoadBalancer Services get their address from the IPAM-API during admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.webhooks import Webhook
from berth.dialects.dialect import Dependencies, DialectRuntime
from berth.dialects.vitistack import admit, reconcile
from berth.settings import Settings

Object = dict[str, Any]


class Vitistack:
    name = "vitistack"

    def crds(self) -> tuple[Object, ...]:
        """None of our own: Services, and MetalLB's IPAddressPool."""
        return ()

    def webhooks(self) -> tuple[Webhook, ...]:
        return admit.webhooks(Settings())

    def plans(self, settings: Settings) -> Mapping[str, tuple[Webhook, ...]]:
        return admit.plans(settings)

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
        places = {settings.vitistack_namespace: own}
        return {**places, settings.metallb_namespace: metallb} if settings.metallb_namespace else places

    def build(self, kit: Dependencies) -> DialectRuntime:
        return reconcile.build(kit)


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
