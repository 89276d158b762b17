"""The YAML that `deploy/` holds: CRDs, RBAC, webhooks and deployments; `berth manifests` prints it.

Rights and webhooks come from the dialects themselves, so that what is installed is what the code asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from berth import __version__
from berth.control.door import SECRET
from berth.control.webhooks import Plan, Service
from berth.dialects import named
from berth.dialects.shape import Dialect, plans_of
from berth.settings import Settings

Object = dict[str, Any]
OPERATOR = "berth-operator"
API = "berth-api"
WEBHOOK = "berth-webhook"
UID = 65532


@dataclass(frozen=True, slots=True)
class Options:
    namespace: str = "berth-system"
    dialects: tuple[str, ...] = ("metal3", "kubipam", "vip")  # vitistack wants an IPAM-API and MetalLB
    image: str = f"berth:{__version__}"
    replicas: int = 2
    make_namespace: bool = True

    def chosen(self) -> tuple[Dialect, ...]:
        return named(self.dialects)

    def labels(self, name: str) -> Object:
        return {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "berth"}

    def meta(self, name: str, component: str) -> Object:
        return {"name": name, "namespace": self.namespace, "labels": self.labels(component)}


class _Plain(yaml.SafeDumper):
    """Without anchors: what is the same object in Python is written out each time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render(objects: Iterable[Object]) -> str:
    return str(yaml.dump_all(list(objects), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=110))


def crds(options: Options) -> list[Object]:
    return [crd for dialect in options.chosen() for crd in dialect.crds()]


def rbac(options: Options) -> list[Object]:
    account = {"kind": "ServiceAccount", "name": OPERATOR, "namespace": options.namespace}
    cluster_meta = {"name": OPERATOR, "labels": options.labels(OPERATOR)}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": options.meta(OPERATOR, OPERATOR)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_meta,
            "rules": _cluster_rules(options),
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": cluster_meta,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": OPERATOR},
            "subjects": [account],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": options.meta(OPERATOR, OPERATOR),
            "rules": _own_rules(),
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": options.meta(OPERATOR, OPERATOR),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": OPERATOR},
            "subjects": [account],
        },
        *_local_rights(options, account),
    ]


def _local_rights(options: Options, account: Object) -> list[Object]:
    """Rights which a dialect needs in one namespace only; the namespace must be there."""
    group = "rbac.authorization.k8s.io"
    found: list[Object] = []
    for dialect in options.chosen():
        ask = getattr(dialect, "local_rules", None)
        for namespace, rules in (ask(Settings()) if ask else {}).items():
            meta = {"name": f"{OPERATOR}-{dialect.name}", "namespace": namespace}
            meta["labels"] = options.labels(OPERATOR)
            role = {"apiGroup": group, "kind": "Role", "name": meta["name"]}
            found += [
                {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": list(rules)},
                {
                    "apiVersion": f"{group}/v1",
                    "kind": "RoleBinding",
                    "metadata": meta,
                    "roleRef": role,
                    "subjects": [account],
                },
            ]
    return found


def _cluster_rules(options: Options) -> list[Object]:
    return [*(rule for dialect in options.chosen() for rule in dialect.rules()), *_every_rules(options)]


def _every_rules(options: Options) -> list[Object]:
    """Whatever the dialects: Events, and the registration of webhooks."""
    kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    registered = sorted({plan.name for plan in _plans(options)})
    return [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": kinds, "verbs": ["create"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": kinds,
            "resourceNames": registered,
            "verbs": ["get", "update"],
        },
    ]


def _own_rules() -> list[Object]:
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


def _plans(options: Options) -> list[Plan]:
    target = Service(options.namespace, WEBHOOK)
    return [
        Plan(name, webhooks, target)
        for dialect in options.chosen()
        for name, webhooks in plans_of(dialect, Settings()).items()
        if webhooks
    ]


def webhooks(options: Options) -> list[Object]:
    """As the operator registers them at its start; the CA is filled in then."""
    return [obj for plan in _plans(options) for _, obj in plan.configurations()]


