"""What runs: the operator's Deployment, the IPAM-API's StatefulSet, their Services and NetworkPolicies."""

from __future__ import annotations

from berth.manifests.certificates import CERTS, TLS_SECRET, certificates
from berth.manifests.options import API, OPERATOR, Object, Options
from berth.manifests.rights import local_rules
from berth.settings import Settings

UID = 65532


def operator(options: Options) -> list[Object]:
    labels = options.labels(OPERATOR)
    return [
        *namespaces(options),
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
        *certificates(options),
        _service(options, options.webhook_service, {"name": "webhook", "port": 443, "targetPort": "webhook"}),
        _service(options, f"{OPERATOR}-metrics", {"name": "metrics", "port": 8080, "targetPort": "health"}),
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": options.meta(OPERATOR, OPERATOR),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        },
        _network_policy(options, OPERATOR, _reached(options)),
    ]


def _reached(options: Options) -> list[Object]:
    """The webhooks by the API servers, if we are told who they are: they are no pods. The rest by anybody."""
    servers = [{"ipBlock": {"cidr": cidr}} for cidr in options.api_server_cidrs]
    webhook: Object = {"ports": [{"port": "webhook"}], **({"from": servers} if servers else {})}
    return [webhook, {"ports": [{"port": "health"}]}]


def _operator_flags(options: Options) -> list[str]:
    flags = [
        "operator",
        f"--dialects={','.join(options.dialects)}",
        "--leader-elect",
        f"--lease-namespace={options.namespace}",
        "--webhook-port=9443",
        f"--webhook-service={options.namespace}/{options.webhook_service}",
        *((f"--webhook-cert-dir={CERTS}",) if options.cert_manager else ()),
        "--health-listen=:8080",
    ]
    serving = [dialect for dialect in options.chosen() if dialect.service_classes(Settings())]
    if len(serving) > 1:
        flags += [f"{dialect.classes_flag}={dialect.own_class}" for dialect in serving if dialect.own_class]
    if any(dialect.needs_api for dialect in options.chosen()):
        flags.append(f"--api-url={options.api_url or f'http://{API}.{options.namespace}.svc:3000/v2'}")
    return flags


def _operator_pod(options: Options) -> Object:
    ports = [
        {"name": "health", "containerPort": 8080},
        {"name": "webhook", "containerPort": 9443},
    ]
    container: Object = {
        "name": "operator",
        "image": options.image,
        "args": _operator_flags(options),
        "ports": ports,
        "livenessProbe": _probe("/healthz", "health"),
        "readinessProbe": _probe("/readyz", "health"),
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _locked_down(),
    }
    pod: Object = {}
    if options.cert_manager:
        container["volumeMounts"] = [{"name": "certs", "mountPath": CERTS, "readOnly": True}]
        pod["volumes"] = [{"name": "certs", "secret": {"secretName": TLS_SECRET}}]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": options.labels(OPERATOR)},
    }
    return {
        "serviceAccountName": OPERATOR,
        "terminationGracePeriodSeconds": 15,
        "securityContext": _pod_security(options),
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [spread],
        "containers": [container],
        **pod,
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
        "securityContext": {
            **_pod_security(options),
            **({} if options.openshift else {"fsGroup": UID}),
            "fsGroupChangePolicy": "OnRootMismatch",  # what the API made private stays so
        },
        "containers": [container],
    }
    return [
        *_own_namespace(options),
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
        _network_policy(options, API, [{"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}]),
    ]


def namespaces(options: Options) -> list[Object]:
    """The operator's, and those where a dialect keeps records. MetalLB's comes with MetalLB."""
    chosen = options.chosen()
    beside = {name for dialect in chosen for name in local_rules(dialect)}
    foreign = {name for dialect in chosen for name in dialect.foreign_namespaces(Settings())}
    wanted = sorted(beside - foreign - {options.namespace}) if options.make_namespace else []
    return [*_own_namespace(options), *(_namespace(name) for name in wanted)]


def _own_namespace(options: Options) -> list[Object]:
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [_namespace(options.namespace, labels=restricted)] if options.make_namespace else []


def _namespace(name: str, **meta: Object) -> Object:
    """Without labels where pods of others may run: they need not keep our rules."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **meta}}


def _service(options: Options, name: str, port: Object, component: str = OPERATOR) -> Object:
    spec = {"selector": options.labels(component), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": options.meta(name, component), "spec": spec}


def _network_policy(options: Options, component: str, ingress: list[Object]) -> Object:
    """Only where the network keeps such policies does it keep anybody out."""
    spec = {
        "podSelector": {"matchLabels": options.labels(component)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    about = options.meta(component, component)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": about, "spec": spec}


def _probe(path: str, port: str) -> Object:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 10, "timeoutSeconds": 3}


def _pod_security(options: Options) -> Object:
    """OpenShift's restricted-v2 gives each namespace users of its own, and refuses any other."""
    user = {} if options.openshift else {"runAsUser": UID, "runAsGroup": UID}
    return {"runAsNonRoot": True, **user, "seccompProfile": {"type": "RuntimeDefault"}}


def _locked_down() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
