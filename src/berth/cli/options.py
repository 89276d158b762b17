"""Options that several commands share: a look at a cluster is told what its operator was told, in the same
words and by the same environment names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from berth.dialects import ALL_DIALECTS
from berth.errors import UserError
from berth.settings import EXCLUDED_NAMESPACES

EXCLUDED = ",".join(EXCLUDED_NAMESPACES)

Kubeconfig = Annotated[
    Path | None, typer.Option(envvar="BERTH_KUBECONFIG", help="Else KUBECONFIG, else the in-cluster account.")
]
WatchFilter = Annotated[
    str,
    typer.Option(
        envvar="BERTH_WATCH_FILTER",
        help="metal3: only objects whose label cluster.x-k8s.io/watch-filter is this.",
    ),
]
ApiUrl = Annotated[
    str,
    typer.Option(
        envvar=["BERTH_API_URL", "IPAM_API_URL"],
        help="The IPAM-API with its /v2, for the vitistack dialect.",
    ),
]
ApiCaFile = Annotated[
    Path | None, typer.Option(envvar="BERTH_API_CA_FILE", help="CA of the IPAM-API's certificate.")
]
VipClasses = Annotated[
    str,
    typer.Option(
        envvar="BERTH_VIP_CLASSES",
        help="Comma list of the loadBalancerClass values vip serves; empty: Services without one.",
    ),
]
VitistackClasses = Annotated[
    str,
    typer.Option(
        envvar="BERTH_VITISTACK_CLASSES",
        help="Comma list of the loadBalancerClass values vitistack serves; empty: Services without one.",
    ),
]
VitistackZone = Annotated[
    str, typer.Option(envvar="BERTH_VITISTACK_ZONE", help="Zone of Services that name none.")
]
VitistackNamespace = Annotated[
    str, typer.Option(envvar="BERTH_VITISTACK_NAMESPACE", help="Where the default secret and records are.")
]
VitistackExcluded = Annotated[
    str,
    typer.Option(
        envvar="BERTH_VITISTACK_EXCLUDED_NAMESPACES",
        help="Comma list of namespaces whose Services vitistack never touches.",
    ),
]


def dialect_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ALL_DIALECTS]
    if unknown or not names:
        wrong = ", ".join(unknown) or "nothing"
        raise UserError(f"--dialects names {wrong}; choose from {', '.join(ALL_DIALECTS)}.")
    return names


def listed(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
