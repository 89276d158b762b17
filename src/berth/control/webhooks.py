"""Registration: tells the API servers which reviews to send us, where, and whose certificate to trust.

    Plan(name, webhooks, target) ──▶ Mutating- and ValidatingWebhookConfiguration ──Registration──▶ cluster

In a cluster they point to a Service and stay when a replica stops. Outside one they point to a URL and are
taken away at a clean stop: a webhook nobody answers would hold up every write it asks about. Only what
differs is written, so a second pass writes nothing; fields we do not set (and what a newer server adds) are
left alone.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from berth import log
from berth.control.kube_api import Api, Object
from berth.errors import AlreadyExists, Conflict, KubeError, NotFound, NotLeader
from berth.kube.resource import Resource

GROUP = "admissionregistration.k8s.io"
MUTATING = Resource(
    GROUP, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING = Resource(
    GROUP, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
)
TRIES = 5
RETRY_SECONDS = 5.0
REMOVE_SECONDS = 3.0  # a process that is told to stop has ten


@dataclass(frozen=True, slots=True)
class Webhook:
    """One question we want to be asked. `rules` and `match_conditions` are written as the API takes them."""

    name: str  # a domain name with at least three parts
    path: str
    rules: tuple[Object, ...]
    mutating: bool = False
    failure_policy: str = "Fail"
    side_effects: str = "None"
    timeout_seconds: int = 5
    match_conditions: tuple[Object, ...] = ()
    namespace_selector: Object = field(default_factory=dict)
    object_selector: Object = field(default_factory=dict)


def rule(group: str, version: str, resources: Sequence[str], operations: Sequence[str]) -> Object:
    """One entry of a webhook's rules."""
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "*",
    }


class Target(Protocol):
    """Where the API server finds us."""

    @property
    def stays(self) -> bool:
        """Whether the registration outlives this process."""

    def client_config(self, path: str) -> Object: ...


@dataclass(frozen=True, slots=True)
class Service:
    namespace: str
    name: str
    port: int = 443
    stays: bool = True

    def client_config(self, path: str) -> Object:
        return {
            "service": {"namespace": self.namespace, "name": self.name, "port": self.port, "path": path},
        }


