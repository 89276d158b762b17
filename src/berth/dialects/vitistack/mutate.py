"""The mutating webhook: fills in annotations and asks for addresses before the object is stored.

    nothing that concerns us changed ─► admitted, no call
    checks without I/O ─► inner dry run ─► MetalLB up? ─► who, secret ─► one address per missing family

Whatever Kubernetes would refuse is refused by the inner dry run, before an address is spent; our own
webhooks are not asked about that one. What is asked for here is pending at the IPAM-API: it comes
back by itself unless the validating webhook confirms it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.review import Answer, Review, User, allowed, patched
from berth.dialects.vitistack import defaults, kinds, messages, service_annotations
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.defaults import Defaults
from berth.dialects.vitistack.ipam_client import is_down
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.secrets import random_text
from berth.dialects.vitistack.service_annotations import ServiceWish
from berth.dialects.vitistack.stored import CREATE, UPDATE
from berth.errors import ApiError, KubeError
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.net import Address
from berth.secret import Secret

Object = dict[str, Any]
# The API server's own alphabet for generated names: no vowels, nothing to be misread.
NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
NAME_LENGTH, SUFFIX_LENGTH = 63, 5
ANNOTATION_BYTES = 256 * 1024
# Of a dry run only the verdict counts: whose version and whose fields these are is nothing to it.
UNTRIED = ("resourceVersion", "managedFields")
TRYING = {"dryRun": "All", "fieldValidation": "Ignore"}  # its fields have been through that already
BRIEFLY = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}

_log = log.get("ipam-operator")


@dataclass(frozen=True, slots=True)
class Visit:
    """What is asked of us: a Service as sent, and as stored if that is ours already."""

    new: Object
    live: Object | None
    review: Review | None = None  # None: nobody asked, we go on by ourselves

    @property
    def user(self) -> User | None:
        return self.review.user if self.review is not None else None

    @property
    def creating(self) -> bool:
        return self.review is not None and self.review.operation == CREATE


class Mutation:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._defaults = Defaults(
            parts.settings.zone,
            parts.settings.bare_addresses,
            lambda: f"pre-shared-key-{random_text()}",
        )

    async def review(self, review: Review) -> Answer:
        said = {"name": review.name, "namespace": review.namespace}
        _log.info("Mutation Started for Service", **said)
        if review.dry_run:
            _log.info("Dry run mode detected, skipping mutating for Service:", **said)
            return allowed()
        new = defaults.placed(review.object, review.namespace)
        old = review.old_object if review.operation == UPDATE else None
        if meta.is_deleting(new) or review.operation not in (CREATE, UPDATE):
            return allowed()
        live = old if old is not None and self._parts.neighbours.is_served(old) else None
        if not self._parts.neighbours.is_served(new):
            left = live is not None and defaults.has_ours(live)
            return patched(review, defaults.without_metallb(review.object)) if left else allowed()
        visit = Visit(new, live, review)
        service, warnings = await self.completed(visit)
        _log.info("Mutating Completed for Service", **said)
        return patched(review, _unplaced(service, review.object)).warning(*warnings)

    async def completed(self, visit: Visit) -> tuple[Object, list[str]]:
        """The Service with everything filled in, and what to warn of."""
        new, live = visit.new, visit.live
        if (
            live is not None
            and not defaults.has_ours(new)
            and not defaults.has_ours(live)
            and defaults.shown(live)
        ):
            return await self._adopted(new, live, visit)
        service = defaults.filled(_named(new), live, self._defaults)
        if live is not None:
            service = defaults.continued(service, live, self._defaults)
            if defaults.is_settled(service, live):
                return defaults.settled(service, live), []
        return await self._served(service, visit)

    async def _served(self, service: Object, visit: Visit) -> tuple[Object, list[str]]:
        name = service["metadata"]["name"]
        asked = service_annotations.read(meta.annotations(service), name)
        before = meta.annotations(visit.live) if visit.live is not None else {}
        _refuse_moving(asked, before)
        _check_size(service)
        service = defaults.with_families(service, asked.families, creating=visit.creating)
        await self._try_out(service, visit.creating)
        if (
            visit.live is None
            or asked.missing
            or set(asked.addresses) - set(service_annotations.listed(before))
        ):
            await self._insist_on_metallb()
        addresses, warnings = asked.addresses, []
        if asked.missing:
            if visit.review is not None and visit.creating:  # the dry run has said what is stored
                self._parts.stored.insist_on_new(visit.review)
            elif visit.review is not None:
                await self._parts.stored.insist(visit.review)
            try:
                addresses = await self._requested(service, asked, visit)
            except ApiError as error:
                if visit.user is None:
                    raise  # nobody waits for us: tried again until it is there
                warnings = [self._excused(error)]
        return defaults.with_addresses(service, addresses, self._defaults.bare), warnings

    async def _try_out(self, service: Object, creating: bool) -> None:
        """The inner dry run. Somebody else's write in between is not our concern."""
        meta_ = {key: value for key, value in service["metadata"].items() if key not in UNTRIED}
        _tell_of_dry_run({"name": meta_["name"], "namespace": meta_["namespace"]}, creating)
        body = {"apiVersion": "v1", "kind": "Service", **service, "metadata": meta_}
        path = kinds.SERVICE.path(meta_["namespace"], None if creating else meta_["name"])
        try:
            await self._parts.client.raw(
                "POST" if creating else "PUT", path, body=body, params=TRYING, headers=BRIEFLY
            )
        except KubeError as error:
            raise messages.said_by_server(error) from error

    async def _insist_on_metallb(self) -> None:
        try:
            up = await self._parts.metallb.is_up()
        except KubeError as error:
            raise messages.said_by_server(error) from error
        if not up:
            raise No(messages.NO_METALLB, code=503, reason="ServiceUnavailable")

    async def _requested(self, service: Object, asked: ServiceWish, visit: Visit) -> tuple[Address, ...]:
        """The wish's addresses with new ones in front; on a failure what this request got goes back."""
        namespace, name, user = service["metadata"]["namespace"], service["metadata"]["name"], visit.user
        if visit.creating:
            self._parts.stored.expect(namespace, name, asked.zone)
        who, secret = await asyncio.gather(
            self._parts.places.newcomer(namespace, name),
            self._parts.secret_for(asked.secret, namespace, user),
        )
        got: list[Address] = []
        said = {"name": name, "namespace": namespace}
        for family in asked.missing:
            word = f"IPv{int(family)}-address"
            _log.info(f"Request {word} for Service:", **said)
            try:
                address = await self._parts.registrar.request(who, asked, family, secret)
            except ApiError as error:
                await self._return(who, asked, got, secret)
                if is_down(error) and (self._admits or user is None):
                    raise
                why = self._parts.registrar.said(error)
                text = messages.not_requested(family, name, why)
                raise messages.refused_by_api(error, text, down=is_down(error)) from error
            self._parts.metrics.decided("vitistack", "grant")
            _log.info(f"Received {word} for Service:", **said, address=str(address))
            got.insert(0, address)
        return (*got, *asked.addresses)

    async def _return(self, who: Identity, asked: ServiceWish, got: list[Address], secret: Secret) -> None:
        """Best effort: what was pending lapses anyway. What the Service had before stays as it was."""
        for address in got:
            record = Record("", who, asked.zone, address, asked.secret, asked.key, asked.terms)
            if self._parts.records.seen(record.name) is None:
                try:
                    await self._parts.registrar.give_back(record, secret)
                except ApiError as error:
                    _log.warning("address not given back; it lapses by itself", error=str(error))

    async def _adopted(self, new: Object, live: Object, visit: Visit) -> tuple[Object, list[str]]:
        """A Service from before us keeps the address it shows, or stays without us."""
        if visit.review is not None:
            await self._parts.stored.insist(visit.review)
        shown = service_annotations.written(defaults.shown(live), bare=self._defaults.bare)
        families = {str(int(address.family)) for address in defaults.shown(live)}
        word = "dual" if len(families) > 1 else f"ipv{families.pop()}"
        # MetalLB takes an address away from whoever shares it and changes the key.
        key = {kinds.SHARING_KEY: found} if (found := defaults.metallb_key(live)) else {}
        wanted = meta.with_annotations(new, {kinds.ADDRESSES: shown, kinds.FAMILY: word, **key})
        service = defaults.filled(wanted, None, self._defaults)
        asked = service_annotations.read(meta.annotations(service), service["metadata"]["name"])
        namespace = service["metadata"]["namespace"]
        for address in asked.addresses:
            if other := self._parts.pools.elsewhere(asked.zone, address):
                why = f"IPAddressPool {other} has it, and it cannot be in {asked.zone} as well"
                return new, [messages.not_managed(shown, why)]
        try:
            who = await self._parts.places.identity(namespace, service["metadata"]["name"])
            self._parts.refuse_strangers(service, asked, who)
            secret = await self._parts.secret_for(asked.secret, namespace, visit.user)
            for address in asked.addresses:
                record = Record(namespace, who, asked.zone, address, asked.secret, asked.key, asked.terms)
                await self._parts.registrar.reserve(record, secret)
        except (ApiError, No) as error:
            why = self._parts.registrar.said(error) if isinstance(error, ApiError) else error.message
            return new, [messages.not_managed(shown, why)]
        return defaults.with_addresses(service, asked.addresses, self._defaults.bare), []

    # When the IPAM-API does not answer

    @property
    def _admits(self) -> bool:
        return self._parts.settings.when_api_is_down == "admit"

    def _excused(self, error: ApiError) -> str:
        return f"the Service gets its address later: {self._parts.registrar.said(error)}"


