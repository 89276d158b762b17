"""The VIP dialect: IPGroup and Services of type LoadBalancer, and the way there from VirtualIP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.webhooks import Webhook
from berth.dialects.dialect import Dependencies, Dialect, DialectRuntime
from berth.dialects.vip import admit, crds, policies, reconcile
from berth.dialects.vip.examples import EXAMPLES
from berth.dialects.vip.kinds import GROUP, OWN_CLASS
from berth.dialects.vip.settings import VipSettings
from berth.dialects.vip.view import VIEW
from berth.settings import Settings

READ = ["get", "list", "watch"]
WRITE = ["create", "delete", "get", "list", "patch", "watch"]
EDIT = ["get", "list", "patch", "update", "watch"]


class Vip(Dialect):
    name = "vip"
    view = VIEW
    settings = VipSettings
    examples = EXAMPLES
    own_class = OWN_CLASS

    def crds(self) -> tuple[dict[str, Any], ...]:
        return crds.crds()

    def webhooks(self) -> tuple[Webhook, ...]:
        return admit.webhooks()

    def rules(self) -> tuple[dict[str, Any], ...]:
        """An update is how a finalizer goes. Services are created and deleted as clones only."""
        return (
            _rule("", ["services"], [*WRITE, "update"]),
            _rule("", ["services/status"], ["patch"]),
            _rule("", ["events"], ["create", "patch"]),
            _rule(GROUP, ["ips"], WRITE),
            _rule(GROUP, ["ipgroups", "virtualips"], EDIT),
            _rule(GROUP, ["ipgroups/status", "virtualips/status"], ["patch"]),
            _rule(GROUP, ["groupsegmentmappings"], READ),
            _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),  # who may restore
        )

    def policies(self, settings: Settings, account: str) -> Mapping[str, dict[str, Any]]:
        return policies.policies(account)

    def service_classes(self, settings: Settings) -> tuple[str, ...]:
        return settings.of(VipSettings).classes

    def build(self, kit: Dependencies) -> DialectRuntime:
        return reconcile.build(kit)


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}
