"""Secrets at rest: HMAC-SHA-256 over a salt of the row's own, under a pepper that is not in the database.
The pepper file holds one key per line, newest first, as `id:hex`; older keys still open what they closed,
so keys can be rotated. A secret is a type that prints `***`, wherever it ends up.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from berth.errors import UserError

SALT_BYTES = 16
KEY_BYTES = 32


class Secret:
    """A secret on its way through the program; only `bytes` gives it away."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.encode()

    @property
    def bytes(self) -> bytes:
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


@dataclass(frozen=True, slots=True)
class SecretHash:
    """What the database keeps of a secret. Empty: nobody knows it, only a replacement opens the address."""

    key_id: str = ""
    salt: bytes = b""
    digest: bytes = b""

    def __repr__(self) -> str:
        return "SecretHash(***)"


class Pepper:
    """The keys, newest first."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._keys = keys
        self._newest = next(iter(keys))

    def __repr__(self) -> str:
        return f"Pepper({', '.join(self._keys)})"

    def hash(self, secret: Secret) -> SecretHash:
        salt = os.urandom(SALT_BYTES)
        return SecretHash(self._newest, salt, self._digest(self._newest, salt, secret))

    def verifies(self, secret: Secret, hashed: SecretHash | None) -> bool:
        """Constant time, also when there is no hash or its key is gone: then one is made for nothing."""
        known = hashed is not None and hashed.key_id in self._keys
        tried = (
            hashed
            if known and hashed is not None
            else SecretHash(self._newest, bytes(SALT_BYTES), bytes(KEY_BYTES))
        )
        same = hmac.compare_digest(self._digest(tried.key_id, tried.salt, secret), tried.digest)
        return same and known

    @property
    def key_ids(self) -> list[str]:
        return list(self._keys)

    def check(self, key_id: str = "") -> str:
        """Tells this key from any other, and nothing about it."""
        key_id = key_id or self._newest
        return f"{key_id} {hmac.digest(self._keys[key_id], b'berth pepper check', 'sha256').hex()[:16]}"

    def has(self, check: str) -> bool:
        return any(self.check(key_id) == check for key_id in self._keys)

    def outdated(self, hashed: SecretHash) -> bool:
        return hashed.key_id != self._newest

    def _digest(self, key_id: str, salt: bytes, secret: Secret) -> bytes:
        return hmac.digest(self._keys[key_id], salt + secret.bytes, "sha256")


def load_pepper(path: Path, *, create: bool) -> Pepper:
    """Read the pepper file, or make it where none is. Never made for a ledger that already has addresses."""
    if not path.exists():
        if not create:
            raise UserError(f"The pepper file {path} is missing; without it no stored secret can be checked.")
        make_pepper(path)
    if path.stat().st_mode & 0o007:  # the group is a volume's to set: Kubernetes gives it read or more
        raise UserError(f"The pepper file {path} can be read by others; set its mode to 0600.")
    return Pepper(_keys(path))


def make_pepper(path: Path) -> None:
    line = f"k{secrets.token_hex(4)}:{secrets.token_hex(KEY_BYTES)}\n"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return  # another replica made it a moment ago
    except OSError as cause:
        raise UserError(f"The pepper file {path} cannot be written: {cause.strerror}.") from cause


def _keys(path: Path) -> dict[str, bytes]:
    try:
        lines = [line.strip().partition(":") for line in path.read_text().splitlines() if line.strip()]
        keys = {key_id: bytes.fromhex(value) for key_id, _, value in lines}
    except (OSError, ValueError) as cause:
        raise UserError(f"The pepper file {path} cannot be read; each line must be id:hex.") from cause
    if not keys or any(len(key) < KEY_BYTES for key in keys.values()):
        raise UserError(f"The pepper file {path} needs at least one key of {KEY_BYTES} bytes.")
    return keys
