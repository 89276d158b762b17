"""What one client may ask of us: size and pace of bodies, requests a second, and guesses at a secret."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from aiohttp import web

from berth.backoff import Backoff
from berth.central.answers import HttpRefusal
from berth.token_bucket import Bucket

AT_ONCE = 64  # who shares an address may come in a crowd, as long as none of them is wrong
REMEMBERED = 10_000  # sources (or source and address pairs) kept in mind
BACKOFF = Backoff(1.0, 60.0)  # between wrong secrets
DEBT_SECONDS = 10.0  # the longest that one dear request makes the next ones wait
TOO_MANY = "TooManyRequests"
K = TypeVar("K")
V = TypeVar("V")


async def body(request: web.BaseRequest, most: int, seconds: float) -> bytes:
    """The whole body: 413 when it is too large, 408 when it comes too slowly."""
    if (request.content_length or 0) > most:
        raise HttpRefusal(413, "request body too large", "TooLarge")
    if request.content.is_eof():
        read = request.content.read_nowait()
    else:
        read = await _read(request, most, seconds)
    if len(read) > most:
        raise HttpRefusal(413, "request body too large", "TooLarge")
    return read


async def _read(request: web.BaseRequest, most: int, seconds: float) -> bytes:
    parts = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.content.iter_any():
                parts += part
                if len(parts) > most:
                    break
    except TimeoutError:
        raise HttpRefusal(408, "request body came too slowly", "TooSlow") from None
    return bytes(parts)


class Throttle:
    """A bucket of tokens per source; `rate` a second, twice that at once. A request that turns out to be dear
    is charged afterwards: it passes, and the next ones wait.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def admit(self, source: str) -> None:
        if self._rate > 0 and not (bucket := self._bucket(source)).take():
            raise _slow_down(bucket.seconds_to_next())

    def charge(self, source: str, tokens: float) -> None:
        if self._rate > 0:
            self._bucket(source).charge(tokens, DEBT_SECONDS)

    def _bucket(self, source: str) -> Bucket:
        bucket = self._buckets.get(source) or Bucket(self._rate, 2 * self._rate + 1, self._clock)
        _remember(self._buckets, source, bucket)
        return bucket


class Guesses:
    """Counts wrong secrets in a row per source and address; past the limit each one costs a longer pause, and
    comes alone: what is under way may be wrong, too.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._wrong: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._under_way: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def trying(self, source: str, address: str | None) -> Iterator[None]:
        """While a secret is being compared."""
        if self._limit <= 0 or address is None:
            yield
            return
        self.admit(source, address)
        key = (source, address)
        wrong = self._wrong.get(key, (0, 0.0))[0]
        if self._under_way[key] >= (max(1, self._limit - wrong) if wrong else AT_ONCE):
            raise _slow_down(1.0)
        self._under_way[key] += 1
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]

    def admit(self, source: str, address: str | None) -> None:
        if (pause := self.pause(source, address)) > 0:
            raise _slow_down(pause)

    def pause(self, source: str, address: str | None) -> float:
        """Seconds until the next secret is compared."""
        if self._limit <= 0 or address is None:
            return 0.0
        count, until = self._wrong.get((source, address), (0, 0.0))
        return max(0.0, until - self._clock()) if count >= self._limit else 0.0

    def paused(self, source: str, addresses: Iterable[str | None]) -> frozenset[str | None]:
        """Those for which no secret is compared now."""
        if not self._wrong:
            return frozenset()
        return frozenset(address for address in addresses if self.pause(source, address))

    def wrong(self, source: str, address: str | None) -> None:
        if self._limit <= 0 or address is None:
            return
        count = self._wrong.get((source, address), (0, 0.0))[0] + 1
        pause = BACKOFF.delay(count - self._limit) if count >= self._limit else 0.0
        _remember(self._wrong, (source, address), (count, self._clock() + pause))

    def right(self, source: str, address: str | None) -> None:
        if self._wrong and address is not None:
            self._wrong.pop((source, address), None)


def _remember(table: OrderedDict[K, V], key: K, value: V) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > REMEMBERED:
        table.popitem(last=False)


def _slow_down(seconds: float) -> HttpRefusal:
    refusal = HttpRefusal(429, "too many requests, slow down", TOO_MANY)
    refusal.headers["Retry-After"] = str(max(1, round(seconds + 0.5)))
    return refusal
