"""What can be chosen about an installation, and how its objects are written down."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from berth import __version__
from berth.dialects import ALL_DIALECTS, NEED_NOTHING, named
from berth.dialects.dialect import Dialect

Object = dict[str, Any]
OPERATOR = "berth-operator"
API = "berth-api"
WEBHOOK = "berth-webhook"
EVERY = ALL_DIALECTS


@dataclass(frozen=True, slots=True)
class Options:
    namespace: str = "berth-system"
    dialects: tuple[str, ...] = NEED_NOTHING
    image: str = f"berth:{__version__}"
    replicas: int = 2
    make_namespace: bool = True
    api_url: str = ""  # empty: the IPAM-API beside the operator
    webhook_service: str = WEBHOOK  # the Service that the API server asks
    cert_manager: bool = False  # its certificate comes from cert-manager; else the operator makes its own
    openshift: bool = False  # user, group and fsGroup are the platform's to choose
    api_server_cidrs: tuple[str, ...] = ()  # who may connect to the webhooks; empty: anybody

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


def render_list(entries: Iterable[Any]) -> str:
    return str(yaml.dump(list(entries), Dumper=_Plain, sort_keys=False, width=110))
