"""One frozen dataclass with everything the operator can be told, read once at start.

The command line fills it (cli/operator.py): flags first, then `BERTH_*` environment names, then these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# Namespaces whose Services the vitistack dialect never touches: upstream's list.
EXCLUDED_NAMESPACES = (
    *("cert-manager", "kube-node-lease", "kube-public", "kube-system", "kubemacpool-system"),
    *("kubelet-serving-cert-approver", "kubevirt", "letsencrypt", "eventus", "fluent", "kyverno"),
    *("metallb-system", "monitoring", "rook-ceph", "falco", "trivy-system", "ipam-system"),
)
# Labels of MetalLB's controller: its plain manifests' and its Helm chart's.
METALLB_LABELS = (
    "app=metallb,component=controller",
    "app.kubernetes.io/name=metallb,app.kubernetes.io/component=controller",
)


@dataclass(frozen=True, slots=True)
class Settings:
    kubeconfig: Path | None = None
    dialects: tuple[str, ...] = ()
    namespace: str = ""  # watch only this one; empty: all
    watch_filter: str = ""  # Cluster API's label value; empty: everything

    leader_elect: bool = False
    lease_name: str = "berth-operator"
    lease_namespace: str = "berth-system"
    lease_seconds: float = 15.0

    webhook_port: int = 0  # 0: off
    webhook_cert_dir: Path | None = None  # absent: a certificate of our own
    webhook_client_ca: Path | None = None  # absent: whoever reaches the port is answered
    webhook_url: str = ""  # outside a cluster: registered with this address
    webhook_service: str = "berth-system/berth-webhook"
    webhook_deadline_seconds: float = 5.0

    health_listen: str = "127.0.0.1:0"
    metrics_listen: str = ""  # empty: together with health
    metrics_cert_dir: Path | None = None  # absent: plain HTTP
    log_level: str = "info"

    at_once: int = 64  # claims worked on at a time
    api_url: str = ""  # the IPAM-API, for vitistack
    metal3_sweep_seconds: float = 60.0  # how often address objects without a claim are looked for
    metal3_orphan_seconds: float = 600.0  # how long one must have been without before it is collected
    vip_classes: tuple[str, ...] = ("",)  # loadBalancerClass values served; "" is a Service without one
    vip_resync_seconds: float = 60.0  # how often everything is looked at once more
    vitistack_classes: tuple[str, ...] = ("",)
    vitistack_namespace: str = "ipam-system"  # where the default secret and the records are
    vitistack_zone: str = "inet"  # for Services that name none
    vitistack_excluded: tuple[str, ...] = EXCLUDED_NAMESPACES
    vitistack_bare_addresses: bool = False  # write addresses without their mask, as upstream's operator does
    vitistack_pending_seconds: float = 90.0  # how long an admitted Service may take to be stored
    vitistack_resync_seconds: float = 600.0  # how often everything is compared once more
    vitistack_heartbeat_seconds: float = 30.0  # how often the IPAM-API is told what the cluster lists
    metallb_namespace: str = "metallb-system"  # empty: there is no MetalLB, only annotations are written
    metallb_labels: tuple[str, ...] = METALLB_LABELS
    when_api_is_down: str = "refuse"  # or "admit": with a warning, and the controller serves later
    api_seconds: float = 3.0  # for one call of the IPAM-API
    api_ca_file: Path | None = None  # whom to trust there, beside the usual authorities
    api_token_file: Path | None = None  # bearer token, where the IPAM-API wants one

    @property
    def serves_webhooks(self) -> bool:
        return bool(self.webhook_port or self.webhook_url)
