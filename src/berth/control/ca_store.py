"""Self-made certificates that are kept: in memory for one process, in a Secret for all replicas.

Sources for `certs.Certificates`. What is made and when it is renewed is `authority.py`; here it is stored.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from berth import log
from berth.control.certs import Material, server_context
from berth.control.kube_api import Api, Object
from berth.control.x509 import Keyring, Pair, Policy, new_keyring, renewed
from berth.errors import AlreadyExists, Conflict, NotFound, UserError
from berth.kube.resource import Resource

SECRETS = Resource("", "v1", "Secret", "secrets")
TRIES = 5


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How our own certificates are made: for which names, how long they live, by which clock."""

    names: tuple[str, ...]
    policy: Policy = field(default_factory=Policy)
    now: Callable[[], datetime] = utc_now

    def new(self) -> Keyring:
        return new_keyring(self.names, self.now(), self.policy)

    def renewed(self, ring: Keyring) -> Keyring:
        return renewed(ring, self.names, self.now(), self.policy)


class OwnKeyring:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._ring = recipe.new()

    async def load(self) -> Material:
        self._ring = self._recipe.renewed(self._ring)
        return _material(self._ring)


class SharedKeyring:
    """The ring of all replicas. Whoever is first makes it; renewals are compare and swap.

    Every replica keeps it, leading or not, so its client must have no guard.
    """

    def __init__(self, api: Api, namespace: str, name: str, recipe: Recipe) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._recipe = recipe
        self._log = log.get("berth.certs")

    async def load(self) -> Material:
        for _ in range(TRIES):
            try:
                return _material(await self._settled())
            except (AlreadyExists, Conflict, NotFound):
                continue  # another replica was quicker; what it wrote is ours too
        raise UserError(f"The Secret {self._namespace}/{self._name} changes faster than it can be read.")

    async def _settled(self) -> Keyring:
        try:
            secret = await self._api.get(SECRETS, self._name, self._namespace)
        except NotFound:
            return await self._create()
        stored, wanted = self._both(secret)
        if wanted != stored:
            await self._api.replace(SECRETS, {**secret, "data": encode(wanted)})
            self._log.info("webhook certificate renewed", ends_at=str(wanted.serving.ends_at))
        return wanted

    async def _create(self) -> Keyring:
        ring = self._recipe.new()
        meta = {"name": self._name, "namespace": self._namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "kubernetes.io/tls"}
        await self._api.create(SECRETS, {**secret, "data": encode(ring)}, self._namespace)
        self._log.info("webhook certificate made", ends_at=str(ring.serving.ends_at))
        return ring

    def _both(self, secret: Object) -> tuple[Keyring | None, Keyring]:
        """What is stored and what should be. What others wrote into it by hand is replaced, not served."""
        try:
            stored = decode(secret.get("data") or {})
            return stored, self._recipe.renewed(stored)
        except ValueError as error:
            self._log.warning("webhook certificate in the Secret is unusable", cause=str(error))
            return None, self._recipe.new()


def encode(ring: Keyring) -> dict[str, str]:
    parts = {
        "tls.crt": ring.serving.certificate,
        "tls.key": ring.serving.key,
        "ca.crt": ring.bundle,
        "ca.key": b"".join(authority.key for authority in ring.authorities),
    }
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}


def decode(data: dict[str, str]) -> Keyring:
    """The ring, whole and usable, or ValueError."""
    try:
        parts = {name: base64.b64decode(data[name]) for name in ("tls.crt", "tls.key", "ca.crt", "ca.key")}
        certificates, keys = _pem_blocks(parts["ca.crt"]), _pem_blocks(parts["ca.key"])
        authorities = tuple(Pair(*both) for both in zip(certificates, keys, strict=True))
        ring = Keyring(authorities, Pair(parts["tls.crt"], parts["tls.key"]))
        _check(ring)
    except (LookupError, UserError) as error:
        raise ValueError("the stored certificates are not usable") from error
    return ring


def _check(ring: Keyring) -> None:
    if not any(authority.signed(ring.serving) for authority in ring.authorities):
        raise ValueError("no authority of the ring signed the serving certificate")
    for pair in (*ring.authorities, ring.serving):
        server_context(Material(pair.certificate, pair.key, b""))


def _material(ring: Keyring) -> Material:
    return Material(ring.serving.certificate, ring.serving.key, ring.bundle)


def _pem_blocks(pem: bytes) -> list[bytes]:
    blocks: list[bytes] = []
    for line in pem.splitlines(keepends=True):
        if line.startswith(b"-----BEGIN "):
            blocks.append(b"")
        blocks[-1] += line
    return blocks
