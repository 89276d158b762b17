"""Who else in the cluster lists an address, or has it retained: for sharing, its warnings, and its limits.

A Service that is being deleted passes no webhook: whatever it lists then is believed only where a record of
it says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from berth.control.cache import Cache, key_of
from berth.dialects.vitistack import defaults, kinds, service_annotations
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.record_store import Filed
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.service_annotations import ServiceWish
from berth.kube import meta
from berth.net import Address

Object = dict[str, Any]
Key = tuple[str, str]
MOST_WARNINGS, MOST_PORTS = 20, 20_000


class Neighbours:
    """Kept in step with the cache of Services, whose own indexes are its first user's."""

    def __init__(
        self, services: Cache, filed: Filed, classes: tuple[str, ...], excluded: tuple[str, ...]
    ) -> None:
        self._services = services
        self._filed = filed
        self._classes = frozenset(classes)
        self._excluded = frozenset(excluded)
        self._by_address: dict[Address, set[Key]] = {}
        services.listen(self._changed)

    def is_served(self, service: Mapping[str, Any]) -> bool:
        """A LoadBalancer of a class and in a namespace that are ours."""
        spec = service.get("spec") or {}
        namespace = (service.get("metadata") or {}).get("namespace", "")
        in_class = (spec.get("loadBalancerClass") or "") in self._classes
        return defaults.is_load_balancer(service) and in_class and namespace not in self._excluded

    def addresses_of(self, service: Mapping[str, Any] | None) -> tuple[Address, ...]:
        return (
            service_annotations.listed(meta.annotations(service))
            if service and self.is_served(service)
            else ()
        )

    def state(self, service: Mapping[str, Any] | None) -> str:
        """For the metrics; empty: not ours to count."""
        if service is None or not self.is_served(service):
            return ""
        return "Bound" if self.addresses_of(service) else "Waiting"

    def depend_on_default(self) -> bool:
        """Whether one of them was admitted with the default secret: its addresses need that one."""
        return any(self._depends_on_default(service) for service in self._services)

    def _depends_on_default(self, service: Object) -> bool:
        said = meta.annotations(service)
        was_admitted = said.get(kinds.SECRET_NAME) == kinds.DEFAULT_SECRET and kinds.METALLB_POOL in said
        return was_admitted and bool(self.addresses_of(service))

    def listing(self, address: Address) -> list[Object]:
        found = (self._services.get(*key) for key in self._by_address.get(address, ()))
        return [service for service in found if service is not None and self._counts(service, address)]

    def _counts(self, service: Object, address: Address) -> bool:
        return not meta.is_deleting(service) or self.backing(service, address) is not None

    def backing(self, service: Object, address: Address) -> Record | None:
        """The record of this very Service that says it holds the address."""
        ours = self._filed.of_service(*key_of(service))
        mine = (one for one in ours if one.address == address and one.uid == meta.uid(service))
        return next((one for one in mine if one.confirmed and not one.released), None)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        for address in self.addresses_of(old):
            self._by_address.get(address, set()).discard(key_of(old or {}))
            if not self._by_address.get(address):
                self._by_address.pop(address, None)
        for address in self.addresses_of(new):
            self._by_address.setdefault(address, set()).add(key_of(new or {}))


def refuse_strangers(
    service: Object,
    asked: ServiceWish,
    namespace_id: str,
    listing: Callable[[Address], list[Object]],
    records: Collection[Record],
) -> None:
    """Every namespace holds the default secret, so it alone does not open what another one has."""
    if asked.secret != kinds.DEFAULT_SECRET:
        return
    namespace = service["metadata"].get("namespace", "")
    for address in asked.addresses:
        keys = {
            meta.annotations(other).get(kinds.SHARING_KEY, "")
            for other in listing(address)
            if other["metadata"]["namespace"] != namespace
            and meta.annotations(other).get(kinds.SECRET_NAME) == kinds.DEFAULT_SECRET
        }
        strange = (record for record in records if _is_strange(record, namespace_id))
        keys |= {record.key for record in strange if record.address == address}
        if keys and (not asked.key or keys != {asked.key}):
            raise No(
                f"address {address} is used or retained in another namespace: with the default secret it can "
                f"only be shared by a Service with the same {kinds.SHARING_KEY}"
            )


def _is_strange(record: Record, namespace_id: str) -> bool:
    return record.secret == kinds.DEFAULT_SECRET and record.who.namespace_id != namespace_id


def warnings(service: Object, asked: ServiceWish, neighbours: Neighbours) -> list[str]:
    """What MetalLB will not serve, told while somebody is looking: of the first so many that come."""
    me = (service["metadata"].get("namespace", ""), service["metadata"].get("name", ""))
    mine, looked = _ports(service), 0
    told: dict[str, None] = {}
    for address in asked.addresses:
        for other in neighbours.listing(address):
            if key_of(other) == me:
                continue
            if len(told) == MOST_WARNINGS or looked > MOST_PORTS:
                return list(told)
            if not asked.key or meta.annotations(other).get(kinds.SHARING_KEY, "") != asked.key:
                told[f"address {address} is used by a Service with another {kinds.SHARING_KEY}"] = None
                continue
            theirs = _ports(other)
            looked += len(theirs)
            if clash := sorted(mine & theirs):
                ports = ", ".join(clash[:MOST_WARNINGS]) + (", ..." if clash[MOST_WARNINGS:] else "")
                told[f"address {address} is shared with a Service that has the same port {ports}"] = None
    return list(told)


def _ports(service: Object) -> set[str]:
    """As they are written: in a made-up review they need not be numbers."""
    ports = (service.get("spec") or {}).get("ports") or ()
    return {f"{port.get('port', 0)}/{port.get('protocol', 'TCP')}" for port in ports}
