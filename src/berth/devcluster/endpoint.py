"""A few plain HTTPS requests to our own servers, to know when they are ready.

In a thread with the standard library, so that nothing of it belongs to an event loop: the tests of one
worker share a cluster, and each has a loop of its own. `kube/client.py` is what real work uses.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import Any

from berth.devcluster.pki import Pki
from berth.errors import Unreachable

TIMEOUT_SECONDS = 10.0
# Whoever asks for readiness asks again; a stranger on our port who says nothing must not hold it up.
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    status: int
    text: str

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One server on loopback, spoken to with one of the cluster's client certificates."""

    port: int
    context: ssl.SSLContext

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def request(self, method: str, path: str, body: object = None) -> EndpointAnswer:
        return await asyncio.to_thread(self._request, method, path, body, TIMEOUT_SECONDS)

    async def answers(self, path: str) -> bool:
        try:
            return (await asyncio.to_thread(self._request, "GET", path, None, PROBE_SECONDS)).ok
        except Unreachable:
            return False

    def _request(self, method: str, path: str, body: object, seconds: float) -> EndpointAnswer:
        content = None if body is None else json.dumps(body)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self.context, timeout=seconds
        )
        try:
            connection.request(method, path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return EndpointAnswer(response.status, response.read().decode(errors="replace"))
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no answer from {self.url}{path}: {error}") from error
        finally:
            connection.close()


def context_for(pki: Pki, client: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.load_cert_chain(pki.certificate(client), pki.key(client))
    return context
