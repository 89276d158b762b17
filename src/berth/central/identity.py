"""Who may ask. Open mode: the secret of an address is the proof, as documented. With an identities file
every call needs a bearer token or a client certificate, and each is bound to clusters and zones:

    identities:
      - name: prod-1
        cluster_ids: [0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878]
        zones: [inet, hnet-private]      # absent: all
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

import yaml
from aiohttp import web

from berth.central.answers import Refusal
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
            raise Refusal(403, "this identity may not speak for that cluster and zone", "Forbidden")


class Identities:
    def __init__(self, callers: list[Caller]) -> None:
        self._callers = callers

    def caller(self, request: web.BaseRequest) -> Caller:
        """Who this is: 401 for nobody we know."""
        token = bearer(request)
        names = certificate_names(request)
        if not token and not names:
            raise Refusal(401, "Authorization required", "Unauthorized")
        by_certificate = next(
            (one for one in self._callers if one.certificate and one.certificate in names), None
        )
        found = self._by_token(token) or by_certificate
        if found is None:
            raise Refusal(401, "Invalid authentication token", "Unauthorized")
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
        document = yaml.safe_load(path.read_text())
        return Identities([_caller(item) for item in document["identities"]])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as cause:
        missing = "missing key " if isinstance(cause, KeyError) else ""
        raise UserError(
            f"The identities file {path} cannot be used: {missing}{file_fault(cause)}."
        ) from cause


def _caller(item: Any) -> Caller:
    if not isinstance(item, dict):
        raise ValueError(f"{item!r} is no identity with name, cluster_ids and a proof")
    unknown = sorted(map(str, item.keys() - KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    token, certificate = str(item.get("token_sha256", "")).lower(), str(item.get("certificate", ""))
    if bool(token) == bool(certificate) or (token and not re.fullmatch(r"[0-9a-f]{64}", token)):
        raise ValueError(f"{item.get('name')!r} needs either token_sha256 (64 hex digits) or certificate")
    zones = item.get("zones")
    clusters = frozenset(str(one) for one in item["cluster_ids"])
    allowed = frozenset(str(one) for one in zones) if zones is not None else None
    return Caller(str(item["name"]), clusters, allowed, token, certificate)


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as cause:
        raise UserError(f"The token file {path} cannot be read: {file_fault(cause)}.") from cause