def _tell_of_dry_run(said: dict[str, str], creating: bool) -> None:
    """The document's lines. The inner dry run skips both webhooks, by their conditions at the API server."""
    verb = "Create" if creating else "Update"
    _log.info("Dry run .Spec:", **said)
    _log.info("Mutation Started for Service", **said)
    _log.info("Dry run mode detected, skipping mutating for Service:", **said)
    _log.info(f"Validation {verb} Started for Service", **said)
    _log.info(f"Dry run mode detected, skipping validate {verb.lower()} for Service:", **said)


def _refuse_moving(asked: ServiceWish, before: Mapping[str, str]) -> None:
    moved = kinds.ZONE in before and before[kinds.ZONE] != asked.zone
    if moved and set(asked.addresses) & set(service_annotations.listed(before)):
        raise No(messages.ZONE_KEPT)


def _check_size(service: Object) -> None:
    pairs = meta.annotations(service).items()
    size = sum(len(key.encode()) + len(text.encode()) for key, text in pairs)
    if size > ANNOTATION_BYTES:
        limit = f"may not be more than {ANNOTATION_BYTES} bytes"
        raise No(f"invalid annotations: [metadata.annotations: Too long: {limit}]")


def _unplaced(service: Object, sent: Object) -> Object:
    if "namespace" in (sent.get("metadata") or {}):
        return service
    return {**service, "metadata": {k: v for k, v in service["metadata"].items() if k != "namespace"}}


def _named(service: Object) -> Object:
    """With `generateName` the entry at the IPAM-API needs the final name, so it is chosen here."""
    about = service["metadata"]
    if about.get("name") or not about.get("generateName"):
        return service
    stem = about["generateName"][: NAME_LENGTH - SUFFIX_LENGTH]
    return {**service, "metadata": {**about, "name": stem + _suffix()}}


def _suffix() -> str:
    return "".join(secrets.choice(NAME_LETTERS) for _ in range(SUFFIX_LENGTH))
