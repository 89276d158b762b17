"""The validating webhook: confirms at the IPAM-API what the object lists, and makes MetalLB's pool cover it.

    stored? ─► record ─► confirm, or send the new terms ─► pool

Only what the API server really has counts (`stored.py`). Another secret for an address that stays is looked
at here as far as it goes without touching anything; the controller replaces it, once the update is stored.

A record is written before each call, so that whatever happens next the controller knows what to undo. The
pool of an address that our mutating webhook asked for is written while it is being confirmed. The
first failure undoes, backwards, what this request did; what it cannot undo now (no answer) it leaves to the
controller. Addresses that leave the list are not touched here: they are released when the stored object
no longer lists them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from berth import log
from berth.control.review import Answer, Review, User, allowed
from berth.dialects.vitistack import defaults, kinds, messages, service_annotations, services
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.ipam_client import is_down
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.service_annotations import ServiceWish
from berth.dialects.vitistack.stored import CREATE, UPDATE
from berth.errors import ApiDown, ApiError, ApiRefused, KubeError, ServerError, Unreachable
from berth.kube import meta
from berth.leasing.holders import Identity
from berth.net import Address
from berth.secret import Secret

Object = dict[str, Any]
Undo = Callable[[], Awaitable[None]]

_log = log.get("ipam-operator")


@dataclass(slots=True)
class Case:
    """One review, and how to take back what it did so far."""

    service: Object
    asked: ServiceWish
    who: Identity
    user: User | None
    before: dict[str, str]  # annotations of the live Service; empty for one that becomes ours now
    until: float
    given: frozenset[Address]  # chosen by the IPAM-API for this very request
    unsure: bool = False  # whether a pool has what we wrote into it
    later: set[Address] = field(default_factory=set)  # named, and not confirmed: it may be another's
    done: list[Undo] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.who.service_name

    @property
    def namespace(self) -> str:
        return str(self.service["metadata"]["namespace"])

    def stays(self, address: Address) -> bool:
        return (
            address in service_annotations.listed(self.before)
            and self.before.get(kinds.ZONE) == self.asked.zone
        )

    def record(self, address: Address) -> Record:
        asked = self.asked
        return Record(
            self.namespace,
            self.who,
            asked.zone,
            address,
            asked.secret,
            asked.key,
            asked.terms,
            uid=meta.uid(self.service),
            kept=asked.secret != kinds.DEFAULT_SECRET,
            until=self.until,
        )


class Validation:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def review(self, review: Review) -> Answer:
        said = {"name": review.name, "namespace": review.namespace}
        verb = review.operation.capitalize()
        _log.info(f"Validation {verb} Started for Service", **said)
        if review.dry_run:
            _log.info(f"Dry run mode detected, skipping validate {verb.lower()} for Service:", **said)
            return allowed()
        case = await self._case(review)
        if case is not None:
            await self._confirmed(case)
        _log.info(f"Validation {verb} Completed for Service", **said)
        return allowed(*(case.warnings if case is not None else ()))

    async def _case(self, review: Review) -> Case | None:
        """None if there is nothing to do at the IPAM-API."""
        new = defaults.placed(review.object, review.namespace)
        old = review.old_object if review.operation == UPDATE else {}
        if review.operation not in (CREATE, UPDATE):
            return None
        if meta.is_deleting(new) or not self._parts.neighbours.is_served(new):
            return None
        before = dict(meta.annotations(old)) if old and self._parts.neighbours.is_served(old) else {}
        annotations = meta.annotations(new)
        if not service_annotations.listed(annotations) or (
            before and service_annotations.same(before, annotations)
        ):
            return None
        asked = service_annotations.read(annotations, review.name)
        await self._parts.stored.insist(review)
        who = await self._parts.places.newcomer(review.namespace, review.name)
        if review.operation == CREATE:
            for address in asked.addresses:
                self._parts.stored.expect(review.namespace, review.name, str(address))
        until = time.time() + self._parts.settings.pending_seconds
        given = frozenset(one for one in asked.addresses if self._parts.registrar.has_just_given(who, one))
        if old:  # a stored one: it is what it was
            new = {**new, "metadata": {**new["metadata"], "uid": meta.uid(old)}}
        case = Case(new, asked, who, review.user, before, until, given)
        self._parts.refuse_strangers(new, asked, who, given)
        await self._refuse_secret(case)
        case.warnings = services.warnings(new, asked, self._parts.neighbours)
        return case

    async def _refuse_secret(self, case: Case) -> None:
        """Another one for addresses that stay: the controller will replace it if nothing is known against it.
        Who else holds them from other clusters only the IPAM-API knows.
        """
        kept = [case.record(one) for one in case.asked.addresses if case.stays(one)]
        if not kept or case.before.get(kinds.SECRET_NAME, kinds.DEFAULT_SECRET) == case.asked.secret:
            return
        new = await self._parts.secret_for(case.asked.secret, case.namespace, case.user)
        for record in kept:
            if self._parts.is_shared(record) and set(await self._old_secrets(case, record)) != {new}:
                raise No(messages.not_replaced(record.address.family, case.name, messages.SHARED))

    async def _confirmed(self, case: Case) -> None:
        try:
            await _all(*(self._settle(case, address) for address in case.asked.addresses))
            await self._pool(case, tuple(one for one in case.asked.addresses if one not in case.later))
        except KubeError as error:
            await self._undo(case)
            raise messages.said_by_server(error) from error
        except No:
            await self._undo(case)
            raise

    async def _settle(self, case: Case, address: Address) -> None:
        record = case.record(address)
        record = record.over(self._parts.records.seen(record.name))
        await (self._amend if case.stays(address) else self._join)(case, record)

    # A new address

    async def _join(self, case: Case, record: Record) -> None:
        secret = await self._parts.secret_for(record.secret, record.namespace, case.user)
        seen = self._parts.records.seen(record.name)
        if seen is not None:
            record = record.recalling(seen, time.time())
        olds = await self._parts.vault.kept(record.name) if seen is not None and seen.kept else ()
        before, others = await self._parts.records.put(record), self._has_others(record)
        case.done.append(lambda: self._leave(case, record, before, secret, shared=others))
        if record.kept:
            await self._parts.vault.keep(record, secret, *olds)
        # Another namespace may have named it at the same moment: now each can see the other's record.
        self._parts.refuse_strangers(case.service, case.asked, case.who, case.given)
        confirming = self._confirm(case, record, secret)
        if record.address in case.given:
            await _all(confirming, self._pool(case, (record.address,)))
        else:
            await confirming

    async def _pool(self, case: Case, addresses: tuple[Address, ...]) -> None:
        try:
            await self._parts.pools.add(case.asked.zone, addresses)
        except (Unreachable, ServerError):
            case.unsure = True
            raise

    async def _confirm(self, case: Case, record: Record, secret: Secret) -> None:
        try:
            await self._parts.registrar.confirm(record, (secret,))
        except ApiError as error:
            if is_down(error) and self._parts.settings.when_api_is_down == "admit":
                await self._parts.records.put(replace(record, confirmed=False))
                if record.address not in case.given:
                    case.later.add(record.address)
                case.warnings.append(f"the address is confirmed later: {self._parts.registrar.said(error)}")
                return
            raise self._no(
                case, error, messages.not_validated(record.address.family, case.name, "")
            ) from error
        await self._noted(record, secret)
        ip = str(record.address)
        _log.info("Validate IP-address succeeded!", name=case.name, namespace=case.namespace, ip=ip)

    def _has_others(self, record: Record) -> bool:
        there = self._parts.records.of_address(record.address)
        return any(one.name != record.name and not one.released for one in there)

    async def _leave(
        self, case: Case, record: Record, before: Record | None, secret: Secret, *, shared: bool
    ) -> None:
        """First at the IPAM-API: as long as it is not certain there, our record tells the controller."""
        if before is not None and not before.released:
            await self._turn_back(record, before)
            return
        if before is None:
            await self._parts.registrar.give_back(record, secret)
        else:
            # It is active now if it was confirmed: what is left of its retention begins again.
            terms = before.owed(time.time())
            await self._parts.registrar.release(replace(record, terms=terms), (secret,))
        stored = self._parts.records.seen(record.name)
        if stored is None or stored.uid != record.uid:
            return
        # Whoever shared the address may have gone meanwhile, and left its entry to us.
        answers_for_it = record.address in case.given or (shared and not self._has_others(record))
        is_pooled = not self._parts.pools.missing(record.zone, (record.address,))
        if case.unsure or (is_pooled and answers_for_it):
            return  # and only the controller takes entries away, once no admission may be under way
        if record.kept:
            await self._parts.vault.forget(record)
        if before is None:
            await self._parts.records.drop(stored)
        else:
            await self._parts.records.put(before)

    async def _turn_back(self, record: Record, before: Record) -> None:
        """To a Service that went a moment ago, or that comes at the same time: the entry is its again."""
        if before.uid != record.uid:
            secrets = await self._parts.secrets_of(before)
            await self._parts.registrar.confirm(before, secrets)
            if before.kept and secrets:
                await self._parts.vault.keep(before, *secrets)
        # Otherwise than it was: the controller may be releasing it just now, and must not take that for done.
        lived, until = before.lived or not before.until, max(before.until, time.time())
        await self._parts.records.put(replace(before, lived=lived, until=until))
        if record.kept and not before.kept:
            await self._parts.vault.forget(record)

    async def _old_secrets(self, case: Case, record: Record) -> tuple[Secret, ...]:
        """What the address was registered with: as we wrote it down, else what the old word stands for."""
        prior = self._parts.records.seen(record.name)
        found = await self._parts.secrets_of(prior) if prior is not None else ()
        return found or (
            await self._parts.vault.named(
                case.before.get(kinds.SECRET_NAME, kinds.DEFAULT_SECRET), case.namespace
            ),
        )

    # Other terms, or another sharing key

    async def _amend(self, case: Case, record: Record) -> None:
        """With the secret it has: which one it is to have the controller reads in the stored Service."""
        prior = self._parts.records.seen(record.name)
        same_terms = service_annotations.terms_or_none(case.before) == record.terms
        if same_terms and prior is not None and _says(prior) == _says(record):
            return
        secrets = await self._old_secrets(case, record)
        word = case.before.get(kinds.SECRET_NAME, kinds.DEFAULT_SECRET)
        record = replace(record, secret=word, kept=word != kinds.DEFAULT_SECRET)
        if prior is not None:
            record = replace(record, secret=prior.secret, kept=prior.kept, replaced=prior.replaced)
        before = await self._parts.records.put(replace(record, lived=True))
        if prior is None and record.kept:
            await self._parts.vault.keep(record, secrets[0])
        if same_terms and before is not None:
            return
        case.done.append(lambda: self._amend_back(before, secrets))
        try:
            await self._parts.registrar.confirm(record, secrets)
        except ApiError as error:
            raise self._no(
                case, error, messages.not_validated(record.address.family, case.name, "")
            ) from error
        await self._noted(record, *secrets)

    async def _amend_back(self, before: Record | None, secrets: tuple[Secret, ...]) -> None:
        if before is not None:
            await self._parts.records.put(before)
            await self._parts.registrar.confirm(before, secrets)

    async def _noted(self, record: Record, *secrets: Secret) -> None:
        """The Service may have gone, and all of it been released, before our call arrived: then the entry is
        there again, and must be found again.
        """
        if self._parts.records.seen(record.name) is None:
            await self._parts.records.put(record)
            if record.kept:
                await self._parts.vault.keep(record, *secrets)

    # Failing

    async def _undo(self, case: Case) -> None:
        for step in reversed(case.done):
            try:
                await step()
            except (ApiDown, ApiRefused, KubeError) as error:
                _log.warning("left to the controller to undo", name=case.name, error=str(error))

    def _no(self, case: Case, error: ApiError, opening: str) -> No:
        why = self._parts.registrar.said(error)
        message = opening + why if case.before else messages.not_created(case.name, why)
        return messages.refused_by_api(error, message, down=is_down(error))


async def _all(*work: Awaitable[None]) -> None:
    """Side by side; all of them are over before the first failure is told, so that it can be undone."""
    for found in await asyncio.gather(*work, return_exceptions=True):
        if found is not None:
            raise found


def _says(record: Record) -> tuple[object, ...]:
    return record.uid, record.zone, record.key, record.terms, record.confirmed, record.released
