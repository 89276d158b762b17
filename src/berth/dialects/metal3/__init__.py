"""The Metal3 dialect: IPPool, IPClaim, IPAddress, and Cluster API claims on the same pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.webhooks import Webhook
from berth.dialects.dialect import ClusterApiProvider, Dependencies, Dialect, DialectRuntime
from berth.dialects.metal3 import admit, crds, policies, reconcile
from berth.dialects.metal3.examples import EXAMPLES
from berth.dialects.metal3.kinds import CAPI_GROUP, GROUP, PROVIDER
from berth.dialects.metal3.settings import Metal3Settings
from berth.dialects.metal3.view import VIEW
from berth.settings import Settings

ALL = ["create", "delete", "get", "list", "patch", "update", "watch"]
READ = ["get", "list", "watch"]
STATUS = ["get", "patch", "update"]


class Metal3(Dialect):
    name = "metal3"
    view = VIEW
    settings = Metal3Settings
    examples = EXAMPLES
    provider = ClusterApiProvider(PROVIDER, "metal3-ipam-system")  # upstream's: an upgrade stays there

    def crds(self) -> tuple[dict[str, Any], ...]:
        return crds.crds()

    def webhooks(self) -> tuple[Webhook, ...]:
        return admit.webhooks()

    def rules(self) -> tuple[dict[str, Any], ...]:
        return (
            _rule(GROUP, ["ippools", "ipclaims", "ipaddresses"], ALL),
            _rule(GROUP, ["ippools/status", "ipclaims/status"], STATUS),
            _rule(CAPI_GROUP, ["ipaddressclaims", "ipaddresses"], ALL),
            _rule(CAPI_GROUP, ["ipaddressclaims/status"], STATUS),
            _rule("cluster.x-k8s.io", ["clusters"], READ),
        )

    def policies(self, settings: Settings, account: str) -> Mapping[str, dict[str, Any]]:
        return policies.policies()

    def build(self, kit: Dependencies) -> DialectRuntime:
        return reconcile.build(kit)


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