@dataclass(frozen=True, slots=True)
class Url:
    base: str
    stays: bool = False

    def client_config(self, path: str) -> Object:
        return {"url": self.base.rstrip("/") + path}


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to be registered under one name."""

    name: str
    webhooks: tuple[Webhook, ...]
    target: Target

    def configurations(self, bundle: bytes = b"") -> list[tuple[Resource, Object]]:
        """The objects to have, none for a kind without webhooks. Without a bundle someone else fills it."""
        both = [(MUTATING, self._entries(True, bundle)), (VALIDATING, self._entries(False, bundle))]
        return [(resource, self._object(resource, entries)) for resource, entries in both if entries]

    def _entries(self, mutating: bool, bundle: bytes) -> list[Object]:
        return [_entry(each, self.target, bundle) for each in self.webhooks if each.mutating == mutating]

    def _object(self, resource: Resource, entries: list[Object]) -> Object:
        meta = {"name": self.name, "labels": {"app.kubernetes.io/name": "berth"}}
        head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        return {**head, "webhooks": entries}


def _entry(webhook: Webhook, target: Target, bundle: bytes) -> Object:
    trust = {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}
    entry: Object = {
        "name": webhook.name,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {**target.client_config(webhook.path), **trust},
        "rules": list(webhook.rules),
        "failurePolicy": webhook.failure_policy,
        "matchPolicy": "Equivalent",
        "sideEffects": webhook.side_effects,
        "timeoutSeconds": webhook.timeout_seconds,
        "namespaceSelector": webhook.namespace_selector,
        "objectSelector": webhook.object_selector,
        # An empty list is stored as none; the comparison below must see what is stored.
        **({"matchConditions": list(webhook.match_conditions)} if webhook.match_conditions else {}),
    }
    return {**entry, "reinvocationPolicy": "Never"} if webhook.mutating else entry


class Trust(Protocol):
    """Whose certificate we serve; `certs.Certificates` is one."""

    @property
    def bundle(self) -> bytes: ...

    async def changed(self) -> None: ...


class Registration:
    """Keeps the configurations as they should be. A plan without webhooks leaves nothing to do."""

    def __init__(self, api: Api, plan: Plan, *, again_seconds: float = 300.0) -> None:
        self._api = api
        self._plan = plan
        self._name = plan.name
        self._again_seconds = again_seconds
        self._log = log.get("berth.webhooks")

    async def sync(self, bundle: bytes) -> int:
        """One pass; the number of objects written."""
        wanted = self._plan.configurations(bundle)
        return sum([await self._settle(resource, obj) for resource, obj in wanted])

    async def run(self, trust: Trust) -> None:
        """Pass after pass: when the certificate changes, and now and then for what others changed."""
        while True:
            bundle = trust.bundle
            pause = self._again_seconds if await self._try(bundle) else RETRY_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if trust.bundle == bundle else 0):
                    await trust.changed()

    async def remove(self) -> None:
        """At a clean stop: nothing to do where the registration stays. It never fails nor takes long: what a
        server that is gone keeps of ours is only told.
        """
        if self._plan.target.stays:
            return
        try:
            async with asyncio.timeout(REMOVE_SECONDS):
                for resource, wanted in self._plan.configurations():
                    await self._remove(resource, wanted)
        except (KubeError, TimeoutError) as error:
            self._log.warning(
                "webhooks not taken away; when the API server is back: kubectl delete "
                "mutatingwebhookconfiguration,validatingwebhookconfiguration NAME",
                name=self._name,
                error=str(error) or "no answer in time",
            )

    async def _try(self, bundle: bytes) -> bool:
        try:
            await self.sync(bundle)
        except (KubeError, NotLeader) as error:
            self._log.warning("webhooks not registered", name=self._name, error=str(error))
            return False
        return True

    async def _settle(self, resource: Resource, wanted: Object) -> bool:
        for _ in range(TRIES - 1):
            with suppress(AlreadyExists, Conflict, NotFound):
                return await self._settle_once(resource, wanted)
        return await self._settle_once(resource, wanted)

    async def _settle_once(self, resource: Resource, wanted: Object) -> bool:
        try:
            present = await self._api.get(resource, self._name)
        except NotFound:
            await self._api.create(resource, wanted)
            self._log.info("webhooks registered", kind=resource.kind, name=self._name)
            return True
        merged = merge(present, wanted)
        if merged == present:
            return False
        await self._api.replace(resource, merged)
        self._log.info("webhooks updated", kind=resource.kind, name=self._name)
        return True

    async def _remove(self, resource: Resource, wanted: Object) -> None:
        """Only if it still points to us: another process may have registered itself since."""
        with suppress(NotFound, Conflict):
            present = await self._api.get(resource, self._name)
            if not _same_places(present, wanted):
                return
            version = present["metadata"]["resourceVersion"]
            await self._api.delete(resource, self._name, resource_version=version)
            self._log.info("webhooks removed", kind=resource.kind, name=self._name)


def merge(present: Object, wanted: Object) -> Object:
    """What is there with what we want laid over it; webhooks are matched by name and no others are kept."""
    known = {entry["name"]: entry for entry in present.get("webhooks") or ()}
    entries = [_merge_entry(known.get(entry["name"], {}), entry) for entry in wanted["webhooks"]]
    meta = present["metadata"]
    labels = {**(meta.get("labels") or {}), **wanted["metadata"]["labels"]}
    return {**present, "metadata": {**meta, "labels": labels}, "webhooks": entries}


def _merge_entry(present: Object, wanted: Object) -> Object:
    config = dict(wanted["clientConfig"])
    if "caBundle" not in config and "caBundle" in present.get("clientConfig", {}):
        config["caBundle"] = present["clientConfig"]["caBundle"]
    kept = {key: value for key, value in present.items() if key != "matchConditions"}
    return {**kept, **wanted, "clientConfig": config}


def _same_places(present: Object, wanted: Object) -> bool:
    return _urls(present) == _urls(wanted)


def _urls(configuration: Object) -> list[Any]:
    return [entry.get("clientConfig", {}).get("url") for entry in configuration.get("webhooks") or ()]
