"""Who may ask. Open mode: the secret of an address is the proof, as documented. With an identities file
every call needs a bearer token or a client certificate, and each is bound to clusters and zones:

    identities:
      - name: prod-1
        cluster_ids: [0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878]
        zones: [inet, hnet-private]      # left out: all
        token_sha256: 6b86b2…            # of the token; or
        certificate: prod-1.example      # common name or DNS name of the client certificate
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from berth.central.answers import HttpRefusal
from berth.central.documents import parse_document, read_document, short
from berth.errors import UserError, file_fault

KEYS = {"name", "cluster_ids", "zones", "token_sha256", "certificate"}


@dataclass(frozen=True, slots=True)
class Caller:
    """A known client and what it may speak for."""

    name: str
    cluster_ids: frozenset[str]
    zones: frozenset[str] | None
    token_sha256: str = ""
    certificate: str = ""

    def admit(self, cluster_id: str, *zones: str) -> None:
        """403 for a cluster, or a zone, that is not this client's."""
        others = [] if self.zones is None else [zone for zone in zones if zone not in self.zones]
        if cluster_id not in self.cluster_ids or others:
            raise HttpRefusal(403, "this identity may not speak for that cluster and zone", "Forbidden")


class Identities:
    def __init__(self, callers: list[Caller]) -> None:
        self._callers = callers

    def caller(self, request: web.BaseRequest) -> Caller:
        """Who this is: 401 for nobody we know."""
        token = bearer(request)
        names = certificate_names(request)
        if not token and not names:
            raise HttpRefusal(401, "Authorization required", "Unauthorized")
        by_certificate = next(
            (one for one in self._callers if one.certificate and one.certificate in names), None
        )
        found = self._by_token(token) or by_certificate
        if found is None:
            raise HttpRefusal(401, "Invalid authentication token", "Unauthorized")
        return found

    def _by_token(self, token: str) -> Caller | None:
        """Every digest is compared, in constant time, whichever one fits."""
        digest = hashlib.sha256(token.encode()).hexdigest().encode()
        fitting = [one for one in self._callers if hmac.compare_digest(one.token_sha256.encode(), digest)]
        return fitting[0] if token and fitting else None


class Tokens:
    """The tokens of the cluster route; several at once, so that they can be rotated."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = tuple(token.encode() for token in tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def fits(self, token: str) -> bool:
        given = token.encode()
        return sum(hmac.compare_digest(one, given) for one in self._tokens) > 0  # each one is compared


def bearer(request: web.BaseRequest) -> str:
    """`Authorization: Bearer <token>` or the bare token; bytes that are no text become no token of ours."""
    value = request.headers.get("Authorization", "").strip()
    scheme, _, rest = value.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else value
    return token.encode(errors="replace").decode()


def certificate_names(request: web.BaseRequest) -> set[str]:
    transport = request.transport
    peer: dict[str, Any] = (transport.get_extra_info("peercert") if transport else None) or {}
    common = {value for part in peer.get("subject", ()) for key, value in part if key == "commonName"}
    return common | {value for kind, value in peer.get("subjectAltName", ()) if kind in ("DNS", "URI")}


def load_tokens(path: Path | None) -> Tokens:
    return Tokens(tuple(_lines(path))) if path else Tokens(())


def load_identities(path: Path | None) -> Identities | None:
    if path is None:
        return None
    try:
        return Identities(_callers(parse_document(read_document(path))))
    except UserError as cause:
        raise UserError(f"The identities file {path} cannot be used: it {cause}.") from cause


def _callers(document: Any) -> list[Caller]:
    listed = document.get("identities") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise UserError("needs a list `identities`; `identities: []` lets nobody in")
    callers: list[Caller] = []
    for number, item in enumerate(listed, 1):
        try:
            callers.append(_caller(item, callers))
        except ValueError as cause:
            name = item.get("name") if isinstance(item, dict) else None
            entry = f"{number} ({short(name)})" if isinstance(name, str) else str(number)
            raise UserError(f"has a fault in entry {entry}: {cause}") from cause
    return callers


def _caller(item: Any, before: list[Caller]) -> Caller:
    if not isinstance(item, dict):
        raise ValueError("it is no mapping with name, cluster_ids and token_sha256 or certificate")
    unknown = sorted(map(str, item.keys() - KEYS))
    if unknown:
        raise ValueError(f"unknown key {short(unknown[0])}")
    token, certificate = _word(item, "token_sha256").lower(), _word(item, "certificate")
    if bool(token) == bool(certificate) or (token and not re.fullmatch(r"[0-9a-f]{64}", token)):
        raise ValueError("it needs either token_sha256 (64 hex digits) or certificate")
    for one in before:
        if (one.token_sha256, one.certificate) == (token, certificate):
            what = "token" if token else "certificate"
            raise ValueError(f"its {what} is that of {short(one.name)} too; each identity needs its own")
    name = _word(item, "name")
    if not name:
        raise ValueError("it needs a name")
    zones = _names(item, "zones") if "zones" in item else None
    return Caller(name, _names(item, "cluster_ids"), zones, token, certificate)


def _word(item: dict[Any, Any], key: str) -> str:
    value = item.get(key, "")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{key} must be text, not {short(value)}")
    return str(value)


def _names(item: dict[Any, Any], key: str) -> frozenset[str]:
    """Never empty: nobody can tell a list that is to allow nothing from one that lost its lines."""
    value = item.get(key)
    if not isinstance(value, list) or not value:
        absent = ", or be left out for all zones" if key == "zones" else ""
        said = short(value) if value or value is None else "an empty list"
        raise ValueError(f"{key} must be a list with at least one name{absent}, not {said}")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, str | int) or one == "":
            raise ValueError(f"{key} must be a list of names; {short(one)} is none, quote it")
    return frozenset(map(str, value))


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise UserError(f"The token file {path} cannot be read: {file_fault(cause)}.") from cause
