"""Who we are to the API server: a fixed token, a token in a file that is rotated, or an exec plug-in's word.

`auth.py` asks an identity for a Proof and keeps it until `valid_until_seconds` on the monotonic clock, or
until the server answers 401. Tokens and keys never appear in a repr.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from berth.errors import UserError
from berth.kube.http.tls import ClientCertificate

# A projected token is replaced well before it ends; kubelet has swapped the file by then.
TOKEN_FILE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Proof:
    """What proves us in requests until a moment: an Authorization header, a certificate, both or neither."""

    authorization: str = field(default="", repr=False)
    certificate: ClientCertificate = field(default_factory=ClientCertificate)
    valid_until_seconds: float = math.inf


class ClientIdentity(Protocol):
    async def prove(self) -> Proof: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """What the kubeconfig says in line, once and for all."""

    proof: Proof = Proof()

    async def prove(self) -> Proof:
        return self.proof


@dataclass(frozen=True, slots=True)
class BearerTokenFile:
    """A bearer token that someone else renews on disk: read again every few seconds, and after a 401."""

    path: Path
    certificate: ClientCertificate = field(default_factory=ClientCertificate)
    clock: Callable[[], float] = time.monotonic

    async def prove(self) -> Proof:
        return Proof(bearer(self._read()), self.certificate, self.clock() + TOKEN_FILE_SECONDS)

    def _read(self) -> str:
        try:
            token = self.path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UserError(f"Cannot read the token file {self.path}: {why}.") from error
        if not token:
            raise UserError(f"The token file {self.path} is empty.")
        return token


def bearer(token: str) -> str:
    return f"Bearer {token}" if token else ""


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
