"""What the vitistack dialect can be told: where IPAM-API and MetalLB are, and which Services it serves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from berth.errors import UserError
from berth.settings import listed, setting, words

# How long the API server may take for a request: its default, which few change.
REQUEST_SECONDS = 60.0
# Namespaces whose Services are never touched: upstream's list.
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


def _refuse_or_admit(text: str) -> str:
    if text not in ("refuse", "admit"):
        raise ValueError(f"must be refuse or admit, not {text!r}.")
    return text


@dataclass(frozen=True, slots=True)
class VitistackSettings:
    api_url: str = setting(
        "",
        "--api-url",
        "The IPAM-API with its /v2, for the vitistack dialect.",
        environment=("BERTH_API_URL", "IPAM_API_URL"),
        looks=("pools", "explain"),
    )
    classes: tuple[str, ...] = setting(
        ("",),
        "--vitistack-classes",
        "Comma list of the loadBalancerClass values vitistack serves; empty: Services without one.",
        read=listed,
        looks=("explain", "adopt"),
    )
    zone: str = setting(
        "inet", "--vitistack-zone", "Zone of Services that name none.", looks=("pools", "leases", "explain")
    )
    namespace: str = setting(
        "ipam-system",
        "--vitistack-namespace",
        "Where the default secret and records are.",
        looks=("adopt",),
    )
    excluded: tuple[str, ...] = setting(
        EXCLUDED_NAMESPACES,
        "--vitistack-excluded",
        "Comma list of namespaces whose Services vitistack never touches.",
        environment=("BERTH_VITISTACK_EXCLUDED_NAMESPACES",),
        read=listed,
        looks=("explain", "adopt"),
    )
    bare_addresses: bool = setting(
        False,
        "--vitistack-bare-addresses/--no-vitistack-bare-addresses",
        "Write addresses without mask, as upstream does.",
    )
    pending_seconds: float = setting(
        90.0,
        "--vitistack-pending-seconds",
        "How long an admitted Service may take to be stored before its address is given back.",
    )
    resync_seconds: float = setting(
        600.0, "--vitistack-resync-seconds", "How often vitistack compares everything."
    )
    heartbeat_seconds: float = setting(
        30.0,
        "--vitistack-heartbeat-seconds",
        "How often the IPAM-API is told what the cluster lists; 1 to 300.",
    )
    metallb_namespace: str = setting(
        "metallb-system", "--metallb-namespace", "Empty: no MetalLB, only annotations are written."
    )
    metallb_labels: tuple[str, ...] = setting(
        METALLB_LABELS,
        "--metallb-labels",
        "Selectors of MetalLB's controller Pods, separated by ';'.",
        written=";".join(METALLB_LABELS),
        read=lambda text: words(text, ";"),
    )
    when_api_is_down: str = setting(
        "refuse",
        "--when-api-is-down",
        "refuse, or admit: Services then get their address later, from the controller.",
        read=_refuse_or_admit,
    )
    api_seconds: float = setting(3.0, "--api-seconds", "Time limit of one call of the IPAM-API.")
    api_ca_file: Path | None = setting(
        None, "--api-ca-file", "CA of the IPAM-API's certificate.", looks=("pools", "explain")
    )
    api_token_file: Path | None = setting(None, "--api-token-file", "Bearer token for the IPAM-API.")

    def refuse_early_return(self, webhook_seconds: float) -> None:
        """Who gave an address back while its Service could still be stored would give it to a second one."""
        least = REQUEST_SECONDS + webhook_seconds
        if self.pending_seconds < least:
            raise UserError(
                f"--vitistack-pending-seconds must be at least {least:g}, not {self.pending_seconds:g}: "
                f"the API server may take {REQUEST_SECONDS:g} s for a request, and our webhooks "
                f"{webhook_seconds:g} s of their own."
            )
