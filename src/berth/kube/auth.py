"""Credentials: where the API server is, how it proves itself, and who we are, always fresh.

`load()` finds them the way kubectl does; `client.py` asks for an Access before each request and says when
the server refused one. Rotation happens here and nowhere else: tokens are read again, certificates loaded
again, and a changed certificate comes as a new SSL context, so old connections are not reused. No secret is
in any repr.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from berth import log
from berth.errors import UserError
from berth.kube import kubeconfig
from berth.kube.http.tls import ClientCertificate, Pem, ServerTrust
from berth.kube.identity import BearerTokenFile, Proof
from berth.kube.kubeconfig import Context

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# How often replaced certificate files are looked for; a look is a stat.
FILES_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RequestAuth:
    """What one request needs to be let in."""

    authorization: str = field(repr=False)
    tls: ssl.SSLContext | None
    valid_until_seconds: float


class Credentials:
    """One server and one identity; hands out the present Access and renews it when its time is over."""

    def __init__(self, context: Context, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = context.server
        self.server_name = context.server_name or None
        self.namespace = context.namespace or "default"
        self._trust = context.trust
        self._identity = context.identity
        self._clock = clock
        self._lock = asyncio.Lock()
        self._log = log.get("berth.kube")
        self._access: RequestAuth | None = None
        self._tls: tuple[object, ssl.SSLContext] | None = None

    def __repr__(self) -> str:
        return f"Credentials({self.server})"

    def access(self) -> RequestAuth | None:
        """The access in hand, or None if it must be renewed first; no await, it is asked on every request."""
        access = self._access
        return access if access is not None and self._clock() < access.valid_until_seconds else None

    async def renew(self, refused: RequestAuth | None = None) -> RequestAuth:
        """Proves us anew. `refused` is the access the server did not take: if it was replaced since, that
        will do.
        """
        async with self._lock:
            access = self.access()
            if access is None or access is refused:
                access = self._access = await self._prove(keep_old=refused is None)
            return access

    async def _prove(self, keep_old: bool) -> RequestAuth:
        try:
            return self._entry(await self._identity.prove())
        except UserError as error:
            if self._access is None or not keep_old:
                raise
            # A file being replaced or a plug-in failing once is no reason to stop: the server decides if the
            # old proof is still good, and a 401 brings us back here without it.
            self._log.warning("credentials could not be renewed", server=self.server, error=str(error))
            return replace(self._access, valid_until_seconds=self._clock() + FILES_SECONDS)

    def _entry(self, proof: Proof) -> RequestAuth:
        tls = self._context(proof.certificate) if self.server.startswith("https://") else None
        until = proof.valid_until_seconds
        if _files(self._trust.ca, proof.certificate):
            until = min(until, self._clock() + FILES_SECONDS)
        return RequestAuth(proof.authorization, tls, until)

    def _context(self, certificate: ClientCertificate) -> ssl.SSLContext:
        """The same context as long as its material is the same: connections are pooled per context."""
        material = (certificate, [_stamp(file) for file in _files(self._trust.ca, certificate)])
        if self._tls is None or self._tls[0] != material:
            context = self._trust.context()
            if certificate:
                certificate.load_into(context)
            self._tls = (material, context)
        return self._tls[1]


def load(kubeconfig: Path | None = None, env: Mapping[str, str] = os.environ) -> Credentials:
    """Explicit file, else KUBECONFIG, else in-cluster, else ~/.kube/config."""
    return Credentials(_find(kubeconfig, env))


def in_cluster(env: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> Context:
    """The service account of the pod we run in."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = directory / "namespace"
    return Context(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        trust=ServerTrust(Pem(file=directory / "ca.crt")),
        identity=BearerTokenFile(directory / "token"),
        namespace=namespace.read_text().strip() if namespace.exists() else "",
    )


def _find(explicit: Path | None, env: Mapping[str, str]) -> Context:
    if explicit is not None:
        return kubeconfig.read([explicit])
    if listed := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        # As in kubectl, files of the list may be missing, but not all of them.
        return kubeconfig.read([file for file in listed if file.exists()] or listed[:1])
    if env.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(env)
    home = Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"
    if home.exists():
        return kubeconfig.read([home])
    raise UserError("No cluster to talk to: give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster.")


def _files(ca: Pem, certificate: ClientCertificate) -> list[Path]:
    return [pem.file for pem in (ca, certificate.certificate, certificate.key) if pem.file is not None]


def _stamp(file: Path) -> tuple[Path, int, int]:
    try:
        found = file.stat()  # follows symbolic links: projected volumes swap a link, not a file
    except OSError:
        return file, 0, 0  # being replaced, perhaps; reading it will tell
    return file, found.st_mtime_ns, found.st_size
