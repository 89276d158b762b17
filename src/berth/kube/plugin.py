"""The exec plug-in of a kubeconfig: a program that prints an ExecCredential (client.authentication.k8s.io).

An `Identity` like those in `identity.py`. It is run when there is no proof yet, when the one it gave
expires, and after a 401; never more than one at a time, because `auth.py` holds a lock around it.
"""

from __future__ import annotations

import asyncio
import base64
import math
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from berth.errors import UserError
from berth.kube.http.tls import ClientCertificate, Pem
from berth.kube.identity import Proof, bearer
from berth.kube.meta import parse_timestamp

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# Renewed a little early: a token that ends while the request travels is a 401 for nothing.
EARLY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Plugin:
    """One `exec` section; `directory` is the kubeconfig's, from which relative commands count."""

    command: str
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = VERSIONS[0]
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    directory: Path = Path()
    run_seconds: float = 60.0

    async def prove(self) -> Proof:
        return self._proof(self._credential(await self._run()))

    async def _run(self) -> bytes:
        process = await self._start()
        try:
            async with asyncio.timeout(self.run_seconds):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._fault(f"did not answer within {self.run_seconds:.0f} s") from error
        finally:
            await _end(process)
        if process.returncode != 0:
            raise self._fault(f"ended with code {process.returncode}{_last_line(complaint)}")
        return output

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                self._program(),
                *self.arguments,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": self._info()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise self._fault(f"cannot be run: {error.strerror or error}") from error

    def _program(self) -> str:
        if "/" in self.command:
            found = self.directory / self.command
            program = str(found) if found.exists() else None
        else:
            program = shutil.which(self.command, path=self.env.get("PATH") or os.environ.get("PATH"))
        if program is None:
            raise self._fault("is not installed" + (f": {self.install_hint}" if self.install_hint else ""))
        return program

    def _info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        return orjson.dumps(info).decode()

    def _credential(self, output: bytes) -> Mapping[str, Any]:
        try:
            answer = orjson.loads(output)
            status = answer["status"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise self._fault("did not print an ExecCredential with a status") from error
        if answer.get("apiVersion") != self.api_version:
            raise self._fault(f"answered for another API version than {self.api_version}")
        if not isinstance(status, dict) or not (status.get("token") or status.get("clientCertificateData")):
            raise self._fault("gave neither a token nor a certificate")
        return status

    def _proof(self, status: Mapping[str, Any]) -> Proof:
        certificate = ClientCertificate(
            Pem(data=str(status.get("clientCertificateData") or "").encode()),
            Pem(data=str(status.get("clientKeyData") or "").encode()),
        )
        return Proof(bearer(str(status.get("token") or "")), certificate, self._until(status))

    def _until(self, status: Mapping[str, Any]) -> float:
        text = status.get("expirationTimestamp")
        if not text:
            return math.inf
        try:
            left = (parse_timestamp(str(text)) - datetime.now(UTC)).total_seconds()
        except ValueError as error:
            raise self._fault("gave an expirationTimestamp that is no time") from error
        return time.monotonic() + max(left - EARLY_SECONDS, min(left, 1.0))

    def _fault(self, what: str) -> UserError:
        return UserError(f"The kubeconfig's credential program {self.command} {what}.")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _last_line(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").strip().splitlines()
    return f": {lines[-1][:200].rstrip('.')}" if lines else ""


def decode(text: str, where: str) -> bytes:
    """The base64 of a kubeconfig's `…-data` field."""
    try:
        return base64.b64decode("".join(text.split()), validate=True)  # it may be wrapped, as for kubectl
    except ValueError as error:
        raise UserError(f"{where} is not base64.") from error
