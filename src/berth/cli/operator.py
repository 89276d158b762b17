"""`berth operator`: all controllers and webhooks of the enabled dialects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth import log
from berth.cli import options
from berth.cli.options import EXCLUDED, dialect_names, listed
from berth.cli.process import run_until_stopped
from berth.dialects import ALL_DIALECTS, DIALECTS, NEED_NOTHING
from berth.dialects.vip.interval import interval_seconds
from berth.errors import UserError
from berth.run import Listening, operate
from berth.settings import METALLB_LABELS, Settings

# How long the API server may take for a request: its default, which few change.
REQUEST_SECONDS = 60.0

EXAMPLES = """
Run all controllers and webhooks of the enabled dialects.

\b
Examples:
  berth operator --kubeconfig ~/.kube/config --dialects metal3
  berth operator --dialects metal3,vip --webhook-url https://127.0.0.1:9443
  BERTH_LEADER_ELECT=true berth operator
"""


def operator(
    kubeconfig: options.Kubeconfig = None,
    dialects: Annotated[
        str,
        typer.Option(
            envvar="BERTH_DIALECTS",
            help=f"Comma list of the dialects to serve, out of {', '.join(ALL_DIALECTS)}. "
            + " ".join(dialect.advice for dialect in DIALECTS if dialect.advice),
        ),
    ] = ",".join(NEED_NOTHING),
    leader_elect: Annotated[
        bool,
        typer.Option(
            "--leader-elect/--no-leader-elect",
            envvar="BERTH_LEADER_ELECT",
            help="Only the holder of a Lease writes; the others stand by.",
        ),
    ] = False,
    lease_namespace: Annotated[
        str, typer.Option(envvar="BERTH_LEASE_NAMESPACE", help="Namespace of that Lease.")
    ] = "berth-system",
    lease_seconds: Annotated[
        float,
        typer.Option(envvar="BERTH_LEASE_SECONDS", help="How long a silent leader is waited for.", min=1.0),
    ] = 15.0,
    namespace: Annotated[
        str, typer.Option(envvar="BERTH_NAMESPACE", help="Watch only this namespace; empty: all.")
    ] = "",
    watch_filter: options.WatchFilter = "",
    webhook_port: Annotated[
        int,
        typer.Option(
            envvar="BERTH_WEBHOOK_PORT", help="Port of the admission server; 0 is off.", min=0, max=65535
        ),
    ] = 0,
    webhook_cert_dir: Annotated[
        Path | None,
        typer.Option(envvar="BERTH_WEBHOOK_CERT_DIR", help="tls.crt and tls.key; absent: makes its own CA."),
    ] = None,
    webhook_client_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="BERTH_WEBHOOK_CLIENT_CA",
            help="PEM file: answer only API servers that show a certificate of this CA; absent: anybody.",
        ),
    ] = None,
    webhook_url: Annotated[
        str,
        typer.Option(
            envvar="BERTH_WEBHOOK_URL",
            help="Outside a cluster: register the webhooks with this address, and take them away at the end.",
        ),
    ] = "",
    webhook_service: Annotated[
        str,
        typer.Option(
            envvar="BERTH_WEBHOOK_SERVICE", help="In a cluster: namespace/name of the Service before us."
        ),
    ] = "berth-system/berth-webhook",
    health_listen: Annotated[
        str,
        typer.Option(envvar="BERTH_HEALTH_LISTEN", help="Where /healthz and /readyz answer; port 0: any."),
    ] = "127.0.0.1:0",
    metrics_listen: Annotated[
        str,
        typer.Option(envvar="BERTH_METRICS_LISTEN", help="Where /metrics answers; empty: with the probes."),
    ] = "",
    metrics_cert_dir: Annotated[
        Path | None,
        typer.Option(
            envvar="BERTH_METRICS_CERT_DIR",
            help="tls.crt and tls.key: /metrics over HTTPS, at --metrics-listen; absent: plain HTTP.",
        ),
    ] = None,
    api_url: options.ApiUrl = "",
    vip_classes: options.VipClasses = "",
    vitistack_classes: options.VitistackClasses = "",
    vitistack_zone: options.VitistackZone = "inet",
    vitistack_namespace: options.VitistackNamespace = "ipam-system",
    vitistack_excluded: options.VitistackExcluded = EXCLUDED,
    vitistack_bare_addresses: Annotated[
        bool,
        typer.Option(
            envvar="BERTH_VITISTACK_BARE_ADDRESSES", help="Write addresses without mask, as upstream does."
        ),
    ] = False,
    vitistack_pending_seconds: Annotated[
        float,
        typer.Option(
            envvar="BERTH_VITISTACK_PENDING_SECONDS",
            help="How long an admitted Service may take to be stored before its address is given back.",
        ),
    ] = 90.0,
    vitistack_resync_seconds: Annotated[
        float,
        typer.Option(
            envvar="BERTH_VITISTACK_RESYNC_SECONDS", help="How often vitistack compares everything."
        ),
    ] = 600.0,
    vitistack_heartbeat_seconds: Annotated[
        float,
        typer.Option(
            envvar="BERTH_VITISTACK_HEARTBEAT_SECONDS",
            help="How often the IPAM-API is told what the cluster lists; 1 to 300.",
        ),
    ] = 30.0,
    metallb_namespace: Annotated[
        str,
        typer.Option(
            envvar="BERTH_METALLB_NAMESPACE", help="Empty: no MetalLB, only annotations are written."
        ),
    ] = "metallb-system",
    metallb_labels: Annotated[
        str,
        typer.Option(
            envvar="BERTH_METALLB_LABELS", help="Selectors of MetalLB's controller Pods, separated by ';'."
        ),
    ] = ";".join(METALLB_LABELS),
    when_api_is_down: Annotated[
        str,
        typer.Option(
            envvar="BERTH_WHEN_API_IS_DOWN",
            help="refuse, or admit: Services then get their address later, from the controller.",
        ),
    ] = "refuse",
    api_seconds: Annotated[
        float, typer.Option(envvar="BERTH_API_SECONDS", help="Time limit of one call of the IPAM-API.")
    ] = 3.0,
    api_ca_file: options.ApiCaFile = None,
    api_token_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_API_TOKEN_FILE", help="Bearer token for the IPAM-API.")
    ] = None,
    webhook_deadline_seconds: Annotated[
        float,
        typer.Option(envvar="BERTH_WEBHOOK_DEADLINE_SECONDS", help="Within which every review is answered."),
    ] = 5.0,
    reconciliation_interval_ms: Annotated[
        str,
        typer.Option(
            envvar="RECONCILIATION_INTERVAL_MS",
            help="How often the vip dialect looks at everything once more; what is no number means 60000.",
        ),
    ] = "",
    log_level: Annotated[
        str, typer.Option(envvar="BERTH_LOG_LEVEL", help="debug, info, warning, error.")
    ] = "info",
) -> None:
    log.configure(log_level)
    settings = Settings(
        kubeconfig=kubeconfig,
        dialects=dialect_names(dialects),
        namespace=namespace,
        watch_filter=watch_filter,
        leader_elect=leader_elect,
        lease_namespace=lease_namespace,
        lease_seconds=lease_seconds,
        webhook_port=webhook_port,
        webhook_cert_dir=webhook_cert_dir,
        webhook_client_ca=webhook_client_ca,
        webhook_url=webhook_url,
        webhook_service=webhook_service,
        health_listen=health_listen,
        metrics_listen=metrics_listen,
        metrics_cert_dir=metrics_cert_dir,
        log_level=log_level,
        api_url=api_url,
        vip_classes=listed(vip_classes),
        vitistack_classes=listed(vitistack_classes),
        vitistack_namespace=vitistack_namespace,
        vitistack_zone=vitistack_zone,
        vitistack_excluded=listed(vitistack_excluded),
        vitistack_bare_addresses=vitistack_bare_addresses,
        vitistack_pending_seconds=_pending(vitistack_pending_seconds, webhook_deadline_seconds),
        vitistack_resync_seconds=vitistack_resync_seconds,
        vitistack_heartbeat_seconds=vitistack_heartbeat_seconds,
        metallb_namespace=metallb_namespace,
        metallb_labels=tuple(text.strip() for text in metallb_labels.split(";") if text.strip()),
        when_api_is_down=_choice(when_api_is_down),
        api_seconds=api_seconds,
        api_ca_file=api_ca_file,
        api_token_file=api_token_file,
        webhook_deadline_seconds=webhook_deadline_seconds,
        vip_resync_seconds=interval_seconds(reconciliation_interval_ms),
    )
    run_until_stopped(operate(settings, _say))


operator.__doc__ = EXAMPLES


def _choice(text: str) -> str:
    if text not in ("refuse", "admit"):
        raise UserError(f"--when-api-is-down must be refuse or admit, not {text!r}.")
    return text


def _pending(seconds: float, deadline: float) -> float:
    """Who gave an address back while its Service could still be stored would give it to a second one."""
    least = REQUEST_SECONDS + deadline
    if seconds < least:
        raise UserError(
            f"--vitistack-pending-seconds must be at least {least:g}, not {seconds:g}: the API server may "
            f"take {REQUEST_SECONDS:g} s for a request, and our webhooks {deadline:g} s of their own."
        )
    return seconds


def _say(listening: Listening) -> None:
    log.get("berth.operator").info(
        "listening", health=listening.health, metrics=listening.metrics, webhook=listening.webhook
    )
