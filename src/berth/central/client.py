"""Async client of the IPAM-API, for the vitistack dialect, commands and tests. Works with upstream's
API too: host CIDR in lower case, any 2xx is success, any other answer is a refusal with its message.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import orjson

from berth import log
from berth.errors import ApiDown, ApiRefused, UserError
from berth.leasing.holders import Identity
from berth.net.host import canonical, masked
from berth.secret import Secret

DEADLINE_SECONDS = 4.5
LISTS = ("adopted", "missing", "unknown", "conflict")


@dataclass(frozen=True, slots=True)
class AddressCall:
    """What a holder asks for; the same value registers, updates and releases."""

    who: Identity
    zone: str
    ip_family: str
    secret: Secret
    address: str = ""  # empty: any
    retention_days: int = 0
    deny: bool = False
    uid: str = ""

    def body(self) -> dict[str, Any]:
        service: dict[str, Any] = {
            "service_name": self.who.service_name,
            "namespace_id": self.who.namespace_id,
            "cluster_id": self.who.cluster_id,
            "retention_period_days": self.retention_days,
            "deny_external_cleanup": self.deny,
        }
        if self.uid:
            service["uid"] = self.uid
        return {
            "secret": self.secret.bytes.decode(),
            "zone": self.zone,
            "ip_family": self.ip_family,
            "address": masked(canonical(self.address)[1]) if self.address else "",
            "service": service,
        }


@dataclass(frozen=True, slots=True)
class Inventory:
    """What an operator reports. `epoch` is made anew by every process; `sequence` counts its reports from 1.
    Only the leader reports, before its first release and then every `heartbeat_seconds`.
    """

    cluster_id: str
    epoch: str
    sequence: int
    asks: tuple[AddressCall, ...]  # each with its address
    heartbeat_seconds: int = 60
    leaving: bool = False
    alive_ms: int = 0  # between two heartbeats; 0: none come between two reports
    proofs: tuple[AddressCall, ...] = ()  # no longer listed, and not released yet

    def body(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "heartbeat_seconds": self.heartbeat_seconds,
            "leaving": self.leaving,
            "alive_ms": self.alive_ms,
            "addresses": [ask.body() for ask in self.asks],
            "releasing": [ask.body() for ask in self.proofs],
        }


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Between two reports: the process is still there. It counts in one row with them."""

    cluster_id: str
    epoch: str
    sequence: int
    alive_ms: int

    def body(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "sequence": self.sequence,
            "alive_ms": self.alive_ms,
        }


@dataclass(frozen=True, slots=True)
class Differs:
    """One address on which operator and ledger disagree."""

    address: str
    service_name: str
    namespace_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Compared:
    """The API's answer to an inventory (docs/api.md)."""

    counted: bool
    frozen: bool
    adopted: tuple[Differs, ...] = ()
    missing: tuple[Differs, ...] = ()
    unknown: tuple[Differs, ...] = ()
    conflict: tuple[Differs, ...] = ()

    @classmethod
    def read(cls, body: dict[str, Any]) -> Compared:
        lists = (tuple(Differs(**one) for one in body.get(key, ())) for key in LISTS)
        return cls(bool(body.get("counted")), bool(body.get("frozen")), *lists)


class TokenFile:
    """A bearer token that somebody else may replace: read again when its file is another. A token that cannot
    be read keeps the one of before, which may still be good; whether it is the API says.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = log.get("berth.api-client")
        try:
            self._seen = self._stamp()
            self._token = self._read()
        except (OSError, ValueError) as error:
            raise UserError(f"The IPAM-API's token cannot be read: {error}.") from error

    @property
    def bytes(self) -> bytes:
        """As of a Secret."""
        try:
            stamp = self._stamp()
            if stamp != self._seen:
                self._token = self._read()
                self._seen = stamp
                self._log.info("token of the IPAM-API read again", file=str(self._path))
        except (OSError, ValueError) as error:
            self._log.warning("token of the IPAM-API not read, the one before stays", error=str(error))
        return self._token.bytes

    def _stamp(self) -> tuple[int, int, int]:
        """Follows links: a mounted Secret is changed by swapping one."""
        found = self._path.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Secret:
        text = self._path.read_text().strip()
        if not text or not text.isprintable() or not text.isascii():
            raise ValueError(f"{self._path} holds no token of one line")
        return Secret(text)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API: `url` with or without `/v2`, an optional bearer token and TLS settings."""

    url: str
    token: Secret | TokenFile | None = None
    tls: ssl.SSLContext | None = None
    seconds: float = DEADLINE_SECONDS


