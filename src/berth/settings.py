"""Settings as data: one is written once, as a field with its flag, environment name, help and default.

    setting()    writes it              options()   what can be told, for the command line and the documents
    filled()     makes the dataclass of what was told: flags first, then the environment, then the default

`Settings` is the operator's. What only one dialect wants to know is a dataclass of the same kind in its own
folder: `settings.of(ThatDialectsSettings)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from berth.errors import UserError

T = TypeVar("T")
OPTION = "option"
LOOKS = ("pools", "leases", "explain", "adopt")


@dataclass(frozen=True, slots=True)
class Option:
    """How a setting is told."""

    flag: str  # a switch may have two: --on/--off
    environment: tuple[str, ...]
    help: str
    typed: Any  # None: the field's own type
    default: Any  # as it is typed
    read: Callable[[Any], Any]  # raises ValueError with what the value must be
    least: float | None
    most: float | None
    looks: tuple[str, ...]  # the looks at a cluster whose answer it changes

    @property
    def name(self) -> str:
        return self.flag.partition("/")[0].removeprefix("--").replace("-", "_")

    def value(self, typed: Any) -> Any:
        try:
            return self.read(typed)
        except ValueError as error:
            raise UserError(f"{self.flag} {error}") from None


def setting(
    default: Any,
    flag: str,
    help: str,
    *,
    environment: tuple[str, ...] = (),
    typed: Any = None,
    written: Any = None,
    read: Callable[[Any], Any] = lambda typed: typed,
    least: float | None = None,
    most: float | None = None,
    looks: tuple[str, ...] = (),
) -> Any:
    """A field that can be told. `written` is its default as it is typed, where that is another thing."""
    if isinstance(default, tuple) and typed is None:
        typed, written = str, written if written is not None else ",".join(default)
    if not environment:
        environment = (f"BERTH_{flag.partition('/')[0].removeprefix('--').replace('-', '_').upper()}",)
    shown = default if written is None and typed is None else written
    option = Option(flag, environment, help, typed, shown, read, least, most, looks)
    return field(default=default, metadata={OPTION: option})


def options(kind: type, look: str = "") -> Iterator[tuple[Option, Any]]:
    """What can be told, each with its type, in the order of the fields; of a `look`: what changes it."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        option: Option | None = one.metadata.get(OPTION)
        if option is not None and (not look or look in option.looks):
            yield option, option.typed or hints[one.name]
        elif isinstance(hints[one.name], type) and is_dataclass(hints[one.name]):
            yield from options(hints[one.name], look)


def filled(kind: type[T], told: Mapping[str, Any], **more: Any) -> T:
    """What was told, by the names of the options; the rest as it is by default."""
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]
        option: Option | None = one.metadata.get(OPTION)
        if option is not None and option.name in told:
            values[one.name] = option.value(told[option.name])
        elif isinstance(hints[one.name], type) and is_dataclass(hints[one.name]):
            values[one.name] = filled(hints[one.name], told)
    return kind(**{**values, **more})


def exported(part: Any) -> dict[str, str]:
    """By environment names: what changes a look at the cluster, and was told to be not as usual."""
    told: dict[str, str] = {}
    for one in fields(part):
        option: Option | None = one.metadata.get(OPTION)
        value = getattr(part, one.name)
        if option is not None and option.looks and value != one.default:
            told[option.environment[0]] = ",".join(value) if isinstance(value, tuple) else str(value)
    return told


# What several settings are read by.


def listed(text: str) -> tuple[str, ...]:
    """An empty text is one empty name: Services without a class."""
    return tuple(name.strip() for name in text.split(","))


def words(text: str, separator: str = ",") -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(separator) if word.strip())


def positive(number: float) -> float:
    if not 0 < number < math.inf:
        raise ValueError(f"must be a number above 0, not {number}.")
    return number


@dataclass(frozen=True, slots=True)
class Settings:
    kubeconfig: Path | None = setting(
        None, "--kubeconfig", "Else KUBECONFIG, else the in-cluster account.", looks=LOOKS
    )
    dialects: tuple[str, ...] = ()  # --dialects: what it may be, only they know
    parts: tuple[object, ...] = ()  # what the dialects were told, each in a dataclass of its own

    leader_elect: bool = setting(
        False, "--leader-elect/--no-leader-elect", "Only the holder of a Lease writes; the others stand by."
    )
    lease_name: str = "berth-operator"
    lease_namespace: str = setting("berth-system", "--lease-namespace", "Namespace of that Lease.")
    lease_seconds: float = setting(
        15.0, "--lease-seconds", "How long a silent leader is waited for.", least=1.0
    )
    namespace: str = setting("", "--namespace", "Watch only this namespace; empty: all.")

    webhook_port: int = setting(
        0, "--webhook-port", "Port of the admission server; 0 is off.", least=0, most=65535
    )
    webhook_cert_dir: Path | None = setting(
        None, "--webhook-cert-dir", "tls.crt and tls.key; absent: makes its own CA."
    )
    webhook_client_ca: Path | None = setting(
        None,
        "--webhook-client-ca",
        "PEM file: answer only API servers that show a certificate of this CA; absent: anybody.",
    )
    webhook_url: str = setting(
        "",
        "--webhook-url",
        "Outside a cluster: register the webhooks with this address, and take them away at the end.",
    )
    webhook_service: str = setting(
        "berth-system/berth-webhook",
        "--webhook-service",
        "In a cluster: namespace/name of the Service before us.",
    )
    webhook_deadline_seconds: float = setting(
        5.0, "--webhook-deadline-seconds", "Within which every review is answered."
    )

    health_listen: str = setting(
        "127.0.0.1:0", "--health-listen", "Where /healthz and /readyz answer; port 0: any."
    )
    metrics_listen: str = setting("", "--metrics-listen", "Where /metrics answers; empty: with the probes.")
    metrics_cert_dir: Path | None = setting(
        None,
        "--metrics-cert-dir",
        "tls.crt and tls.key: /metrics over HTTPS, at --metrics-listen; absent: plain HTTP.",
    )
    log_level: str = setting("info", "--log-level", "debug, info, warning, error.")
    at_once: int = 64  # claims worked on at a time

    @property
    def serves_webhooks(self) -> bool:
        return bool(self.webhook_port or self.webhook_url)

    def of(self, kind: type[T]) -> T:
        """What one dialect was told; its defaults, if nothing."""
        return next((part for part in self.parts if isinstance(part, kind)), None) or kind()
