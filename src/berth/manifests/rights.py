"""Rights and webhooks, as the dialects themselves ask for them.

ClusterRole            what the chosen dialects watch and write, Events, registering webhooks
Role, own namespace    the leader's lease, the certificate all replicas share
Role, elsewhere        what a dialect needs in one namespace only (its records', MetalLB's)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berth.control.webhook_server import SECRET
from berth.control.webhooks import Plan, Service
from berth.dialects.dialect import Dialect
from berth.manifests.options import OPERATOR, Object, Options
from berth.settings import Settings

GROUP = "rbac.authorization.k8s.io"
CONFIGURATIONS = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]


def rbac(options: Options) -> list[Object]:
    cluster = {"name": OPERATOR, "labels": options.labels(OPERATOR)}
    own = options.meta(OPERATOR, OPERATOR)
    objects = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own},
        *_bound("ClusterRole", cluster, cluster_rules(options), options),
        *_bound("Role", own, own_rules(), options),
    ]
    for dialect in options.chosen():
        for namespace, rules in local_rules(dialect).items():
            meta = {**own, "name": f"{OPERATOR}-{dialect.name}", "namespace": namespace}
            objects += _bound("Role", meta, rules, options)
    return objects


def _bound(kind: str, meta: Object, rules: list[Object], options: Options) -> list[Object]:
    """A role, and the operator's account bound to it."""
    account = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": options.namespace}
    reference = {"apiGroup": GROUP, "kind": kind, "name": meta["name"]}
    head: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": meta}
    binding = {**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [account]}
    return [{**head, "rules": rules}, binding]


def cluster_rules(options: Options) -> list[Object]:
    return [*(rule for dialect in options.chosen() for rule in dialect.rules()), *every_rules(options)]


def every_rules(options: Options) -> list[Object]:
    """Whatever the dialects: Events, and the registration of webhooks where there are any."""
    registered = sorted({name for dialect in options.chosen() for name in registered_by(dialect)})
    return [*event_rules(), *(webhook_rules(registered) if registered else ())]


def event_rules() -> list[Object]:
    return [{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]


def webhook_rules(names: list[str]) -> list[Object]:
    """Never with an empty list: that would mean every configuration of the cluster."""
    kinds = {"apiGroups": ["admissionregistration.k8s.io"], "resources": CONFIGURATIONS}
    return [{**kinds, "verbs": ["create"]}, {**kinds, "resourceNames": names, "verbs": ["get", "update"]}]


def own_rules() -> list[Object]:
    """In the operator's own namespace: its lease, and the certificate all replicas share."""
    return [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": [SECRET],
            "verbs": ["get", "update"],
        },
    ]


def local_rules(dialect: Dialect) -> Mapping[str, list[Object]]:
    """Namespace → what the dialect needs there and nowhere else."""
    return {namespace: list(rules) for namespace, rules in dialect.local_rules(Settings()).items()}


def plans(options: Options) -> list[Plan]:
    target = Service(options.namespace, options.webhook_service)
    return [
        Plan(name, webhooks, target)
        for dialect in options.chosen()
        for name, webhooks in dialect.plans(Settings()).items()
        if webhooks
    ]


def registered_by(dialect: Dialect) -> list[str]:
    """The names of the webhook configurations the dialect keeps."""
    return sorted(name for name, webhooks in dialect.plans(Settings()).items() if webhooks)


def webhooks(options: Options) -> list[Object]:
    """As the operator registers them at its start; the CA is filled in then."""
    return [obj for plan in plans(options) for _, obj in plan.configurations()]