def trusting(ca_file: Path | None) -> ssl.SSLContext | None:
    """Trust in this CA beside the usual ones; None: in those alone."""
    if ca_file is None:
        return None
    try:
        context = ssl.create_default_context()
        context.load_verify_locations(cafile=ca_file)
    except OSError as error:
        raise UserError(f"--api-ca-file {ca_file} cannot be used: {error}.") from error
    return context


def registration(ask: AddressCall, pending: bool = False, new_secret: Secret | None = None) -> dict[str, Any]:
    """The body of a POST."""
    body = ask.body()
    if pending:
        body["pending"] = True
    if new_secret is not None:
        body["new_secret"] = new_secret.bytes.decode()
    return body


class ApiClient:
    """An async context manager; one per process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._base = access.url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ApiClient:
        timeout = aiohttp.ClientTimeout(total=self._access.seconds)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def register(
        self, ask: AddressCall, *, pending: bool = False, new_secret: Secret | None = None
    ) -> str:
        """The address (host CIDR) the holder is on now. `pending` only reserves it for a while."""
        answer = await self._send("POST", "/address", registration(ask, pending, new_secret))
        return str(answer.get("address", ""))

    async def release(self, ask: AddressCall) -> None:
        await self._send("DELETE", "/service", ask.body())

    async def release_cluster(self, cluster_id: str) -> dict[str, Any]:
        return await self._send("DELETE", "/cluster", {"cluster_id": cluster_id})

    async def report(self, inventory: Inventory) -> Compared:
        """Tell what this cluster lists; ApiRefused with status 404 from an API that has no such call."""
        return Compared.read(await self._send("POST", "/inventory", inventory.body()))

    async def beat(self, heartbeat: Heartbeat) -> Compared:
        """Whether it counted, and whether the cluster is frozen; ApiRefused with status 404 from an API that
        has no such call.
        """
        answer = await self._send("POST", "/heartbeat", heartbeat.body())
        if "counted" not in answer:
            raise ApiRefused(404, "no such call")  # upstream answers every path, with a page
        return Compared.read(answer)

    async def batch(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[dict[str, Any] | ApiRefused]:
        """Several calls at once, as (method, body); ApiRefused with status 404 if there is no such call."""
        body = {"calls": [{"method": method, "body": one} for method, one in calls]}
        found = (await self._send("POST", "/batch", body)).get("answers")
        if not isinstance(found, list):
            raise ApiRefused(404, "no such call")  # upstream answers every path, with a page
        if len(found) != len(calls):
            raise ApiRefused(502, "fail to decode response: not one answer for each call")
        return [_answer(one) for one in found]

    async def call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """One documented call: POST of an address, DELETE of a service."""
        return await self._send(method, "/address" if method == "POST" else "/service", body)

    async def ready(self) -> bool:
        """Whether the API can serve; False also when there is no answer."""
        assert self._session is not None, "use it as a context manager"
        root = self._base.removesuffix("/v2")
        try:
            async with self._session.get(f"{root}/readyz", ssl=self._tls()) as response:
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def _send(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._session is not None, "use it as a context manager"
        headers = {"Content-Type": "application/json"}
        if self._access.token is not None:
            headers["Authorization"] = f"Bearer {self._access.token.bytes.decode()}"
        try:
            async with self._session.request(
                method,
                self._base + path,
                data=orjson.dumps(body),
                headers=headers,
                allow_redirects=False,
                ssl=self._tls(),
            ) as response:
                return _read(response.status, await response.read())
        except (aiohttp.ClientError, OSError, TimeoutError) as cause:
            raise ApiDown(f"the IPAM-API gave no answer: {type(cause).__name__}") from cause

    def _tls(self) -> ssl.SSLContext | bool:
        return self._access.tls if self._access.tls is not None else True


def _answer(one: dict[str, Any]) -> dict[str, Any] | ApiRefused:
    status, body = int(one.get("status", 502)), one.get("body") or {}
    return body if 200 <= status < 300 else _refusal(status, body)


def _read(status: int, raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        body = {}
    if not isinstance(body, dict):
        body = {}
    if 200 <= status < 300:
        return body
    raise _refusal(status, body)


def _refusal(status: int, body: dict[str, Any]) -> ApiRefused:
    message = str(body.get("message") or body.get("error") or f"the IPAM-API answered with status {status}")
    return ApiRefused(status, message, str(body.get("reason", "")))
