"""Everything the IPAM-API can be told, read once at start."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from berth.errors import UserError
from berth.settings import positive, setting, words

DURATION = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)([smhd]?)")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _duration(text: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `1h` or `1d`; 0 of nothing."""
    if text in ("", "0"):
        return 0.0
    found = DURATION.fullmatch(text)
    if found is None or float(found[1]) == 0:
        raise ValueError(f"must be seconds above 0, or like 15m, 1h or 1d, not {text[:40]!r}.")
    return float(found[1]) * UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path | None = setting(None, "--tls-cert", "Serve HTTPS.")
    key: Path | None = setting(None, "--tls-key", "Key of that certificate.")
    # With it, clients may (and under identities must) show a certificate.
    client_ca: Path | None = setting(None, "--client-ca", "Accept client certificates of this CA.")


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What one client may ask of us. Rates and quotas are off at 0: behind a proxy all clients look alike."""

    body_bytes: int = setting(64 * 1024, "--body-bytes", "Largest body.")
    inventory_bytes: int = 8 * 1024 * 1024  # a whole cluster's report
    body_seconds: float = setting(10.0, "--body-seconds", "Time for a body to arrive.")
    request_seconds: float = setting(10.0, "--request-seconds", "Time for an answer, then 503.")
    idle_seconds: float = 30.0  # also bounds how slowly headers may come
    rate_per_second: float = setting(0.0, "--rate", "Requests a second per source address; 0: no limit.")
    # In a row, per source and address, before it has to wait.
    wrong_secrets: int = setting(0, "--wrong-secrets", "Wrong secrets before a pause; 0: no limit.")
    quota: int = setting(0, "--quota", "Addresses per cluster, zone and family; 0: no limit.")


@dataclass(frozen=True, slots=True)
class Ror:
    """The stream of cluster events; off without a URL."""

    url: str = setting("", "--ror-url", "Events of deleted clusters.")
    path: str = setting("/v2/events/listen", "--ror-path", "Of the event stream.")
    token_file: Path | None = setting(None, "--ror-token-file", "Token for ROR.")
    events: tuple[str, ...] = setting(
        ("cluster.deleted",), "--ror-events", "Comma list of event names.", read=words
    )
    silence_seconds: float = 60.0
    clusters_per_hour: int = 20  # more than that is not believed until the hour is over
    grace_seconds: float = setting(
        0.0,
        "--ror-grace-hours",
        "Time for an undo: nothing is freed earlier.",
        typed=float,
        written=0.0,
        read=lambda hours: hours * 3600,
    )


@dataclass(frozen=True, slots=True)
class Splunk:
    """The HTTP Event Collector; off unless URL, token and index are all given."""

    url: str = setting("", "--splunk-url", "HTTP Event Collector.")
    token_file: Path | None = setting(None, "--splunk-token-file", "Token for Splunk.")
    index: str = setting("", "--splunk-index", "Where events go.")
    source: str = "vitistack:ipam-api"
    queue_file: Path = setting(
        Path("berth-splunk-queue.db"), "--splunk-queue", "File that keeps events until they are sent."
    )
    queue_events: int = setting(100_000, "--splunk-queue-events", "How many it may keep.")
    queue_bytes: int = setting(
        256 * 1024 * 1024, "--splunk-queue-bytes", "How large these may be together.", read=positive
    )

    @property
    def enabled(self) -> bool:
        return bool(self.url and self.token_file and self.index)


@dataclass(frozen=True, slots=True)
class Netbox:
    """The mirror; off without a URL."""

    url: str = setting("", "--netbox-url", "Mirror addresses there.")
    token_file: Path | None = setting(None, "--netbox-token-file", "Token for NetBox.")
    tag: str = setting("", "--netbox-tag", "On every prefix that is made there.")


@dataclass(frozen=True, slots=True)
class Backup:
    """Backups by the clock; off at 0."""

    every_seconds: float = setting(
        0.0,
        "--backup-every",
        "A backup so often: seconds, or 15m, 1h, 1d; empty: none.",
        typed=str,
        written="",
        read=_duration,
    )
    folder: Path | None = setting(None, "--backup-dir", "Where those backups go.")
    keep: int = setting(
        96, "--backup-keep", "How many of them stay.", read=positive
    )  # a day of quarter hours


def refuse_half(settings: ApiSettings) -> None:
    """What is given in part is meant to work: better not to start than to be silently off."""
    splunk, netbox, tls = settings.splunk, settings.netbox, settings.tls
    parts = (splunk.url, splunk.token_file, splunk.index)
    if any(parts) and not splunk.enabled:
        raise UserError("Splunk needs --splunk-url, --splunk-token-file and --splunk-index.")
    if netbox.url and netbox.token_file is None:
        raise UserError("--netbox-url needs --netbox-token-file.")
    if tls.certificate is None and (tls.key or tls.client_ca):
        raise UserError("--tls-key and --client-ca need --tls-cert.")
    if bool(settings.backup.every_seconds) != (settings.backup.folder is not None):
        raise UserError("Backups need both --backup-every and --backup-dir.")


@dataclass(frozen=True, slots=True)
class ApiSettings:
    listen: str = setting("127.0.0.1:3000", "--listen", "host:port; port 0: any free one.")
    database: str = setting("sqlite:///berth.db", "--database", "sqlite:///FILE or postgresql://…")
    zones: Path | None = setting(None, "--zones", "YAML; without it the three example zones.")
    # Absent: beside the SQLite file, else ./berth.pepper.
    pepper_file: Path | None = setting(None, "--pepper-file", "Key of the stored secrets; mode 0600.")
    allow_async_standby: bool = setting(
        False, "--allow-async-standby", "Start although a failover could lose addresses."
    )
    sweep_seconds: float = setting(
        30.0, "--sweep-seconds", "How often lapsed addresses are freed.", read=positive
    )
    pending_seconds: float = setting(
        120.0, "--pending-seconds", "How long a reservation waits for its Service.", read=positive
    )
    history_days: int = setting(365, "--history-days", "How long history is kept.", read=positive)
    reload_seconds: float = setting(
        5.0,
        "--reload-seconds",
        "How often zones, identities, tokens and TLS files are looked at; 0: on SIGHUP only.",
        read=lambda seconds: positive(seconds) if seconds else 0.0,
    )
    cluster_token_file: Path | None = setting(
        None, "--cluster-token-file", "One token per line; absent: no cluster route."
    )
    identities: Path | None = setting(None, "--identities", "YAML; absent: open, the secret is the proof.")
    tls: Tls = field(default_factory=Tls)
    limits: ApiLimits = field(default_factory=ApiLimits)
    ror: Ror = field(default_factory=Ror)
    splunk: Splunk = field(default_factory=Splunk)
    netbox: Netbox = field(default_factory=Netbox)
    backup: Backup = field(default_factory=Backup)
    log_level: str = setting("info", "--log-level", "debug, info, warning, error.")
