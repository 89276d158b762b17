"""What both webhooks and the controller work with, and the questions they share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from berth.control.batching import Tasks
from berth.control.review import User
from berth.control.shared_read import SharedRead
from berth.dialects.vitistack import kinds, messages, services
from berth.dialects.vitistack.ipam_client import Registrar
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.metallb import MetalLb
from berth.dialects.vitistack.pools import MetalLbPools
from berth.dialects.vitistack.record_store import Records
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.secrets import Vault
from berth.dialects.vitistack.service_annotations import Families, ServiceWish
from berth.dialects.vitistack.services import Neighbours
from berth.dialects.vitistack.settings import VitistackSettings
from berth.dialects.vitistack.stored import Stored
from berth.errors import KubeError
from berth.kube import meta
from berth.kube.client import Client
from berth.leasing.holders import Identity
from berth.metrics import Metrics
from berth.net import Address
from berth.secret import Secret

Object = dict[str, Any]
REMEMBERED = 1000
ACCESS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Whereabouts:
    """Who a Service is to the IPAM-API: its name, and the UIDs of its namespace and of `kube-system`."""

    def __init__(self, client: Client, tasks: Tasks) -> None:
        self._client = client
        self._tasks = tasks
        self._cluster_id = ""
        self._namespaces: dict[str, SharedRead[Object]] = {}

    async def identity(self, namespace: str, name: str) -> Identity:
        return (await self._found(namespace, name))[0]

    async def newcomer(self, namespace: str, name: str) -> Identity:
        """The same for a Service that asks for something: none comes into a namespace that goes."""
        who, is_going = await self._found(namespace, name)
        if is_going:
            raise No(messages.terminating(namespace))
        return who

    async def _found(self, namespace: str, name: str) -> tuple[Identity, bool]:
        try:
            found, cluster_id = await asyncio.gather(self._namespace(namespace), self.cluster_id())
        except KubeError as error:
            raise messages.said_by_server(error) from error
        return Identity(name, meta.uid(found), cluster_id), meta.is_deleting(found)

    async def _namespace(self, namespace: str) -> Object:
        """A Service is asked about twice, and many come at once."""
        if namespace not in self._namespaces:
            if len(self._namespaces) >= REMEMBERED:
                self._namespaces.clear()
            self._namespaces[namespace] = SharedRead(lambda: self._read(namespace), self._tasks)
        return await self._namespaces[namespace].get() or {}

    async def _read(self, namespace: str) -> Object:
        return await self._client.get(kinds.NAMESPACE, namespace)

    async def cluster_id(self) -> str:
        if not self._cluster_id:
            self._cluster_id = meta.uid(await self._read("kube-system"))
        return self._cluster_id


@dataclass(frozen=True, slots=True)
class Parts:
    client: Client
    settings: VitistackSettings
    vault: Vault
    records: Records
    registrar: Registrar
    pools: MetalLbPools
    metallb: MetalLb
    neighbours: Neighbours
    places: Whereabouts
    stored: Stored
    metrics: Metrics

    async def secret_for(self, word: str, namespace: str, user: User | None) -> Secret:
        """A user's Secret is used only on behalf of somebody who may read it; None: our own wish."""
        if word != kinds.DEFAULT_SECRET and user is not None:
            with self.stored.guessing(namespace, word):
                await self._refuse_peeping(word, namespace, user)
                return await self.vault.named(word, namespace)
        return await self.vault.named(word, namespace)

    def refuse_strangers(
        self, service: Object, asked: ServiceWish, who: Identity, given: Collection[Address] = ()
    ) -> None:
        """What another namespace uses or has retained; `given`: chosen by the IPAM-API for this request."""
        claims = self._claims(asked, given)
        services.refuse_strangers(service, asked, who.namespace_id, self.neighbours.listing, claims)

    def refuse_latecomer(self, service: Object, record: Record) -> None:
        """The same for what nobody was asked about at its admission. Only who has a record counts: of two
        that list the same neither would come to have it.
        """
        asked = ServiceWish(
            record.zone, Families.DUAL, (record.address,), record.key, record.secret, record.terms
        )
        claims = self._claims(asked, ())
        services.refuse_strangers(service, asked, record.who.namespace_id, lambda address: [], claims)

    def _claims(self, asked: ServiceWish, given: Collection[Address]) -> list[Record]:
        now = time.time()
        return [
            record
            for address in asked.addresses
            for record in self.records.of_address(address)
            if record.may_exclude(now, given=address in given)
        ]

    def is_shared(self, record: Record) -> bool:
        """With others of this cluster, whose secret it is as well; what is retained counts."""
        now, there = time.time(), self.records.of_address(record.address)
        return any(one.name != record.name and not one.is_over(now) for one in there)

    async def secrets_of(self, record: Record) -> tuple[Secret, ...]:
        """Everything that may open what the record stands for, the likeliest first."""
        found = await self.vault.kept(record.name) if record.kept else ()
        if record.secret != kinds.DEFAULT_SECRET and not record.replaced:
            return found
        default = await self.vault.default_if_there()
        if default is None:
            return found
        return (default, *found) if record.secret == kinds.DEFAULT_SECRET else (*found, default)

    async def _refuse_peeping(self, name: str, namespace: str, user: User) -> None:
        wanted = {"namespace": namespace, "verb": "get", "resource": "secrets", "name": name}
        who = {"user": user.name, "groups": list(user.groups), "uid": user.uid, "extra": user.extra}
        spec = {**who, "resourceAttributes": wanted}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await self.client.raw("POST", ACCESS_PATH, body=body)
        except KubeError as error:
            raise messages.said_by_server(error) from error
        if not (answer.get("status") or {}).get("allowed"):
            fault = f"cannot be used: user {user.name} may not read it"
            raise No(messages.bad_secret(name, namespace, fault))
