"""`berth api`: the central IPAM-API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from berth import log
from berth.central.serve import serve
from berth.central.settings import ApiLimits, ApiSettings, Backup, Netbox, Ror, Splunk, Tls
from berth.cli.process import run_until_stopped
from berth.errors import UserError

EXAMPLES = """
Run the IPAM-API: one ledger of addresses for many clusters.

\b
Examples:
  berth api                                         SQLite in ./berth.db, port 3000
  berth api --listen 127.0.0.1:0 --zones zones.yaml
  berth api --database postgresql://berth@db/berth  several replicas
"""


DURATION = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)([smhd]?)")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def api(
    listen: Annotated[str, typer.Option(envvar="BERTH_LISTEN", help="host:port; port 0: any free one.")] = (
        "127.0.0.1:3000"
    ),
    database: Annotated[
        str, typer.Option(envvar="BERTH_DATABASE", help="sqlite:///FILE or postgresql://…")
    ] = "sqlite:///berth.db",
    zones: Annotated[
        Path | None, typer.Option(envvar="BERTH_ZONES", help="YAML; without it the three example zones.")
    ] = None,
    pepper_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_PEPPER_FILE", help="Key of the stored secrets; mode 0600.")
    ] = None,
    allow_async_standby: Annotated[
        bool,
        typer.Option(
            "--allow-async-standby",
            envvar="BERTH_ALLOW_ASYNC_STANDBY",
            help="Start although a failover could lose addresses.",
        ),
    ] = False,
    sweep_seconds: Annotated[
        float, typer.Option(envvar="BERTH_SWEEP_SECONDS", help="How often lapsed addresses are freed.")
    ] = 30.0,
    pending_seconds: Annotated[
        float,
        typer.Option(envvar="BERTH_PENDING_SECONDS", help="How long a reservation waits for its Service."),
    ] = 120.0,
    history_days: Annotated[
        int, typer.Option(envvar="BERTH_HISTORY_DAYS", help="How long history is kept.")
    ] = 365,
    reload_seconds: Annotated[
        float,
        typer.Option(
            envvar="BERTH_RELOAD_SECONDS",
            help="How often zones, identities, tokens and TLS files are looked at; 0: on SIGHUP only.",
        ),
    ] = 5.0,
    cluster_token_file: Annotated[
        Path | None,
        typer.Option(envvar="BERTH_CLUSTER_TOKEN_FILE", help="One token per line; absent: no cluster route."),
    ] = None,
    identities: Annotated[
        Path | None,
        typer.Option(envvar="BERTH_IDENTITIES", help="YAML; absent: open, the secret is the proof."),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(envvar="BERTH_TLS_CERT", help="Serve HTTPS.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="BERTH_TLS_KEY", help="Key of that certificate.")
    ] = None,
    client_ca: Annotated[
        Path | None, typer.Option(envvar="BERTH_CLIENT_CA", help="Accept client certificates of this CA.")
    ] = None,
    body_bytes: Annotated[int, typer.Option(envvar="BERTH_BODY_BYTES", help="Largest body.")] = 64 * 1024,
    body_seconds: Annotated[
        float, typer.Option(envvar="BERTH_BODY_SECONDS", help="Time for a body to arrive.")
    ] = 10.0,
    request_seconds: Annotated[
        float, typer.Option(envvar="BERTH_REQUEST_SECONDS", help="Time for an answer, then 503.")
    ] = 10.0,
    rate: Annotated[
        float, typer.Option(envvar="BERTH_RATE", help="Requests a second per source address; 0: no limit.")
    ] = 0.0,
    wrong_secrets: Annotated[
        int, typer.Option(envvar="BERTH_WRONG_SECRETS", help="Wrong secrets before a pause; 0: no limit.")
    ] = 0,
    quota: Annotated[
        int, typer.Option(envvar="BERTH_QUOTA", help="Addresses per cluster, zone and family; 0: no limit.")
    ] = 0,
    ror_url: Annotated[str, typer.Option(envvar="BERTH_ROR_URL", help="Events of deleted clusters.")] = "",
    ror_path: Annotated[
        str, typer.Option(envvar="BERTH_ROR_PATH", help="Of the event stream.")
    ] = "/v2/events/listen",
    ror_token_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_ROR_TOKEN_FILE", help="Token for ROR.")
    ] = None,
    ror_events: Annotated[
        str, typer.Option(envvar="BERTH_ROR_EVENTS", help="Comma list of event names.")
    ] = "cluster.deleted",
    ror_grace_hours: Annotated[
        float,
        typer.Option(envvar="BERTH_ROR_GRACE_HOURS", help="Time for an undo: nothing is freed earlier."),
    ] = 0.0,
    splunk_url: Annotated[str, typer.Option(envvar="BERTH_SPLUNK_URL", help="HTTP Event Collector.")] = "",
    splunk_token_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_SPLUNK_TOKEN_FILE", help="Token for Splunk.")
    ] = None,
    splunk_index: Annotated[str, typer.Option(envvar="BERTH_SPLUNK_INDEX", help="Where events go.")] = "",
    splunk_queue: Annotated[
        Path, typer.Option(envvar="BERTH_SPLUNK_QUEUE", help="File that keeps events until they are sent.")
    ] = Path("berth-splunk-queue.db"),
    splunk_queue_events: Annotated[
        int, typer.Option(envvar="BERTH_SPLUNK_QUEUE_EVENTS", help="How many it may keep.")
    ] = 100_000,
    splunk_queue_bytes: Annotated[
        int, typer.Option(envvar="BERTH_SPLUNK_QUEUE_BYTES", help="How large these may be together.")
    ] = 256 * 1024 * 1024,
    netbox_url: Annotated[str, typer.Option(envvar="BERTH_NETBOX_URL", help="Mirror addresses there.")] = "",
    netbox_token_file: Annotated[
        Path | None, typer.Option(envvar="BERTH_NETBOX_TOKEN_FILE", help="Token for NetBox.")
    ] = None,
    netbox_tag: Annotated[
        str, typer.Option(envvar="BERTH_NETBOX_TAG", help="On every prefix that is made there.")
    ] = "",
    backup_every: Annotated[
        str,
        typer.Option(
            envvar="BERTH_BACKUP_EVERY", help="A backup so often: seconds, or 15m, 1h, 1d; empty: none."
        ),
    ] = "",
    backup_dir: Annotated[
        Path | None, typer.Option(envvar="BERTH_BACKUP_DIR", help="Where those backups go.")
    ] = None,
    backup_keep: Annotated[int, typer.Option(envvar="BERTH_BACKUP_KEEP", help="How many of them stay.")] = 96,
    log_level: Annotated[
        str, typer.Option(envvar="BERTH_LOG_LEVEL", help="debug, info, warning, error.")
    ] = "info",
) -> None:
    log.configure(log_level)
    settings = ApiSettings(
        listen=listen,
        database=database,
        zones=zones,
        pepper_file=pepper_file,
        allow_async_standby=allow_async_standby,
        sweep_seconds=_positive(sweep_seconds, "--sweep-seconds"),
        pending_seconds=_positive(pending_seconds, "--pending-seconds"),
        history_days=int(_positive(history_days, "--history-days")),
        reload_seconds=_positive(reload_seconds, "--reload-seconds") if reload_seconds else 0.0,
        cluster_token_file=cluster_token_file,
        identities=identities,
        limits=ApiLimits(
            body_bytes=body_bytes,
            body_seconds=body_seconds,
            request_seconds=request_seconds,
            rate_per_second=rate,
            wrong_secrets=wrong_secrets,
            quota=quota,
        ),
        tls=Tls(tls_cert, tls_key, client_ca),
        ror=Ror(
            ror_url, ror_path, ror_token_file, tuple(_words(ror_events)), grace_seconds=ror_grace_hours * 3600
        ),
        splunk=Splunk(
            splunk_url,
            splunk_token_file,
            splunk_index,
            queue_file=splunk_queue,
            queue_events=splunk_queue_events,
            queue_bytes=int(_positive(splunk_queue_bytes, "--splunk-queue-bytes")),
        ),
        netbox=Netbox(netbox_url, netbox_token_file, netbox_tag),
        backup=Backup(
            _duration(backup_every, "--backup-every"),
            backup_dir,
            int(_positive(backup_keep, "--backup-keep")),
        ),
    )
    run_until_stopped(serve(settings, _announce))


api.__doc__ = EXAMPLES


def _positive(value: float, flag: str) -> float:
    if not 0 < value < float("inf"):
        raise UserError(f"{flag} must be a number above 0, not {value}.")
    return value


def _duration(text: str, flag: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `1h` or `1d`; 0 of nothing."""
    if text in ("", "0"):
        return 0.0
    found = DURATION.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise UserError(f"{flag} must be seconds above 0, or like 15m, 1h or 1d, not {text[:40]!r}.")
    return float(found[1]) * UNITS[found[2]]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _announce(url: str) -> None:
    """On standard output, so that a script can read which port was free."""
    typer.echo(f"listening on {url}")
