"""The controller's first half: what a live Service lists is registered, with its terms and secret, and in
MetalLB's pool.

A Service that was admitted shows in its record that the IPAM-API knows it; one that an older operator left,
that came while nobody answered, or that we meet after a restart is registered (again) here, by name, so that
no address moves. What differs from the record is sent, unless an update that says so may still be stored.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.dialects.vitistack import kinds, wish
from berth.dialects.vitistack.parts import Parts
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.wish import MOST_DAYS, Terms
from berth.dialects.vitistack.words import No
from berth.errors import ApiRefused, KubeError
from berth.kube import meta
from berth.net import Address
from berth.store.secrets import Secret

Object = dict[str, Any]
NEWS_SECONDS = 600.0  # after its admission; whoever led then may have been too busy to tell

_log = log.get("ipam-operator")


class Holding:
    def __init__(self, parts: Parts, events: Recorder) -> None:
        self._parts = parts
        self._events = events
        self._known: set[tuple[str, str]] = set()  # record and UID of which all is settled
        self._met: set[tuple[str, str]] = set()  # record and UID of which the Service was there
        self._doubted: set[tuple[str, str]] = set()  # record and UID of which a release was begun
        self._told: dict[str, Secret] = {}  # edited values that could not be taken over

    def again(self) -> None:
        """Compare everything once more at the IPAM-API."""
        self._known.clear()
        self._told.clear()

    def has_met(self, record: Record) -> bool:
        """Whether this process knows that its Service came to exist."""
        return (record.name, record.uid) in self._met

    def doubt(self, record: Record) -> None:
        """It is being released. If its Service comes to list it again meanwhile, whoever admits that may have
        been heard before the release.
        """
        self._known.discard((record.name, record.uid))
        self._doubted.add((record.name, record.uid))

    def forget(self, record: Record) -> None:
        self._forget(record.name, record.uid)
        self._told.pop(record.name, None)

    def _forget(self, name: str, *uids: str) -> None:
        for noted in (self._known, self._met, self._doubted):
            noted.difference_update((name, uid) for uid in uids)

    async def hold(self, live: Object, address: Address) -> float:
        """Seconds to wait for an update under way; 0: settled."""
        record = await self._wanted(live, address)
        found = self._parts.records.seen(record.name)
        wait = await self._compared(live, record, found)
        await self._pooled(live, record)
        return wait

    async def _wanted(self, live: Object, address: Address) -> Record:
        about, annotations = live["metadata"], meta.annotations(live)
        ours = self._parts.records.of_service(about["namespace"], about["name"])
        known = next((one.who for one in ours if one.uid == about["uid"]), None)
        who = known or await self._parts.places.identity(about["namespace"], about["name"])
        word = annotations.get(kinds.SECRET_NAME) or kinds.DEFAULT_SECRET
        return Record(
            about["namespace"],
            who,
            annotations.get(kinds.ZONE) or self._parts.settings.vitistack_zone,
            address,
            word,
            annotations.get(kinds.SHARING_KEY, ""),
            # What cannot be read tells nothing about what was meant: nothing is lost early.
            wish.terms_or_none(annotations) or Terms(MOST_DAYS),
            uid=about["uid"],
            kept=word != kinds.DEFAULT_SECRET,
        )

    async def _compared(self, live: Object, record: Record, found: Record | None) -> float:
        if found is not None and wish.terms_or_none(meta.annotations(live)) is None:
            record = replace(record, terms=found.terms)
        if found is None or found.uid != record.uid or found.released or not found.confirmed:
            await self._take(live, record, found)
            return 0.0
        if (found.secret, found.terms, found.key) != (record.secret, record.terms, record.key):
            wait = found.until - time.time()
            if wait <= 0:
                await self._correct(live, record, found)
            return max(wait, 0.0)
        if found.replaced:
            await self._finish_replacement(live, found)
        await self._check_edited(live, found)
        if self._is_contested(found):
            await self._parts.registrar.confirm(found, await self._parts.secrets_of(found))
        if (found.name, found.uid) not in self._known:
            await self._first_sight(live, found)
        return 0.0

    def _is_contested(self, found: Record) -> bool:
        """Of two that asked for one name at once only one was stored, and the entry may be the other's, whose
        record is given back now. The live one must have it before that.
        """
        ours = self._parts.records.of_service(found.namespace, found.who.service_name)
        rivals = (one for one in ours if one.name == found.name and one.uid != found.uid)
        return any(not one.released and one.until <= time.time() for one in rivals)

    async def _take(self, live: Object, record: Record, found: Record | None) -> None:
        """It lists what we have no (good) record of: registered by name, or told why not."""
        secrets = await self._parts.secrets_of(found) if found is not None and not found.released else ()
        secrets = secrets or (await self._parts.vault.named(record.secret, record.namespace),)
        record = record.over(found)
        if record.kept:
            # A copy without a record would never be found again; a record without its copy comes here again.
            await self._parts.records.put(replace(record, confirmed=False))
            await self._parts.vault.keep(record, *secrets)
        await self._parts.records.put(record)
        await self._parts.registrar.confirm(record, secrets)
        self._is_settled(record)
        recalled = found is not None and found.released
        self._tell(live, record, "AddressRecalled" if recalled else "AddressAllocated")

    async def _correct(self, live: Object, record: Record, found: Record) -> None:
        """An update was not stored after all, or was made while nobody looked: the live object counts."""
        secrets = await self._parts.secrets_of(found)
        record = replace(record, kept=found.kept or record.kept)
        if found.secret != record.secret:
            new = await self._parts.vault.named(record.secret, record.namespace)
            await self._parts.vault.keep(record, new, *secrets)
            await self._parts.registrar.replace(record, secrets or (new,), new)
            self._events.event(live, "Normal", "SecretReplaced", f"{record.address}: {record.secret}")
        else:
            await self._parts.registrar.confirm(record, secrets)
        await self._parts.records.put(replace(record, replaced=found.secret != record.secret))

    async def _finish_replacement(self, live: Object, found: Record) -> None:
        """It may have been cut short before the IPAM-API heard of it; then the old secret is still needed."""
        copy = await self._parts.vault.copy(found.name)
        secrets = copy.values
        if secrets:
            await self._parts.registrar.replace(found, secrets, secrets[0])
        kept = found.secret != kinds.DEFAULT_SECRET
        if not kept:
            await self._parts.vault.destroy(found, copy)
        await self._parts.records.save(replace(found, kept=kept, replaced=False, until=0.0))
        if kept and secrets:
            await self._parts.vault.keep(found, secrets[0], version=copy.version)
        text = f"{found.address} is held with secret {found.secret} now"
        self._events.event(live, "Normal", "SecretReplaced", text)

    async def _check_edited(self, live: Object, found: Record) -> None:
        """A user's Secret whose content was edited: the address follows it if it may, else keeps the old.
        A webhook may write the copy meanwhile; then nothing of it is overwritten, and we look again.
        """
        if found.secret == kinds.DEFAULT_SECRET or found.replaced:
            return
        try:
            now = await self._parts.vault.users(found.secret, found.namespace)
        except No:
            return  # gone or unusable: what it was is kept
        copy = await self._parts.vault.copy(found.name)
        kept = copy.values
        if kept == (now,) or self._told.get(found.name) == now:
            return
        if not kept:  # whoever wrote the record was cut off before the copy, or somebody deleted it
            await self._parts.vault.keep(found, now)
            return
        version = await self._parts.vault.keep(found, now, *kept, version=copy.version)
        try:
            await self._parts.registrar.replace(found, kept, now)
        except ApiRefused as no:
            await self._parts.vault.keep(found, *kept, version=version)
            self._told[found.name] = now
            text = f"Secret {found.secret} was edited; {found.address} keeps the old one: {no.message}"
            self._events.event(live, "Warning", "SecretChanged", text)
            return
        await self._parts.vault.keep(found, now, version=version)
        text = f"Secret {found.secret} was edited; {found.address} is held with it"
        self._events.event(live, "Normal", "SecretReplaced", text)

    async def _first_sight(self, live: Object, found: Record) -> None:
        """Just admitted: the IPAM-API was asked a moment ago. Else we were away: asked again."""
        now, is_news = time.time(), not self.has_met(found)
        if found.until <= now or (found.name, found.uid) in self._doubted:
            await self._parts.registrar.confirm(found, await self._parts.secrets_of(found))
        if found.until and (found.terms.retention_days or found.retained_until):
            # It came to exist, which matters once it is gone: only then does retention count.
            await self._parts.records.save(replace(found, until=0.0))
        self._is_settled(found)
        if is_news and found.until > now - NEWS_SECONDS:
            recalled = found.retained_until > 0
            self._tell(live, found, "AddressRecalled" if recalled else "AddressAllocated")

    def _is_settled(self, record: Record) -> None:
        self._forget(record.name, *record.formers)
        self._doubted.discard((record.name, record.uid))
        self._known.add((record.name, record.uid))
        self._met.add((record.name, record.uid))

    async def _pooled(self, live: Object, record: Record) -> None:
        try:
            await self._parts.pools.add(record.zone, (record.address,))
        except KubeError as error:
            text = f"IPAddressPool {record.zone} does not list {record.address} yet: {error}"
            self._events.event(live, "Warning", "PoolUpdateFailed", text)
            raise

    def _tell(self, live: Object, record: Record, reason: str) -> None:
        text = f"{wish.host(record.address)} in zone {record.zone}"
        self._events.event(live, "Normal", reason, text)
