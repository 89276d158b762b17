"""What a review says, held against what the API server really has.

Whoever reaches the port can make up a review. So nothing is spent, joined or read on the word of one: an
update is believed if its old object is the stored one, a creation if nothing of that name is stored. What a
made-up creation can ask for is bounded, and comes back by itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from berth.control.cache import Cache
from berth.control.review import Review
from berth.dialects.vitistack import kinds, messages
from berth.dialects.vitistack.messages import No
from berth.dialects.vitistack.record_store import Filed
from berth.errors import KubeError, NotFound
from berth.kube import meta
from berth.kube.client import Client

Object = dict[str, Any]
CREATE, UPDATE = "CREATE", "UPDATE"
MOST = 512  # Services of a namespace on their way; an API server has 200 writes under way, as it is shipped
NAMESPACES = 1000


class Stored:
    def __init__(self, client: Client, services: Cache, filed: Filed, seconds: float) -> None:
        self._client = client
        self._services = services
        self._filed = filed
        self._seconds = seconds  # how long a Service may take to be stored
        self._coming: dict[str, dict[tuple[str, str], float]] = {}  # by namespace: name, what for, until

    async def insist(self, review: Review) -> None:
        """On an API server's update an old object that is not the stored one means: somebody wrote in
        between, and it will ask again. It does that by itself for a patch, if we call it a Conflict.
        """
        if not review.name:
            raise No(messages.missing(review.name), code=404, reason="NotFound")
        if review.operation == UPDATE:
            await self._insist_on_old(review)
        elif self._is_known(review) and await self._live(review) is not None:
            raise No(messages.exists(review.name), code=409, reason="AlreadyExists")

    async def _insist_on_old(self, review: Review) -> None:
        live = await self._live(review)
        if live is None:
            raise No(messages.missing(review.name), code=404, reason="NotFound")
        if _version(live) != _version(review.old_object) or meta.is_deleting(live):
            raise No(messages.modified(review.name), code=409, reason="Conflict")

    def _is_known(self, review: Review) -> bool:
        """To a watch, perhaps a moment late. A stored Service left a record before it was stored."""
        if self._services.get(review.namespace, review.name) is not None:
            return True
        return any(not one.released for one in self._filed.of_service(review.namespace, review.name))

    async def _live(self, review: Review) -> Object | None:
        try:
            return await self._client.get(kinds.SERVICE, review.name, review.namespace)
        except NotFound:
            return None
        except KubeError as error:
            raise messages.said_by_server(error) from error

    def is_there(self, review: Review) -> bool:
        """Whether its old object is one that we know."""
        live = self._services.get(review.namespace, review.name)
        return live is not None and _version(live)[0] == _version(review.old_object)[0]

    def expect(self, namespace: str, name: str, what: str) -> None:
        """A Service is being created: those that never come may not ask for ever more."""
        coming = self._coming.setdefault(namespace, {})
        if len(coming) >= 2 * MOST and (name, what) not in coming:  # asked for, and then named
            self._tidy(coming, namespace)
            if len(coming) >= 2 * MOST:
                raise No(
                    messages.too_many(MOST, namespace, self._seconds), code=429, reason="TooManyRequests"
                )
        coming[name, what] = time.monotonic() + self._seconds
        if len(self._coming) > NAMESPACES:
            for one, theirs in self._coming.items():
                self._tidy(theirs, one)
            self._coming = {one: theirs for one, theirs in self._coming.items() if theirs}

    def _tidy(self, coming: dict[tuple[str, str], float], namespace: str) -> None:
        """Lapsed, or there by now: whichever replica was asked, each sees the Services."""
        now = time.monotonic()
        for key, until in list(coming.items()):
            if until < now or self._services.get(namespace, key[0]) is not None:
                del coming[key]


def _version(service: Mapping[str, Any]) -> tuple[str, str]:
    about = service.get("metadata") or {}
    return str(about.get("uid", "")), str(about.get("resourceVersion", ""))
