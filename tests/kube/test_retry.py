"""What is sent again, and what is not."""

from __future__ import annotations

import pytest
from tests.kube.scripted import (
    CONFIGMAPS,
    answer,
    configmap,
    refusal,
    scripted,
)
from tests.kube.talking import Waits, patient, talking

from berth import errors
from berth.kube.client import Client
from berth.kube.http.transport import Request
from berth.kube.identity import Proof
from berth.kube.retry import Retry


async def test_429_is_repeated_after_the_time_the_server_asks_for() -> None:
    waits = Waits()
    script = [refusal(429, retry_after="2"), refusal(429, retry_after="3"), answer(201, configmap("a", 1))]
    async with talking(*script, retry=patient(waits)) as (client, _):
        assert await client.create(CONFIGMAPS, configmap("a", 0)) == configmap("a", 1)
    assert waits.seconds == [2.0, 3.0]


async def test_429_without_a_time_backs_off_by_itself_and_gives_up_in_the_end() -> None:
    waits = Waits()
    async with talking(*[refusal(429)] * 5, retry=patient(waits)) as (client, server):
        with pytest.raises(errors.TooManyRequests):
            await client.create(CONFIGMAPS, configmap("a", 0))
    assert waits.seconds == [0.2, 0.4, 0.8, 1.6]
    assert len(server.asked) == 5


async def test_a_wait_that_is_too_long_is_the_callers() -> None:
    async with talking(refusal(429, retry_after="60"), retry=patient(Waits())) as (client, _):
        with pytest.raises(errors.TooManyRequests) as caught:
            await client.get(CONFIGMAPS, "a", "default")
    assert caught.value.retry_after_seconds == 60


async def test_503_with_retry_after_is_repeated_for_reads_only() -> None:
    busy = refusal(503, "ServiceUnavailable", retry_after="1")
    async with talking(busy, answer(200, configmap("a", 1)), busy, retry=patient(Waits())) as (client, _):
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)
        with pytest.raises(errors.ServerError):
            await client.create(CONFIGMAPS, configmap("a", 0))


@pytest.mark.parametrize("code", [500, 503, 504])
async def test_other_server_errors_are_not_repeated(code: int) -> None:
    async with talking(refusal(code)) as (client, server):
        with pytest.raises(errors.ServerError):
            await client.get(CONFIGMAPS, "a", "default")
    assert len(server.asked) == 1


def test_waits_are_spread_so_that_waiters_do_not_come_back_together() -> None:
    error = errors.TooManyRequests(429, "", retry_after_seconds=1.0)
    waits = {Retry().wait_seconds(Request("GET", "/", "get"), error, 1) for _ in range(50)}
    assert len(waits) > 40
    assert all(wait is not None and 1.0 <= wait <= 1.5 for wait in waits)


class Rotating:
    """An identity whose token changes whenever it is asked."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def prove(self) -> Proof:
        if not self.tokens:
            raise errors.UserError("no more tokens")
        return Proof(f"Bearer {self.tokens.pop(0)}")


async def test_a_401_is_repeated_once_with_renewed_credentials() -> None:
    script = [refusal(401, "Unauthorized"), answer(200, configmap("a", 1))]
    identity = Rotating("old", "new")
    async with scripted(*script) as server, Client(server.credentials(identity)) as client:
        await client.get(CONFIGMAPS, "a", "default")
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]


@pytest.mark.parametrize("tokens", [("same", "same"), ("a", "b", "c"), ("only",)])
async def test_a_401_that_stays_is_the_callers(tokens: tuple[str, ...]) -> None:
    script = [refusal(401, "Unauthorized")] * 2
    identity = Rotating(*tokens)
    async with scripted(*script) as server, Client(server.credentials(identity)) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get(CONFIGMAPS, "a", "default")
