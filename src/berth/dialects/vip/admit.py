"""Admission of IP objects and VirtualIPs. The texts are upstream's, word for word.

IP objects are the ledger: only the operator's own account writes them. Who that is the API server says
itself, asked once at the first review; no token is looked at. One thing others may: bring back what a backup
holds, an IP object with its owner or a VirtualIP with its finalizer. Those are members of RESTORERS, and who
has the verb `restore` on the kind, which the API server is asked; nothing else of it is theirs to change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any

import orjson

from berth import log
from berth.control.admission import Handler
from berth.control.review import Answer, Review, User, allowed, cut, denied
from berth.control.webhooks import Webhook, rule
from berth.dialects.vip import kinds
from berth.dialects.vip.migrate import State, state_of
from berth.dialects.vip.translate import owner_of
from berth.errors import KubeError
from berth.kube import meta
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
_log = log.get("berth.vip.admit")
RESTORERS = "berth:restorers"  # the group
RESTORE = "restore"  # the verb
KNOWN_SECONDS = 5.0  # for how long an answer of the API server about it holds
MOST_KNOWN = 1000
ASKED_AT_ONCE = 4
IP_PATH = "/validate-paas-org-v1-ip"
VIRTUAL_IP_PATH = "/validate-paas-org-v1-virtualip"

# The metadata that make an IP object a lease.
LEASE_METADATA = ("labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp")

DEPRECATED = "VirtualIP resource is deprecated, use a service with type LoadBalancer instead"
NOT_STOPPED = "VirtualIP migration can not be stopped"
NOT_VALID = "not valid VirtualIP can not be migrated"
SERVICE_FIXED = "can not change service once migration has begun"
IP_FIXED = ".spec.ip is immutable"


def webhooks() -> tuple[Webhook, ...]:
    return (
        Webhook("vip.kb.io", IP_PATH, (rule(kinds.GROUP, "v1", ["ips"], ["CREATE", "UPDATE", "DELETE"]),)),
        Webhook(
            "vvirtualip.kb.io",
            VIRTUAL_IP_PATH,
            (rule(kinds.GROUP, "v1", ["virtualips"], ["CREATE", "UPDATE"]),),
        ),
    )


def routes(
    who: Callable[[], Awaitable[str]], may_restore: Callable[[User, Resource], Awaitable[bool]]
) -> Mapping[str, Handler]:
    async def validate_ip(review: Review) -> Answer:
        answer = ip_answer(review, await who())
        if not answer.allowed and is_restored_ip(review) and await may_restore(review.user, kinds.IP):
            return allowed()
        return answer

    async def validate_virtual_ip(review: Review) -> Answer:
        fault = virtual_ip_fault(review.object, review.old_object or None)
        if fault == DEPRECATED and meta.has_finalizer(review.object, kinds.IP_FINALIZER):
            fault = None if await may_restore(review.user, kinds.VIRTUAL_IP) else fault
        return allowed() if fault is None else denied(fault)

    return {IP_PATH: validate_ip, VIRTUAL_IP_PATH: validate_virtual_ip}


def ip_answer(review: Review, operator: str) -> Answer:
    if review.user.name == operator:
        return allowed()
    verb = review.operation.lower()
    return denied(f"user {cut(review.user.name)} cannot {verb} ip objects, only {operator} is allowed")


def is_restored_ip(review: Review) -> bool:
    """A lease as a backup holds it: new and with its owner. Or an edit of what is not ours, as that of the
    fields' managers which Velero makes afterwards."""
    if review.operation == "CREATE":
        return owner_of(review.object) is not None
    return review.operation == "UPDATE" and _ours(review.object) == _ours(review.old_object)


def _ours(ip: Object) -> list[Any]:
    about = ip.get("metadata") or {}
    return [about.get(field) or None for field in LEASE_METADATA]


def virtual_ip_fault(vip: Object, old: Object | None) -> str | None:
    """The first broken rule, in upstream's order."""
    if old is None:
        return DEPRECATED
    was, now = (kinds.MIGRATE in meta.annotations(obj) for obj in (old, vip))
    if was and not now:
        return NOT_STOPPED
    if now and not was and state_of(old) != State.VALID:
        return NOT_VALID
    if was and _spec(vip).get("service") != _spec(old).get("service"):
        return SERVICE_FIXED
    if (_spec(vip).get("ip") or "") != (_spec(old).get("ip") or ""):
        return IP_FIXED
    return None


def _spec(vip: Object) -> Object:
    return vip.get("spec") or {}


class MayRestore:
    """By the group, or by RBAC: a ServiceAccount is in no group that one could choose. Whoever reaches the
    port can make us ask, so an answer holds for a moment, and few are asked for at once.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[bytes, tuple[bool, float]] = {}  # digest of the question → answer, until
        self._few = asyncio.Semaphore(ASKED_AT_ONCE)

    async def __call__(self, user: User, resource: Resource) -> bool:
        if RESTORERS in user.groups:
            return True
        asked = {"group": resource.group, "resource": resource.plural, "verb": RESTORE}
        spec = {
            "resourceAttributes": asked,
            "user": user.name,
            "groups": list(user.groups),
            "uid": user.uid,
            "extra": dict(user.extra),
        }
        key = sha256(orjson.dumps(spec)).digest()
        async with self._few:
            if key in self._known and self._clock() < self._known[key][1]:
                return self._known[key][0]
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
            try:
                path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                answer = await self._client.raw("POST", path, body=review)
            except KubeError as error:
                _log.warning("nobody can tell who may restore", user=cut(user.name), error=cut(str(error)))
                return False
        may = bool(answer["status"]["allowed"])
        self._known.pop(key, None)  # the last one known is the last to be forgotten
        self._known[key] = may, self._clock() + KNOWN_SECONDS
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return may


class WhoAmI:
    """Our own user name, as the API server sees it. Every replica answers reviews, so no guard is asked."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._name = ""

    async def __call__(self) -> str:
        if not self._name:
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            answer = await self._client.raw("POST", path, body=review)
            self._name = str(answer["status"]["userInfo"]["username"])
        return self._name
