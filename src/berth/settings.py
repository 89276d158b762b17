"""One frozen dataclass with everything the operator can be told, read once at start.

The command line fills it (cli/operator.py): flags first, then `BERTH_*` environment names, then these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ALL_DIALECTS = ("metal3", "kubipam", "vip", "vitistack")


@dataclass(frozen=True, slots=True)
class Settings:
    kubeconfig: Path | None = None
    dialects: tuple[str, ...] = ALL_DIALECTS
    namespace: str = ""  # watch only this one; empty: all
    watch_filter: str = ""  # Cluster API's label value; empty: everything

    leader_elect: bool = False
    lease_name: str = "berth-operator"
    lease_namespace: str = "berth-system"
    lease_seconds: float = 15.0

    webhook_port: int = 0  # 0: off
    webhook_cert_dir: Path | None = None  # absent: a certificate of our own
    webhook_url: str = ""  # outside a cluster: registered with this address
    webhook_service: str = "berth-system/berth-webhook"
    webhook_deadline_seconds: float = 5.0

    health_listen: str = "127.0.0.1:0"
    metrics_listen: str = ""  # empty: together with health
    log_level: str = "info"

    at_once: int = 64  # claims worked on at a time
    api_url: str = ""  # the IPAM-API, for vitistack
    vip_classes: tuple[str, ...] = ("",)  # loadBalancerClass values served; "" is a Service without one
    vip_resync_seconds: float = 60.0  # how often everything is looked at once more
    vitistack_classes: tuple[str, ...] = ("",)

    @property
    def serves_webhooks(self) -> bool:
        return bool(self.webhook_port or self.webhook_url)
