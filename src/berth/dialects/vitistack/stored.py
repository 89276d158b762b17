"""What a review says, held against what the API server really has.

Whoever reaches the port can make up a review. An update is believed if its old object is the stored one. Of a
creation nothing is stored yet: it is believed if nothing of that name is there, if it is not one that came
before, and if it was not made long ago. One that somebody makes up anew passes; so what creations may ask for
before their Services come is bounded, in a namespace and in all, and so are the names of Secrets that they
may try in vain. What they got comes back by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
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
# Services on their way in a namespace, and in all; an API server has 200 writes under way, as it is shipped.
MOST, MOST_IN_ALL = 200, 1000
MOST_GUESSES = 50  # names of Secrets in a namespace that were of no use
STALE_SECONDS = 600.0  # since a Service was made: more than clocks may differ
REVIEWS = 4096  # to remember


class Lapsing:
    """What is under way, by namespace, each for so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[tuple[str, ...], float] = {}
        self._many: Counter[str] = Counter()

    def __contains__(self, key: tuple[str, ...]) -> bool:
        return key in self._until

    def is_full(self, namespace: str, most: int, in_all: int) -> bool:
        return self._many[namespace] >= most or len(self._until) >= in_all

    def add(self, *key: str) -> None:
        if key not in self._until:
            self._many[key[0]] += 1
        self._until[key] = time.monotonic() + self._seconds

    def discard(self, *key: str) -> None:
        if self._until.pop(key, None) is not None:
            self._many[key[0]] -= 1
            if not self._many[key[0]]:
                del self._many[key[0]]

    def tidy(self, is_done: Callable[[tuple[str, ...]], bool] = lambda key: False) -> None:
        now = time.monotonic()
        for key in [key for key, until in self._until.items() if until < now or is_done(key)]:
            self.discard(*key)


class Stored:
    def __init__(self, client: Client, services: Cache, filed: Filed, seconds: float) -> None:
        self._client = client
        self._services = services
        self._filed = filed
        self._seconds = seconds  # how long a Service may take to be stored
        self._coming = Lapsing(seconds)  # Services: name, what for
        self._guesses = Lapsing(seconds)  # names of Secrets
        self._answered: dict[str, None] = {}  # UIDs of creations' reviews, the latest last

    async def insist(self, review: Review) -> None:
        """On an API server's update an old object that is not the stored one means: somebody wrote in
        between, and it will ask again. It does that by itself for a patch, if we call it a Conflict.
        """
        if not review.name:
            raise No(messages.missing(review.name), code=404, reason="NotFound")
        if review.operation == UPDATE:
            await self._insist_on_old(review)
            return
        self.insist_on_new(review)
        if self._is_known(review) and await self._live(review) is not None:
            raise No(messages.exists(review.name), code=409, reason="AlreadyExists")

    def insist_on_new(self, review: Review) -> None:
        """A creation that came before, or long ago, was true then: its Service has come, or never will."""
        made_at = _made_at(review.object)
        if made_at is not None and (datetime.now(UTC) - made_at).total_seconds() > STALE_SECONDS:
            raise No(messages.stale(review.name, made_at, STALE_SECONDS), code=409, reason="Conflict")
        if review.uid in self._answered:
            raise No(messages.answered(review.name), code=409, reason="Conflict")
        self._answered[review.uid] = None
        if len(self._answered) > REVIEWS:
            del self._answered[next(iter(self._answered))]

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
        coming, limits = self._coming, (2 * MOST, 2 * MOST_IN_ALL)  # asked for, and then named
        if (namespace, name, what) not in coming and coming.is_full(namespace, *limits):
            # Whichever replica was asked, each sees the Services.
            coming.tidy(lambda key: self._services.get(key[0], key[1]) is not None)
            if coming.is_full(namespace, *limits):
                text = messages.too_many(MOST, namespace, self._seconds)
                raise No(text, code=429, reason="TooManyRequests")
        coming.add(namespace, name, what)

    @contextmanager
    def guessing(self, namespace: str, secret: str) -> Iterator[None]:
        """Around the look at a user's Secret: who asks may be made up as well, and whether there is such a
        Secret shows in the answer. Names that were of no use count.
        """
        guesses, limits = self._guesses, (MOST_GUESSES, MOST_IN_ALL)
        if (namespace, secret) not in guesses and guesses.is_full(namespace, *limits):
            guesses.tidy()
            if guesses.is_full(namespace, *limits):
                text = messages.too_many_secrets(namespace, self._seconds)
                raise No(text, code=429, reason="TooManyRequests")
        guesses.add(namespace, secret)
        try:
            yield
        except No as no:
            if no.code != 403:
                guesses.discard(namespace, secret)
            raise
        guesses.discard(namespace, secret)


def _made_at(service: Mapping[str, Any]) -> datetime | None:
    """When the API server last wrote a time into it: for a creation that is just now."""
    about = service.get("metadata") or {}
    fields = about.get("managedFields") or ()
    texts = [about.get("creationTimestamp"), *(one.get("time") for one in fields if isinstance(one, dict))]
    times = []
    for text in texts:
        with suppress(ValueError, OverflowError):  # no time at all: made up, or none was written
            times.append(meta.parse_timestamp(str(text)))
    return max(times, default=None)


def _version(service: Mapping[str, Any]) -> tuple[str, str]:
    about = service.get("metadata") or {}
    return str(about.get("uid", "")), str(about.get("resourceVersion", ""))
