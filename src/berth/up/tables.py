"""What was asked and what was given, a table per dialect, and the commands to try next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.table import Table

from berth.errors import KubeError
from berth.kube.client import Client
from berth.kube.resource import Resource

if TYPE_CHECKING:
    from berth.up.stage import Stage

Object = dict[str, Any]


class Row(NamedTuple):
    asked: str
    source: str
    given: str


@dataclass(frozen=True, slots=True)
class Listing:
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
    return Row(_name(claim), f"IPPool {claim['spec']['pool']['name']}", given)


def _capi_claim(claim: Object) -> Row:
    given = ((claim.get("status") or {}).get("addressRef") or {}).get("name", "")
    return Row(_name(claim), f"{claim['spec']['poolRef']['kind']} {claim['spec']['poolRef']['name']}", given)


def _request(request: Object) -> Row:
    status = request.get("status") or {}
    given = status.get("cidr") or " ".join(filter(None, (status.get("state"), status.get("message"))))
    return Row(_name(request), f"IPAMRange {request['spec']['ipam']['name']}", given)


def _service(service: Object) -> Row | None:
    if service["spec"].get("type") != "LoadBalancer":
        return None
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    zone = (service["metadata"].get("annotations") or {}).get("ipam.vitistack.io/zone")
    listed = (service["metadata"].get("annotations") or {}).get("ipam.vitistack.io/addresses", "")
    given = ", ".join(entry.get("ip", "") for entry in ingress) or listed
    return Row(_name(service), f"zone {zone}" if zone else "IPGroup", given)


def _name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


LISTS = (
    Listing("metal3", Resource("ipam.metal3.io", "v1alpha1", "IPClaim", "ipclaims"), _ipclaim),
    Listing(
        "Cluster API",
        Resource("ipam.cluster.x-k8s.io", "v1beta2", "IPAddressClaim", "ipaddressclaims"),
        _capi_claim,
    ),
    Listing("kubipam", Resource("ipam.mandelsoft.org", "v1alpha1", "IPAMRequest", "ipamrequests"), _request),
    Listing("vip, vitistack", Resource("", "v1", "Service", "services"), _service),
)


async def show(console: Console, client: Client, stage: Stage) -> None:
    for listing in LISTS:
        rows = await listing.rows(client)
        if rows:
            table = Table("asked", "from", "given", title=listing.title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
    _commands(
        console,
        f"export KUBECONFIG={stage.kubeconfig} PATH=$PATH:{stage.kubectl.parent}",
        "kubectl get ippools,ipclaims,ipaddresses.ipam.metal3.io",
        "kubectl get ipamranges,ipamrequests",
        "kubectl get ipgroups,ips && kubectl get services -A",
        f"curl -s {stage.api}/metrics | grep berth_",
    )
    console.print(f"The operator's log: {stage.log_file}. Ctrl-C stops everything and leaves nothing behind.")


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
