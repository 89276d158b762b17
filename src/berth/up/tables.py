"""What was asked and what was given, a table per dialect, and the commands to try next."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from berth.errors import KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource
from berth.settings import VIP_CLASS

if TYPE_CHECKING:
    from berth.up.stage import Stage

Object = dict[str, Any]
EXPLAINED = ("IPClaim", "IPAddressClaim", "IPAMRequest", "Service")


class Row(NamedTuple):
    kind: str
    name: str  # with its namespace
    source: str
    given: str


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """One kind of claim: where to look, and how to read what it asked and got."""

    title: str
    resource: Resource
    read: Callable[[Object], Row | None]

    async def rows(self, client: Client) -> list[Row]:
        try:
            items = (await client.list(self.resource)).items
        except KubeError:
            return []
        return [row for row in map(self.read, items) if row is not None]


def _ipclaim(claim: Object) -> Row:
    status = claim.get("status") or {}
    given = (status.get("address") or {}).get("name", "") or status.get("errorMessage", "")
    return _row(claim, f"IPPool {claim['spec']['pool']['name']}", given)


def _capi_claim(claim: Object) -> Row:
    status = claim.get("status") or {}
    reference = claim["spec"]["poolRef"]
    given = (status.get("addressRef") or {}).get("name", "") or _waits(status)
    return _row(claim, f"{reference['kind']} {reference['name']}", given)


def _request(request: Object) -> Row:
    status = request.get("status") or {}
    given = status.get("cidr") or " ".join(filter(None, (status.get("state"), status.get("message"))))
    return _row(request, f"IPAMRange {request['spec']['ipam']['name']}", given)


def _virtual_ip(vip: Object) -> Row:
    status = vip.get("status") or {}
    return _row(vip, "GroupSegmentMapping", status.get("ip") or status.get("message", ""))


def _vip_service(service: Object) -> Row | None:
    """Services with a class: berth up gives vip one of its own."""
    if service["spec"].get("type") != "LoadBalancer" or not service["spec"].get("loadBalancerClass"):
        return None
    status = service.get("status") or {}
    ingress = (status.get("loadBalancer") or {}).get("ingress") or []
    return _row(service, "IPGroup", ", ".join(entry.get("ip", "") for entry in ingress) or _waits(status))


def _vitistack_service(service: Object) -> Row | None:
    if service["spec"].get("type") != "LoadBalancer" or service["spec"].get("loadBalancerClass"):
        return None
    annotations = service["metadata"].get("annotations") or {}
    zone = annotations.get("ipam.vitistack.io/zone", "of the default")
    given = annotations.get("ipam.vitistack.io/addresses", "") or _waits(service.get("status") or {})
    return _row(service, f"zone {zone}", given)


def _waits(status: Object) -> str:
    """What a condition says about a claim that got nothing."""
    said = [c for c in status.get("conditions") or [] if c.get("status") == "False" and c.get("message")]
    return f"waits: {said[0]['message']}" if said else ""


def _row(obj: Object, source: str, given: str) -> Row:
    name = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
    return Row(obj["kind"], name, source, given)


_SERVICES = Resource("", "v1", "Service", "services")
LISTS = (
    ClaimTable("metal3", Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims"), _ipclaim),
    ClaimTable(
        "metal3, Cluster API's claims",
        Resource("ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims"),
        _capi_claim,
    ),
    ClaimTable(
        "kubipam", Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRequest", "ipamrequests"), _request
    ),
    ClaimTable("vip", _SERVICES, _vip_service),
    ClaimTable("vip, VirtualIPs", Resource("paas.org", "v1", "VirtualIP", "virtualips"), _virtual_ip),
    ClaimTable("vitistack", _SERVICES, _vitistack_service),
)


async def show(console: Console, client: Client, stage: Stage) -> None:
    shown: list[Row] = []
    for listing in LISTS:
        rows = await listing.rows(client)
        if rows:
            console.print(_table(listing.title, rows))
        shown += rows
    for sentence in stage.left_out:
        console.print(f"Left out: {sentence}", highlight=False, markup=False, soft_wrap=True)
    _commands(console, *_to_try(stage, shown))
    console.print(
        f"The operator's log: {stage.log_file}. Ctrl-C stops everything and leaves nothing behind.",
        highlight=False,
        soft_wrap=True,
    )


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("asked", "from", "given"):
        table.add_column(column, overflow="fold")  # a name or an address is never cut
    for row in rows:
        table.add_row(f"{row.kind} {row.name}", row.source, row.given or "nothing yet")
    return table


def _to_try(stage: Stage, rows: Sequence[Row]) -> list[str]:
    programs = f"{Path(sys.executable).parent}:{stage.kubectl.parent}"
    return [
        f"export KUBECONFIG={stage.kubeconfig} BERTH_API_URL={stage.api}/v2 BERTH_VIP_CLASSES={VIP_CLASS} "
        f"PATH=$PATH:{programs}",
        "berth pools && berth leases",
        _explain(rows),
        "kubectl get ippools,ipclaims,ipamranges,ipamrequests,ipgroups,ips,services -A",
        f"curl -s {stage.api}/metrics | grep berth_",
    ]


def _explain(rows: Sequence[Row]) -> str:
    """About the last one that the command knows: the most is to be said about it."""
    for row in reversed(rows):
        namespace, _, name = row.name.partition("/")
        if row.kind in EXPLAINED:
            return f"berth explain {row.kind.lower()}/{name} -n {namespace}"
    return "berth explain --help"


def show_api(console: Console, url: str) -> None:
    console.print(f"The IPAM-API listens on {url}; its description is at {url}/swagger/index.html")
    body = (
        '{"secret":"a-secret-of-yours","zone":"inet","ip_family":"ipv4",'
        '"service":{"service_name":"web","namespace_id":"ns-1","cluster_id":"cluster-1"}}'
    )
    _commands(console, f"curl -s {url}/v2/address -d '{body}'", f"curl -s {url}/readyz")
    console.print("Ctrl-C stops it.")


def _commands(console: Console, *commands: str) -> None:
    console.print("Try:")
    for command in commands:
        console.print(f"  {command}", soft_wrap=True, highlight=False, markup=False)
