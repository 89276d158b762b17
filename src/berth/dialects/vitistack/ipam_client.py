"""Our records ↔ the IPAM-API's calls. What goes wrong there comes out in the documents' words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from berth import log
from berth.central.client import AddressCall
from berth.dialects.vitistack import messages
from berth.dialects.vitistack.calls import Calls
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.service_annotations import ServiceWish, Terms, host
from berth.errors import ApiDown, ApiError, ApiRefused, InvalidText
from berth.leasing.holders import Identity
from berth.net import Address, Family, parse_address
from berth.net.host import canonical
from berth.secret import Secret

GIVEN = 4096  # addresses to remember
NOT_HOLDER = "service does not exist"
NO_MATCH = "no matching address"
# Upstream's IPAM-API says with status 500 what is the client's fault (H-53): only its words tell.
REFUSALS = (
    NO_MATCH,
    NOT_HOLDER,
    "no available",
    "no prefixes found",
    "not valid for the provided zone",
    "multiple services registered",
    "service mismatch",
)

_log = log.get("ipam-operator")


class Registrar:
    def __init__(self, api: Calls, url: str) -> None:
        self._api = api
        self._url = url.rstrip("/")
        self._given: dict[tuple[Identity, Address], bool] = {}  # chosen by the IPAM-API, the latest last

    async def request(self, who: Identity, wish: ServiceWish, family: Family, secret: Secret) -> Address:
        """An address for a while, until it is confirmed: the one the Service has, or the next free."""
        self._insist()
        terms = wish.terms
        word = messages.family_word(family)
        ask = AddressCall(who, wish.zone, word, secret, "", terms.retention_days, terms.deny)
        text = await self._api.register(ask, pending=True)
        try:
            address = parse_address(canonical(text)[1])
        except (ValueError, InvalidText):
            raise ApiRefused(502, "fail to decode response: it has no address") from None
        self._given[who, address] = True
        if len(self._given) > GIVEN:
            del self._given[next(iter(self._given))]
        return address

    def has_just_given(self, who: Identity, address: Address) -> bool:
        """Whether this process asked for it in the Service's name: then a refusal is not to be expected.
        Asked once.
        """
        return self._given.pop((who, address), False)

    async def reserve(self, record: Record, secret: Secret) -> None:
        """A certain address, for a while."""
        self._insist()
        await self._api.register(ask_for(record, secret), pending=True)

    async def confirm(self, record: Record, secrets: tuple[Secret, ...]) -> None:
        """Registered for good, with the record's terms; of several secrets the first that opens counts."""
        self._insist()
        await _first(secrets, lambda secret: self._api.register(ask_for(record, secret)))

    async def replace(self, record: Record, olds: tuple[Secret, ...], new: Secret) -> None:
        self._insist()
        await _first(olds, lambda old: self._api.register(ask_for(record, old), new_secret=new))

    async def give_back(self, record: Record, secret: Secret) -> None:
        """What a refused request got and nobody had before: free at once. It may never have been ours."""
        try:
            await self._api.release(ask_for(record, secret, Terms(0, record.terms.deny)))
        except ApiRefused as no:
            if not (_is_not_holder(no) or _is_no_match(no)):
                raise

    async def release(self, record: Record, secrets: tuple[Secret, ...]) -> None:
        """Raises as long as it is not certain that the entry expires, or is not ours any more."""
        self._insist()
        for secret in secrets:
            try:
                await self._release(record, secret)
                return
            except ApiRefused as no:
                if not _is_no_match(no):
                    raise
        _log.warning("no secret of ours opens the address any more", address=str(record.address))

    async def _release(self, record: Record, secret: Secret) -> None:
        """As the Service it is registered for; if it is none of ours, it is not ours any more."""
        for uid in (record.uid, *record.formers):
            try:
                await self._api.release(ask_for(replace(record, uid=uid), secret))
                return
            except ApiRefused as no:
                if not _is_not_holder(no):
                    raise

    def said(self, error: ApiError) -> str:
        return messages.said_by_api(error, self._url)

    def _insist(self) -> None:
        if not self._url:
            raise No(messages.NO_URL, code=503, reason="ServiceUnavailable")


async def _first(secrets: tuple[Secret, ...], call: Callable[[Secret], Awaitable[object]]) -> None:
    for secret in secrets[:-1]:
        try:
            await call(secret)
            return
        except ApiRefused as no:
            if not _is_no_match(no):
                raise
    if secrets:
        await call(secrets[-1])


def _is_not_holder(no: ApiRefused) -> bool:
    return NOT_HOLDER in no.message or no.why == "NotHolder"


def _is_no_match(no: ApiRefused) -> bool:
    return NO_MATCH in no.message or no.why == "NoMatch"


def is_down(error: ApiError) -> bool:
    """No answer, or one that says: not now. Whether the address was free is another matter."""
    if isinstance(error, ApiRefused):
        is_refusal = error.why == "PoolExhausted" or any(text in error.message for text in REFUSALS)
        return error.status >= 500 and not is_refusal
    return isinstance(error, ApiDown)


def ask_for(record: Record, secret: Secret, terms: Terms | None = None) -> AddressCall:
    terms = terms or record.terms
    return AddressCall(
        record.who,
        record.zone,
        messages.family_word(record.address.family),
        secret,
        host(record.address),
        terms.retention_days,
        terms.deny,
        record.uid,
    )
