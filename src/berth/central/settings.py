"""Everything the IPAM-API can be told, read once at start (cli/api.py fills it)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from berth.errors import UserError


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What one client may ask of us. Rates and quotas are off at 0: behind a proxy all clients look alike."""

    body_bytes: int = 64 * 1024
    inventory_bytes: int = 8 * 1024 * 1024  # a whole cluster's report
    body_seconds: float = 10.0
    request_seconds: float = 10.0
    idle_seconds: float = 30.0  # also bounds how slowly headers may come
    rate_per_second: float = 0.0  # per source address
    wrong_secrets: int = 0  # in a row, per source and address, before it has to wait
    quota: int = 0  # addresses per cluster, zone and family


@dataclass(frozen=True, slots=True)
class Tls:
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None  # with it, clients may (and under identities must) show a certificate


@dataclass(frozen=True, slots=True)
class Ror:
    """The stream of cluster events; off without a URL."""

    url: str = ""
    path: str = "/v2/events/listen"
    token_file: Path | None = None
    events: tuple[str, ...] = ("cluster.deleted",)
    silence_seconds: float = 60.0
    clusters_per_hour: int = 20  # more than that is not believed until the hour is over
    grace_seconds: float = 0.0  # nothing that an event marks is freed earlier


@dataclass(frozen=True, slots=True)
class Splunk:
    """The HTTP Event Collector; off unless URL, token and index are all given."""

    url: str = ""
    token_file: Path | None = None
    index: str = ""
    source: str = "vitistack:ipam-api"
    queue_file: Path = Path("berth-splunk-queue.db")
    queue_events: int = 100_000
    queue_bytes: int = 256 * 1024 * 1024

    @property
    def enabled(self) -> bool:
        return bool(self.url and self.token_file and self.index)


@dataclass(frozen=True, slots=True)
class Netbox:
    """The mirror; off without a URL."""

    url: str = ""
    token_file: Path | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Backup:
    """Backups by the clock; off at 0."""

    every_seconds: float = 0.0
    folder: Path | None = None
    keep: int = 96  # a day of them at a quarter of an hour


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
    listen: str = "127.0.0.1:3000"
    database: str = "sqlite:///berth.db"
    zones: Path | None = None
    pepper_file: Path | None = None  # absent: beside the SQLite file, else ./berth.pepper
    allow_async_standby: bool = False
    sweep_seconds: float = 30.0
    pending_seconds: float = 120.0
    history_days: int = 365
    reload_seconds: float = 5.0  # how often files are looked at for changes; 0: on SIGHUP only
    cluster_token_file: Path | None = None  # one token per line; absent or empty: the route is off
    identities: Path | None = None  # absent: open mode, the secret is the proof
    limits: ApiLimits = field(default_factory=ApiLimits)
    tls: Tls = field(default_factory=Tls)
    ror: Ror = field(default_factory=Ror)
    splunk: Splunk = field(default_factory=Splunk)
    netbox: Netbox = field(default_factory=Netbox)
    backup: Backup = field(default_factory=Backup)
