"""The kubipam dialect: IPAMRange and IPAMRequest. A lease is the request's own status."""

from __future__ import annotations

from typing import Any

from berth.control.webhooks import Webhook
from berth.dialects.dialect import Dependencies, Dialect, DialectRuntime
from berth.dialects.kubipam import crds, reconcile
from berth.dialects.kubipam.examples import EXAMPLES
from berth.dialects.kubipam.kinds import GROUP
from berth.dialects.kubipam.orphans import AuditSettings
from berth.dialects.kubipam.view import VIEW


class Kubipam(Dialect):
    name = "kubipam"
    view = VIEW
    examples = EXAMPLES

    def __init__(self, audit: AuditSettings | None = None) -> None:
        self._audit = audit or AuditSettings()

    def crds(self) -> tuple[dict[str, Any], ...]:
        return crds.crds()

    def webhooks(self) -> tuple[Webhook, ...]:
        return ()  # the schema's own rules say all there is to say, also while no operator runs

    def rules(self) -> tuple[dict[str, Any], ...]:
        return (
            _rule(["ipamranges", "ipamrequests"], ["get", "list", "patch", "update", "watch"]),
            _rule(["ipamranges/status", "ipamrequests/status"], ["get", "patch"]),
        )

    def build(self, kit: Dependencies) -> DialectRuntime:
        return reconcile.build(kit, self._audit)


def _rule(resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [GROUP], "resources": resources, "verbs": verbs}