def operator(options: Options) -> list[Object]:
    labels = options.labels(OPERATOR)
    return [
        *_namespace(options),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": options.meta(OPERATOR, OPERATOR),
            "spec": {
                "replicas": options.replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _operator_pod(options)},
            },
        },
        _service(options, WEBHOOK, {"name": "webhook", "port": 443, "targetPort": "webhook"}),
        _service(options, f"{OPERATOR}-metrics", {"name": "metrics", "port": 8080, "targetPort": "health"}),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": options.meta(OPERATOR, OPERATOR),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        },
    ]


def _operator_pod(options: Options) -> Object:
    flags = [
        "operator",
        f"--dialects={','.join(options.dialects)}",
        "--leader-elect",
        f"--lease-namespace={options.namespace}",
        "--webhook-port=9443",
        f"--webhook-service={options.namespace}/{WEBHOOK}",
        "--health-listen=:8080",
    ]
    if {"vip", "vitistack"} <= set(options.dialects):
        flags.append("--vip-classes=paas.org/vip")  # both serve Services; without a class is vitistack's
    if "vitistack" in options.dialects:
        flags.append(f"--api-url=http://{API}.{options.namespace}.svc:3000/v2")
    ports = [
        {"name": "health", "containerPort": 8080},
        {"name": "webhook", "containerPort": 9443},
    ]
    container = {
        "name": "operator",
        "image": options.image,
        "args": flags,
        "ports": ports,
        "livenessProbe": _probe("/healthz", "health"),
        "readinessProbe": _probe("/readyz", "health"),
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _locked_down(),
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": options.labels(OPERATOR)},
    }
    return {
        "serviceAccountName": OPERATOR,
        "terminationGracePeriodSeconds": 15,
        "securityContext": _pod_security(),
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [spread],
        "containers": [container],
    }


def api(options: Options) -> list[Object]:
    """One replica on SQLite: one writer, one volume. For several, a PostgreSQL address in BERTH_DATABASE."""
    labels = options.labels(API)
    container = {
        "name": "api",
        "image": options.image,
        "args": [
            "api",
            "--listen=0.0.0.0:3000",
            "--database=sqlite:////data/berth.db",
            "--pepper-file=/data/pepper",
        ],
        "ports": [{"name": "http", "containerPort": 3000}],
        "livenessProbe": _probe("/healthz", "http"),
        "readinessProbe": _probe("/readyz", "http"),
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": _locked_down(),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}},
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 15,
        "securityContext": {**_pod_security(), "fsGroup": UID},
        "containers": [container],
    }
    return [
        *_namespace(options),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": options.meta(API, API),
            "spec": {
                "replicas": 1,
                "serviceName": API,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
                "volumeClaimTemplates": [claim],
            },
        },
        _service(options, API, {"name": "http", "port": 3000, "targetPort": "http"}, component=API),
    ]


def bundle(options: Options) -> list[Object]:
    """All an operator needs, in one file. The webhooks are registered by the operator itself."""
    return [*_namespace(options), *crds(options), *rbac(options), *_without_namespace(operator(options))]


def everything(options: Options) -> list[Object]:
    return [*bundle(options), *_without_namespace(api(options))]


def chart_files(options: Options) -> dict[str, str]:
    """The generated files of the operator's Helm chart: CRDs, and the rules each dialect needs."""
    files = {f"crds/{d.name}.yaml": render(d.crds()) for d in options.chosen() if d.crds()}
    files |= {f"files/rules/{d.name}.yaml": _listed(d.rules()) for d in options.chosen()}
    files["files/rules/every.yaml"] = _listed(_every_rules(options))
    files["files/rules/own.yaml"] = _listed(_own_rules())
    return files


def _listed(rules: Iterable[Object]) -> str:
    return str(yaml.dump(list(rules), Dumper=_Plain, sort_keys=False, width=110))


def _without_namespace(objects: list[Object]) -> list[Object]:
    return [obj for obj in objects if obj["kind"] != "Namespace"]


def _namespace(options: Options) -> list[Object]:
    if not options.make_namespace:
        return []
    meta = {"name": options.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": meta}]


def _service(options: Options, name: str, port: Object, component: str = OPERATOR) -> Object:
    spec = {"selector": options.labels(component), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": options.meta(name, component), "spec": spec}


def _probe(path: str, port: str) -> Object:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 10, "timeoutSeconds": 3}


def _pod_security() -> Object:
    return {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "runAsGroup": UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _locked_down() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
