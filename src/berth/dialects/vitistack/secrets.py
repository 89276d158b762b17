"""Secrets, each read by its name: the cluster's default one, users' own, and copies we keep of those.

Nothing here lists or watches Secrets. The default one is made once, by whoever needs it first; if it is gone
while addresses depend on it, a new one would open none of them, so that is refused loudly.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import string
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from berth import log
from berth.control.batching import Tasks
from berth.control.shared_read import SharedRead
from berth.dialects.vitistack import kinds, messages
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.records import Record
from berth.errors import AlreadyExists, Conflict, KubeError, NotFound
from berth.kube import meta
from berth.kube.client import Client
from berth.secret import Secret

Object = dict[str, Any]
LETTERS = string.ascii_letters + string.digits
LENGTH = range(8, 65)
BEFORE, BEFORES = "before", 9

_log = log.get("ipam-operator")


def random_text(length: int = 32) -> str:
    """Every letter is equally likely: bytes past the last whole multiple of their number are left out."""
    whole = 256 - 256 % len(LETTERS)
    found = ""
    while len(found) < length:
        drawn = secrets.token_bytes(length)
        found += "".join(LETTERS[byte % len(LETTERS)] for byte in drawn if byte < whole)
    return found[:length]


@dataclass(frozen=True, slots=True)
class Copy:
    """What we keep of a user's Secret, as it was read."""

    values: tuple[Secret, ...] = ()  # the one in use first, then those it may have replaced
    version: str = ""


class Vault:
    def __init__(self, client: Client, namespace: str, depends: Callable[[], bool], tasks: Tasks) -> None:
        self._client = client
        self._namespace = namespace
        self._depends = depends  # whether anything registered needs the default secret that was
        self._seen = SharedRead(self._read_default, tasks)

    async def named(self, name: str, namespace: str) -> Secret:
        """What an annotation's word stands for; the default one is made if nobody had one yet."""
        return await (self._default() if name == kinds.DEFAULT_SECRET else self.users(name, namespace))

    async def default_if_there(self) -> Secret | None:
        return await self._seen.get()

    async def _read_default(self) -> Secret | None:
        try:
            found = await self._client.get(kinds.SECRET, kinds.DEFAULT_SECRET, self._namespace)
        except NotFound:
            return None
        return _value(found, kinds.SECRET_KEY)

    async def _default(self) -> Secret:
        try:
            found = await self.default_if_there() or await self._made()
        except KubeError as error:
            raise No(messages.no_default_secret(str(error)), code=503, reason="ServiceUnavailable") from error
        if found is None:
            raise No(messages.no_default_secret(f"Secret {self._place} has no key 'secret'"))
        return found

    async def _made(self) -> Secret | None:
        if self._depends():
            raise No(
                messages.no_default_secret(
                    f"Secret {self._place} is gone, and addresses were registered with it: "
                    "put it back from a backup"
                )
            )
        with suppress(AlreadyExists):
            await self._client.create(kinds.SECRET, self._fresh())
            _log.info("Initialized default secret")
        return await self._read_default()  # a shared reading may have begun before it was there

    def _fresh(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": kinds.DEFAULT_SECRET, "namespace": self._namespace},
            "type": "Opaque",
            "immutable": True,
            "data": {kinds.SECRET_KEY: base64.b64encode(random_text().encode()).decode()},
        }

    @property
    def _place(self) -> str:
        return f"{self._namespace}/{kinds.DEFAULT_SECRET}"

    async def users(self, name: str, namespace: str) -> Secret:
        """Checks in the documented order: it exists, has the key, is Opaque."""
        try:
            found = await self._client.get(kinds.SECRET, name, namespace)
        except NotFound:
            raise No(messages.no_secret(name, namespace)) from None
        except KubeError as error:
            raise messages.said_by_server(error) from error
        value = _value(found, kinds.SECRET_KEY)
        if value is None:
            raise No(messages.bad_secret(name, namespace, "does not contain 'secret' key"))
        if found.get("type") != "Opaque":
            raise No(messages.bad_secret(name, namespace, "is not of type Opaque"))
        if len(value.bytes.decode()) not in LENGTH:
            raise No(messages.bad_secret(name, namespace, f"cannot be used: {messages.SECRET_LENGTH}"))
        return value

    # Copies: what an address was registered with, whatever becomes of the user's Secret.

    async def keep(self, record: Record, value: Secret, *before: Secret, version: str = "") -> str:
        """With what it may still be registered with, as long as that is not certain. The Service's UID is
        noted: whoever lets go an earlier one of the same name does not take this copy along. Returns its
        version; Conflict if it changed since the version that is named.
        """
        others = [one for one in dict.fromkeys(before) if one != value][:BEFORES]
        values = {kinds.SECRET_KEY: value} | {f"{BEFORE}-{at}": one for at, one in enumerate(others)}
        about = {
            "name": record.name,
            "namespace": self._namespace,
            "annotations": {kinds.COPY_OF: record.uid},
            **({"resourceVersion": version} if version else {}),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": about,
            "type": "Opaque",
            "data": {key: base64.b64encode(one.bytes).decode() for key, one in values.items()},
        }
        if not version:
            with suppress(AlreadyExists):
                return meta.resource_version(await self._client.create(kinds.SECRET, body))
        return meta.resource_version(await self._client.replace(kinds.SECRET, body))

    async def kept(self, name: str) -> tuple[Secret, ...]:
        return (await self.copy(name)).values

    async def copy(self, name: str) -> Copy:
        try:
            found = await self._client.get(kinds.SECRET, name, self._namespace)
        except NotFound:
            return Copy()
        befores = sorted(key for key in found.get("data") or {} if key.startswith(BEFORE))
        values = (_value(found, key) for key in (kinds.SECRET_KEY, *befores))
        return Copy(tuple(value for value in values if value is not None), meta.resource_version(found))

    async def destroy(self, record: Record, copy: Copy) -> None:
        """Conflict if it changed since it was read; gone already is fine."""
        with suppress(NotFound):
            if copy.version:
                await self._client.delete(
                    kinds.SECRET, record.name, self._namespace, resource_version=copy.version
                )

    async def forget(self, record: Record) -> None:
        with suppress(NotFound, Conflict):
            found = await self._client.get(kinds.SECRET, record.name, self._namespace)
            if meta.annotations(found).get(kinds.COPY_OF) == record.uid:
                version = meta.resource_version(found)
                await self._client.delete(
                    kinds.SECRET, record.name, self._namespace, resource_version=version
                )


def _value(obj: Object, key: str) -> Secret | None:
    """The raw bytes as text: a trailing newline counts."""
    raw = (obj.get("data") or {}).get(key)
    if raw is None:
        return None
    try:
        return Secret(base64.b64decode(raw).decode())
    except (binascii.Error, UnicodeDecodeError):
        return None
