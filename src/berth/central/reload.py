"""Files that change while the API runs: zones, identities, tokens and certificates. A mounted Secret or
ConfigMap is replaced by moving a link, without a signal, so the contents are looked at every few seconds;
SIGHUP asks for all of them at once. Each kind of file is taken for itself, and as a whole: what is missing,
half written or wrong leaves the old content in use, is told once, and is tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from berth.central.app import IpamApi
from berth.central.identity import load_identities, load_tokens
from berth.central.listen import OpenPort, tls_context
from berth.central.settings import ApiSettings
from berth.central.tokens import read_token
from berth.central.zones import load_zones
from berth.errors import BerthError, UserError, file_fault

SETTLE_SECONDS = 0.2
SETTLE_TRIES = 10
MOST_BYTES = 8 * 1024 * 1024  # more than any of them is allowed to have
Files = Mapping[str, tuple[Path, ...]]  # by what they are


def files_of(settings: ApiSettings) -> Files:
    tls, ror, splunk, netbox = settings.tls, settings.ror, settings.splunk, settings.netbox
    found = {
        "zones": (settings.zones,),
        "identities": (settings.identities,),
        "cluster tokens": (settings.cluster_token_file,),
        "TLS files": (tls.certificate, tls.key, tls.client_ca),
        "token for ROR": (ror.token_file if ror.url else None,),
        "token for Splunk": (splunk.token_file if splunk.enabled else None,),
        "token for NetBox": (netbox.token_file if netbox.url else None,),
    }
    given = {name: tuple(path for path in paths if path) for name, paths in found.items()}
    return {name: paths for name, paths in given.items() if paths}


def contents_of(paths: tuple[Path, ...]) -> str:
    """Their contents in short, whatever their dates say; why, where they cannot be read."""
    return " ".join(map(_content, paths))


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MOST_BYTES)).hexdigest()
    except OSError as cause:
        return type(cause).__name__


class Reloader:
    def __init__(self, settings: ApiSettings, seen: Mapping[str, str], api: IpamApi, port: OpenPort) -> None:
        self._settings = settings
        self._files = files_of(settings)
        self._seen = dict(seen)  # the contents that were read at start, then those that were tried last
        self._refused: dict[str, str] = {}  # what is not in use as it is now, and why
        self._api = api
        self._port = port

    async def reload_forever(self, hangup: asyncio.Event) -> None:
        """One after the other, so that the newest files win."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.reload_seconds or None):
                    await hangup.wait()
            asked = hangup.is_set()
            hangup.clear()
            await self.reload(asked=asked)

    async def reload(self, *, asked: bool) -> None:
        """Take what changed, or, when asked, everything."""
        taken = [name for name in self._files if await self._take(name, asked=asked)]
        self._api.metrics.reload_refused.set(len(self._refused))
        if taken or (asked and not self._refused):
            zones = ", ".join(self._api.config.zones.names)
            self._api.journal.tell("reloaded", "central/reload", files=", ".join(taken), zones=zones)

    async def _take(self, name: str, *, asked: bool) -> bool:
        content = await asyncio.to_thread(contents_of, self._files[name])
        changed = content != self._seen[name]
        if changed and not asked:
            content = await self._settled(name, content)
        if not content or not (changed or asked or name in self._refused):
            return False
        self._seen[name] = content
        try:
            await self._takers()[name]()
        except Exception as cause:  # no file, however odd, may end a server that runs
            self._refuse(name, cause, again=changed or asked)
            return False
        self._api.metrics.reloads.labels("taken").inc()
        self._refused.pop(name, None)
        return True

    async def _settled(self, name: str, content: str) -> str:
        """What somebody is still writing may look whole, and lack half the zones. Empty: it never rests."""
        for _ in range(SETTLE_TRIES):
            await asyncio.sleep(SETTLE_SECONDS)
            before, content = content, await asyncio.to_thread(contents_of, self._files[name])
            if before == content:
                return content
        return ""

    def _refuse(self, name: str, cause: Exception, *, again: bool) -> None:
        told = str(cause) if isinstance(cause, BerthError) else f"{type(cause).__name__}: {cause}"
        if again or self._refused.get(name) != told:
            self._api.metrics.reloads.labels("refused").inc()
            message = "reload refused, the old configuration stays"
            self._api.journal.tell(message, "central/reload", level="error", files=name, cause=told)
        self._refused[name] = told

    def _takers(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "zones": self._zones,
            "identities": self._identities,
            "cluster tokens": self._tokens,
            "TLS files": self._tls,
            "token for ROR": lambda: self._token("token for ROR"),
            "token for Splunk": lambda: self._token("token for Splunk"),
            "token for NetBox": lambda: self._token("token for NetBox"),
        }

    async def _zones(self) -> None:
        zones = await asyncio.to_thread(load_zones, self._settings.zones)
        await self._api.ledger.configure(zones.pools)
        self._api.config = replace(self._api.config, zones=zones)

    async def _identities(self) -> None:
        identities = await asyncio.to_thread(load_identities, self._settings.identities)
        self._api.config = replace(self._api.config, identities=identities)

    async def _tokens(self) -> None:
        tokens = await asyncio.to_thread(load_tokens, self._settings.cluster_token_file)
        self._api.config = replace(self._api.config, tokens=tokens)

    async def _tls(self) -> None:
        await self._port.renew(await asyncio.to_thread(tls_context, self._settings.tls))

    async def _token(self, name: str) -> None:
        """Whoever uses it reads it (tokens.py); here is only told what is wrong with it."""
        (path,) = self._files[name]
        try:
            await asyncio.to_thread(read_token, path)
        except (OSError, ValueError) as cause:
            raise UserError(f"The {name}, {path}, cannot be read: {file_fault(cause)}.") from cause
