"""admission: each review gets its answer in time; trouble of ours is an HTTP error, told without bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs
from tests.support.reviews import body_of

from berth.control.admission import Admission, Handler, Limits
from berth.control.review import Answer, Faults, Review, allowed, denied, patched
from berth.metrics import Metrics

CANARY = "canary-9c1d"


async def allow(review: Review) -> Answer:
    return allowed()


async def deny(review: Review) -> Answer:
    return denied(f"{review.name} may not")


async def validate(review: Review) -> Answer:
    faults = Faults()
    faults.add("spec.size", review.object["spec"]["size"], "is odd")
    return faults.answer(review)


async def mutate(review: Review) -> Answer:
    return patched(review, {**review.object, "spec": {"size": 3}})


async def hang(review: Review) -> Answer:
    await asyncio.Event().wait()
    return allowed()


async def fail(review: Review) -> Answer:
    raise RuntimeError(review.object["spec"]["secret"])


async def stumble(review: Review) -> Answer:
    raise KeyError(review.object["spec"]["secret"])


ROUTES: dict[str, Handler] = {
    "/allow": allow,
    "/deny": deny,
    "/validate": validate,
    "/mutate": mutate,
    "/hang": hang,
    "/fail": fail,
    "/stumble": stumble,
}


class Slow:
    """A handler that lasts as long as the test wants."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def __call__(self, review: Review) -> Answer:
        self.begun.set()
        await self.may_end.wait()
        return allowed()


class Caller:
    """Plays the API server."""

    def __init__(self, client: TestClient[Any, Any], metrics: Metrics, slow: Slow) -> None:
        self.client = client
        self.slow = slow
        self._metrics = metrics

    async def review(self, path: str, **request: Any) -> dict[str, Any]:
        status, text = await self.post(path, body_of(**request))
        assert status == 200, text
        response: dict[str, Any] = orjson.loads(text)["response"]
        return response

    async def post(self, path: str, body: bytes) -> tuple[int, str]:
        async with self.client.post(path, data=body) as answer:
            return answer.status, await answer.text()

    def counted(self, webhook: str, result: str) -> float | None:
        labels = {"webhook": webhook, "result": result}
        return self._metrics.registry.get_sample_value("berth_webhook_requests_total", labels)


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    metrics = Metrics()
    slow = Slow()
    admission = Admission({**ROUTES, "/slow": slow}, metrics, Limits(deadline_seconds=60.0, body_bytes=4096))
    async with TestClient(TestServer(admission.app())) as client:
        yield Caller(client, metrics, slow)


async def test_allowed_denied_invalid_and_patched_come_back_as_such(caller: Caller) -> None:
    assert (await caller.review("/allow"))["allowed"] is True
    assert (await caller.review("/deny"))["status"]["message"] == "b1 may not"
    assert (await caller.review("/validate"))["status"]["code"] == 422
    assert (await caller.review("/mutate"))["patchType"] == "JSONPatch"
    results = [("/allow", "allowed"), ("/deny", "denied"), ("/validate", "denied"), ("/mutate", "patched")]
    assert [caller.counted(*result) for result in results] == [1, 1, 1, 1]


async def test_a_late_handler_is_cut_off_so_that_the_failure_policy_decides(caller: Caller) -> None:
    async with asyncio.timeout(60):
        status, text = await caller.post("/hang?timeout=1s", body_of())
    assert (status, text) == (504, "no answer within the deadline")
    assert caller.counted("/hang", "timeout") == 1


async def test_the_api_servers_own_timeout_shortens_ours() -> None:
    admission = Admission(ROUTES, Metrics(), Limits(deadline_seconds=60.0))
    async with asyncio.timeout(60), TestClient(TestServer(admission.app())) as client:
        answer = await client.post("/hang?timeout=1s", data=body_of())
        assert answer.status == 504


async def test_a_failing_handler_is_a_500_that_quotes_nothing(caller: Caller) -> None:
    with capture_logs() as lines:
        status, text = await caller.post("/fail", body_of(object={"spec": {"secret": CANARY}}))
    assert status == 500
    assert CANARY not in text
    assert CANARY not in str(lines)
    assert any("RuntimeError" in str(line) and "test_admission.py" in str(line) for line in lines)
    assert caller.counted("/fail", "error") == 1


async def test_a_handler_that_stumbles_over_the_object_refuses_it_and_quotes_nothing(caller: Caller) -> None:
    with capture_logs() as lines:
        answer = await caller.review("/stumble", object={"spec": {"secret": CANARY}})
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 400
    assert CANARY not in str((answer, lines))
    assert any("KeyError" in str(line) and "test_admission.py" in str(line) for line in lines)
    assert caller.counted("/stumble", "error") == 1


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ({"object": {"spec": CANARY}}, "spec is not an object"),
        ({"object": {}, "oldObject": {"status": [CANARY]}}, "status is not an object"),
        ({"name": "b" * 254, "object": {}}, "the name is longer than 253 characters"),
        ({"name": "", "object": {"metadata": {"name": "b" * 254}}}, "the name is longer than 253 characters"),
        ({"object": {"metadata": {"uid": "b" * 254}}}, "metadata.uid is longer than 253 characters"),
    ],
)
async def test_what_no_object_is_like_is_refused_before_a_handler_sees_it(
    caller: Caller, objects: dict[str, Any], why: str
) -> None:
    """A user can write such a thing, and a mutating webhook is asked before the schema is."""
    answer = await caller.review("/allow", **objects)
    assert answer["status"]["message"] == f"the object cannot be read: {why}"
    assert answer["status"]["code"] == 400


async def test_no_log_line_carries_the_object(caller: Caller) -> None:
    with capture_logs() as lines:
        await caller.review("/deny", object={"metadata": {"name": "b1"}, "spec": {"secret": CANARY}})
        await caller.post("/allow", CANARY.encode())
    assert len(lines) >= 2
    assert CANARY not in str(lines)


async def test_a_bad_review_is_400_with_its_fault(caller: Caller) -> None:
    assert await caller.post("/allow", b"{") == (400, "the body is not JSON")
    assert caller.counted("/allow", "bad") == 1


async def test_a_body_past_the_limit_is_413(caller: Caller) -> None:
    status, _ = await caller.post("/allow", body_of(object={"spec": {"text": "x" * 5000}}))
    assert status == 413


async def test_other_paths_and_verbs_are_not_served(caller: Caller) -> None:
    assert (await caller.post("/other", body_of()))[0] == 404
    async with caller.client.get("/allow") as answer:
        assert answer.status == 405


async def test_a_body_that_never_ends_is_cut_off_too(caller: Caller) -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with asyncio.timeout(60):
        try:
            async with caller.client.post("/allow?timeout=1s", data=drip()) as answer:
                assert answer.status == 504
        except aiohttp.ClientConnectionError:
            pass  # the server may close before the client has read
    assert caller.counted("/allow", "timeout") == 1


async def test_many_reviews_at_once_do_not_wait_for_a_slow_one(caller: Caller) -> None:
    slow = asyncio.create_task(caller.post("/slow", body_of()))
    await caller.slow.begun.wait()
    quick = await asyncio.gather(*(caller.review("/allow") for _ in range(50)))
    assert all(answer["allowed"] for answer in quick)
    assert not slow.done()
    caller.slow.may_end.set()
    assert (await slow)[0] == 200
