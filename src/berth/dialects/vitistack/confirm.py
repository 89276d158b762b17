"""The controller's first half: what a live Service lists is registered, with its terms and secret, and in
MetalLB's pool.

A Service that was admitted shows in its record that the IPAM-API knows it; one that an older operator left,
that came while nobody answered, or that we meet after a restart is registered (again) here, by name, so that
no address moves. What differs from the record is sent, unless an update that says so may still be stored.

A secret is replaced here and nowhere else, from the Service as it is stored: a review alone never does it.
Of a Service that is being deleted only what its records say is held; what it lists besides, no webhook saw.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from berth import log
from berth.control.events import Recorder
from berth.dialects.vitistack import kinds, messages, service_annotations
from berth.dialects.vitistack.context import Parts
from berth.dialects.vitistack.ipam_client import is_down
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.secrets import Copy
from berth.dialects.vitistack.service_annotations import MOST_DAYS, Terms
from berth.errors import ApiRefused, KubeError, NotFound
from berth.kube import meta
from berth.net import Address
from berth.secret import Secret

Object = dict[str, Any]
REFUSED_SECONDS = 60.0
FROZEN = "ClusterFrozen"  # passes by itself: a crashed predecessor counts as gone soon
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
        self._refused: dict[str, tuple[str, float]] = {}  # words that could not be, and until when

    def again(self) -> None:
        """Compare everything once more at the IPAM-API."""
        self._known.clear()
        self._told.clear()
        self._refused.clear()

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
        self._refused.pop(record.name, None)

    def _forget(self, name: str, *uids: str) -> None:
        for noted in (self._known, self._met, self._doubted):
            noted.difference_update((name, uid) for uid in uids)

    async def hold(self, live: Object, address: Address) -> float:
        """Seconds to wait for an update under way; 0: settled."""
        if meta.is_deleting(live):
            await self._hold_going(live, address)
            return 0.0
        record = await self._wanted(live, address)
        found = self._parts.records.seen(record.name)
        wait = await self._compared(live, record, found)
        await self._pooled(live, record)
        return wait

    async def _hold_going(self, live: Object, address: Address) -> None:
        """As it was admitted: nobody was asked about what it says since."""
        found = self._parts.neighbours.backing(live, address)
        if found is None:
            return
        if self._is_contested(found):
            await self._parts.registrar.confirm(found, await self._parts.secrets_of(found))
        if (found.name, found.uid) not in self._known:
            await self._first_sight(live, found)
        await self._pooled(live, found)

    async def _wanted(self, live: Object, address: Address) -> Record:
        about, annotations = live["metadata"], meta.annotations(live)
        ours = self._parts.records.of_service(about["namespace"], about["name"])
        known = next((one.who for one in ours if one.uid == about["uid"]), None)
        who = known or await self._parts.places.identity(about["namespace"], about["name"])
        word = annotations.get(kinds.SECRET_NAME) or kinds.DEFAULT_SECRET
        return Record(
            about["namespace"],
            who,
            annotations.get(kinds.ZONE) or self._parts.settings.zone,
            address,
            word,
            annotations.get(kinds.SHARING_KEY, ""),
            # What cannot be read tells nothing about what was meant: nothing is lost early.
            service_annotations.terms_or_none(annotations) or Terms(MOST_DAYS),
            uid=about["uid"],
            kept=word != kinds.DEFAULT_SECRET,
        )

    async def _compared(self, live: Object, record: Record, found: Record | None) -> float:
        if found is not None and service_annotations.terms_or_none(meta.annotations(live)) is None:
            record = replace(record, terms=found.terms)
        if found is None or found.uid != record.uid or found.released or not found.confirmed:
            await self._take(live, record, found)
            return 0.0
        wait = 0.0
        if found.replaced or found.secret != record.secret:
            wait = await self._replace(live, record.secret, found)
            if not wait:
                return 0.0
        if (found.terms, found.key) != (record.terms, record.key):
            # What was admitted as a creation is stored by now; an update that says so may still be.
            if found.until > time.time() and found.lived:
                return found.until - time.time()
            await self._correct(record, found)
            return wait
        await self._check_edited(live, found)
        if self._is_contested(found):
            await self._parts.registrar.confirm(found, await self._parts.secrets_of(found))
        if (found.name, found.uid) not in self._known:
            await self._first_sight(live, found)
        return wait

    def _is_contested(self, found: Record) -> bool:
        """Of two that asked for one name at once only one was stored, and the entry may be the other's, whose
        record is given back now. The live one must have it before that.
        """
        ours = self._parts.records.of_service(found.namespace, found.who.service_name)
        rivals = (one for one in ours if one.name == found.name and one.uid != found.uid)
        return any(not one.released and one.until <= time.time() for one in rivals)

    async def _take(self, live: Object, record: Record, found: Record | None) -> None:
        """It lists what we have no (good) record of: registered by name, or told why not."""
        self._parts.refuse_latecomer(live, record)
        secrets: tuple[Secret, ...] = ()
        if found is not None and not found.released:
            secrets = await self._parts.secrets_of(found)
            if secrets and found.uid == record.uid:
                record = replace(record, secret=found.secret, kept=found.kept)
        secrets = secrets or (await self._parts.vault.named(record.secret, record.namespace),)
        record = record.over(found)
        # A copy without a record would never be found again; what is not confirmed comes here again.
        waiting = replace(record, confirmed=False)
        await self._parts.records.put(waiting)
        if record.kept:
            await self._parts.vault.keep(record, *secrets)
        await self._parts.registrar.confirm(record, secrets)
        there = self._parts.records.seen(record.name)
        if there is None:
            await self._parts.records.put(record)
        elif there.text == waiting.written():
            await self._parts.records.save(replace(record, place=there.place, text=there.text))
        else:
            return  # a webhook wrote it meanwhile, which wakes us again
        self._is_settled(record)
        recalled = found is not None and found.released
        self._tell(live, record, "AddressRecalled" if recalled else "AddressAllocated")

    async def _correct(self, record: Record, found: Record) -> None:
        """An update was not stored after all, or was made while nobody looked, or it recalls what an earlier
        one left: the live object counts.
        """
        until = 0.0 if found.lived else found.until
        record = replace(found, terms=record.terms, key=record.key, until=until)
        await self._parts.registrar.confirm(record, await self._parts.secrets_of(found))
        await self._parts.records.save(record)

    # Another secret

    async def _replace(self, live: Object, word: str, found: Record) -> float:
        """Seconds until it is worth another try; 0: done, or not wanted any more.

            record: another comes ─► copy: new, old ─► IPAM-API ─► record: the new one ─► copy: new

        Wherever that is cut, record and copy together open the address, and it begins again.
        """
        refused, until = self._refused.get(found.name, ("", 0.0))
        if refused == word and until > time.monotonic():
            return until - time.monotonic()
        if not await self._is_stored(live, word):
            return 0.0
        try:
            new = await self._parts.vault.named(word, found.namespace)
        except No as no:
            return self._not_replaced(live, word, found, no.message)
        copy = await self._parts.vault.copy(found.name)
        olds = tuple(dict.fromkeys((*await self._parts.secrets_of(found), *copy.values)))
        version = copy.version
        if set(olds) != {new}:
            if self._parts.is_shared(found) and not found.replaced:
                return self._not_replaced(live, word, found, messages.SHARED)
            was = found
            if not (found.kept and found.replaced):
                found = await self._saved(replace(found, kept=True, replaced=True))
            version = await self._parts.vault.keep(found, new, *olds, version=version)
            try:
                await self._parts.registrar.replace(found, (*olds, new), new)
            except ApiRefused as no:
                if is_down(no) or no.why == FROZEN:
                    raise
                if not was.replaced:
                    await self._turn_back(was, found, olds, version)
                return self._not_replaced(live, word, found, self._parts.registrar.said(no))
        kept = word != kinds.DEFAULT_SECRET
        if not kept:
            await self._parts.vault.destroy(found, Copy(version=version))
        await self._saved(replace(found, secret=word, kept=kept, replaced=False))
        if kept:
            await self._parts.vault.keep(found, new, version=version)
        text = f"{found.address} is held with secret {word} now"
        self._events.event(live, "Normal", "SecretReplaced", text)
        return 0.0

    async def _is_stored(self, live: Object, word: str) -> bool:
        """What we were told may be older than what others replaced since."""
        about = live["metadata"]
        try:
            now = await self._parts.client.get(kinds.SERVICE, about["name"], about["namespace"])
        except NotFound:
            return False
        names = meta.annotations(now).get(kinds.SECRET_NAME) or kinds.DEFAULT_SECRET
        return meta.uid(now) == meta.uid(live) and not meta.is_deleting(now) and names == word

    async def _saved(self, record: Record) -> Record:
        await self._parts.records.save(record)
        return replace(record, text=record.written())

    async def _turn_back(self, was: Record, found: Record, olds: tuple[Secret, ...], version: str) -> None:
        if was.kept:
            await self._parts.vault.keep(was, *olds, version=version)
        else:
            await self._parts.vault.destroy(was, Copy(version=version))
        await self._saved(replace(found, kept=was.kept, replaced=False))

    def _not_replaced(self, live: Object, word: str, found: Record, why: str) -> float:
        self._refused[found.name] = (word, time.monotonic() + REFUSED_SECONDS)
        text = messages.not_replaced(found.address.family, found.who.service_name, why)
        self._events.event(live, "Warning", "SecretRefused", f"{text}; it keeps secret {found.secret}")
        return REFUSED_SECONDS

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
            if no.why == FROZEN:
                raise
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
        text = f"{service_annotations.host(record.address)} in zone {record.zone}"
        self._events.event(live, "Normal", reason, text)
