"""The client against a scripted server: what it sends, what it repeats, what it does when an answer does
not come.

What a real API server can be made to show is tested on the real one, in test_client_cluster.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from tests.kube.scripted import (
    CONFIGMAPS,
    Reply,
    Server,
    answer,
    bytes_of,
    configmap,
    cut,
    listing,
    refusal,
    scripted,
    silence,
)

from berth import errors
from berth.kube.client import Client, PatchKind
from berth.kube.identity import Proof
from berth.kube.retry import Retry
from berth.kube.transport import Request

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Waits:
    """A sleep that only takes notes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def talking(*script: Reply, **options: Any) -> AsyncIterator[tuple[Client, Server]]:
    async with scripted(*script) as server, Client(server.credentials(), **options) as client:
        yield client, server


def patient(waits: Waits) -> Retry:
    return Retry(sleep=waits, jitter=lambda low, _: low)


# What is sent


async def test_requests_reuse_one_connection() -> None:
    async with talking(*[answer(200, configmap("a", 1))] * 5) as (client, server):
        for _ in range(5):
            await client.get(CONFIGMAPS, "a", "default")
    assert (len(server.asked), server.connections) == (5, 1)


async def test_a_request_says_who_sends_it_and_what_it_takes() -> None:
    async with talking(answer(201, configmap("a", 1)), user_agent="berth/1.2 (test)") as (client, server):
        await client.create(CONFIGMAPS, configmap("a", 0), "default")
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/configmaps")
    assert orjson.loads(asked.body) == configmap("a", 0)
    assert asked.headers["user-agent"] == "berth/1.2 (test)"
    assert asked.headers["accept"] == asked.headers["content-type"] == "application/json"
    assert asked.headers["accept-encoding"] == "identity"


async def test_a_created_object_goes_to_the_namespace_it_names() -> None:
    async with talking(answer(201, configmap("a", 1))) as (client, server):
        await client.create(CONFIGMAPS, configmap("a", 0))
    assert server.asked[0].path == "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("kind", PatchKind)
async def test_a_patch_carries_its_kind_and_options(kind: PatchKind) -> None:
    async with talking(answer(200, configmap("a", 1))) as (client, server):
        await client.patch(
            CONFIGMAPS,
            "a",
            {"status": {}},
            "default",
            kind=kind,
            subresource="status",
            field_manager="me & you",
            dry_run=True,
            force=True,
        )
    (asked,) = server.asked
    path, _, query = asked.path.partition("?")
    assert (asked.method, path) == ("PATCH", "/api/v1/namespaces/default/configmaps/a/status")
    assert query == "fieldManager=me%20%26%20you&dryRun=All&force=true"
    assert asked.headers["content-type"] == kind.value


async def test_a_delete_names_its_preconditions() -> None:
    gone = {"kind": "Status", "status": "Success"}
    async with talking(answer(200, gone), answer(200, configmap("a", 2))) as (client, server):
        assert await client.delete(CONFIGMAPS, "a", "default") is None
        left = await client.delete(
            CONFIGMAPS,
            "a",
            "default",
            uid="u",
            resource_version="7",
            grace_seconds=0,
            propagation="Background",
        )
    assert left == configmap("a", 2)
    assert server.asked[0].body == b""
    assert orjson.loads(server.asked[1].body) == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
    }


async def test_a_raw_request_returns_json_or_text() -> None:
    async with talking(answer(200, {"a": 1}), answer(200, b"ok")) as (client, server):
        assert await client.raw("POST", "/x", body=[1], params={"a": "b c"}, headers={"X-Y": "z"}) == {"a": 1}
        assert await client.raw("GET", "/readyz") == "ok"
    assert (server.asked[0].path, server.asked[0].headers["x-y"]) == ("/x?a=b%20c", "z")


async def test_a_line_end_in_a_path_is_refused_before_it_is_sent() -> None:
    async with talking() as (client, server):
        with pytest.raises(ValueError, match="printable"):
            await client.raw("GET", "/x HTTP/1.1\r\nEvil: yes")
    assert server.asked == []


async def test_the_guard_is_asked_before_every_attempt_of_a_write_and_never_for_a_read() -> None:
    asked = 0

    def guard() -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            raise errors.NotLeader("another leads")

    script = [answer(200, configmap("a", 1)), refusal(429), refusal(429)]
    async with talking(*script, guard=guard, retry=patient(Waits())) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        with pytest.raises(errors.NotLeader):
            await client.create(CONFIGMAPS, configmap("a", 0))
    assert len(server.asked) == 3


@pytest.mark.parametrize("verb", ["create", "patch", "replace", "delete", "raw"])
async def test_no_write_is_sent_when_the_guard_refuses(verb: str) -> None:
    def guard() -> None:
        raise errors.NotLeader("another leads")

    obj = configmap("a", 0)
    async with talking(guard=guard) as (client, server):
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "create": lambda: client.create(CONFIGMAPS, obj),
            "patch": lambda: client.patch(CONFIGMAPS, "a", {}, "default"),
            "replace": lambda: client.replace(CONFIGMAPS, obj),
            "delete": lambda: client.delete(CONFIGMAPS, "a", "default"),
            "raw": lambda: client.raw("POST", "/x", body={}),
        }
        with pytest.raises(errors.NotLeader):
            await calls[verb]()
    assert server.asked == []


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    running = most = 0
    gate = asyncio.Event()

    async def slow(line: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            gate.set()
        await gate.wait()
        running -= 1
        await line.say(WHOLE)

    async with talking(*[slow] * 12, in_flight=3) as (client, _):
        await asyncio.gather(*(client.get(CONFIGMAPS, "a", "default") for _ in range(12)))
    assert most == 3


async def test_every_attempt_is_observed_with_its_verb_and_code() -> None:
    seen: list[tuple[str, int]] = []
    script = [refusal(429), answer(200, listing(5)), cut()]
    options = {"observe": lambda verb, code, _: seen.append((verb, code)), "retry": patient(Waits())}
    async with talking(*script, **options) as (client, _):
        await client.list(CONFIGMAPS)
        with pytest.raises(errors.Unreachable):
            await client.create(CONFIGMAPS, configmap("a", 0))
    assert seen == [("list", 429), ("list", 200), ("create", 0)]


# What is repeated


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


# When no answer comes

CUTS = [
    cut(),
    cut(b"HTTP/1.1 200"),
    cut(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
    cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}"),
    bytes_of(b"not http at all\r\n\r\n"),
]


@pytest.mark.parametrize("broken", CUTS)
async def test_a_cut_is_unreachable_and_a_write_is_not_sent_again(broken: Reply) -> None:
    async with talking(broken) as (client, server):
        with pytest.raises(errors.Unreachable):
            await client.create(CONFIGMAPS, configmap("a", 0))
    assert len(server.asked) == 1


@pytest.mark.parametrize("verb", ["replace", "delete"])
async def test_a_write_on_a_kept_connection_that_broke_is_not_sent_again(verb: str) -> None:
    """A general HTTP library repeats PUT and DELETE here; the first one may have taken effect."""
    async with talking(answer(200, configmap("a", 1)), cut()) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "replace": lambda: client.replace(CONFIGMAPS, configmap("a", 1)),
            "delete": lambda: client.delete(CONFIGMAPS, "a", "default"),
        }
        with pytest.raises(errors.Unreachable):
            await calls[verb]()
    assert len(server.asked) == 2


async def test_a_read_on_a_kept_connection_that_broke_is_sent_again_on_another() -> None:
    script = [answer(200, configmap("a", 1)), cut(), answer(200, configmap("a", 2))]
    async with talking(*script) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 2)
    assert server.connections == 2


async def test_no_answer_in_time_is_unreachable_and_its_connection_is_not_used_again() -> None:
    script = [silence(b"HTTP/1.1 200 OK\r\n"), answer(200, configmap("a", 1))]
    async with talking(*script, timeout_seconds=0.05) as (client, server):
        with pytest.raises(errors.Unreachable, match="no answer in time"):
            await client.get(CONFIGMAPS, "a", "default")
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)
    assert server.connections == 2


async def test_a_silent_connection_makes_us_distrust_the_others() -> None:
    """After a route dies every kept connection is as dead as the first one that is noticed."""
    both = asyncio.Event()

    async def together(line: Any) -> None:
        if len(server.asked) == 2:
            both.set()
        await both.wait()
        await line.say(WHOLE)

    script = [together, together, silence(), answer(200, configmap("a", 1))]
    async with talking(*script, timeout_seconds=0.2) as (client, server):
        await asyncio.gather(*(client.get(CONFIGMAPS, "a", "default") for _ in range(2)))
        with pytest.raises(errors.Unreachable):
            await client.get(CONFIGMAPS, "a", "default")
        await client.get(CONFIGMAPS, "a", "default")
    assert server.connections == 3


async def test_a_cancelled_request_takes_its_connection_with_it() -> None:
    reached = asyncio.Event()

    async def late(line: Any) -> None:
        reached.set()
        await line.until_the_client_leaves()
        left.set()

    left = asyncio.Event()
    async with talking(late, answer(200, configmap("a", 1))) as (client, server):
        task = asyncio.create_task(client.get(CONFIGMAPS, "a", "default"))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await left.wait()
        assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)
    assert server.connections == 2


async def test_a_connection_the_server_closes_is_not_used_again() -> None:
    last = bytes_of(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    async with talking(last, last) as (client, server):
        await client.get(CONFIGMAPS, "a", "default")
        await client.create(CONFIGMAPS, configmap("a", 0))
    assert server.connections == 2


async def test_an_answer_that_is_complete_counts_whatever_happens_to_its_connection() -> None:
    async def last_words(line: Any) -> None:
        await line.say(WHOLE)
        line.cut()

    for _ in range(20):
        async with talking(last_words) as (client, _):
            assert await client.create(CONFIGMAPS, configmap("a", 0)) == {}


@pytest.mark.parametrize("page", [b"<html>log in</html>", b"[]", b""])
async def test_an_answer_of_something_else_than_an_api_server_is_unreachable(page: bytes) -> None:
    async with talking(answer(200, page)) as (client, _):
        with pytest.raises(errors.Unreachable, match="stands before"):
            await client.get(CONFIGMAPS, "a", "default")


@pytest.mark.parametrize(
    "body", [{}, {"metadata": {}}, {"metadata": {"resourceVersion": "1"}}, {"items": []}]
)
async def test_an_answer_without_a_list_is_never_an_empty_list(body: dict[str, Any]) -> None:
    async with talking(answer(200, body)) as (client, _):
        with pytest.raises(errors.Unreachable, match="not a list"):
            await client.list(CONFIGMAPS)


# Lists


async def test_a_list_follows_its_pages_and_names_each_kind() -> None:
    script = [
        answer(200, listing(9, configmap("a", 1), configmap("b", 2), token="next/1")),
        answer(200, listing(9, configmap("c", 3))),
    ]
    async with talking(*script) as (client, server):
        found = await client.list(CONFIGMAPS, "default", label_selector="a=b,c!=d", limit=2)
    assert found.items == [configmap("a", 1), configmap("b", 2), configmap("c", 3)]
    assert found.resource_version == "9"
    assert [asked.path.partition("?")[2] for asked in server.asked] == [
        "labelSelector=a%3Db%2Cc%21%3Dd&limit=2",
        "labelSelector=a%3Db%2Cc%21%3Dd&limit=2&continue=next%2F1",
    ]


async def test_a_page_whose_token_is_too_old_means_a_list_in_one_piece() -> None:
    script = [
        answer(200, listing(9, configmap("a", 1), token="t")),
        refusal(410, "Expired"),
        answer(200, listing(11, configmap("b", 10))),
    ]
    async with talking(*script) as (client, server):
        found = await client.list(CONFIGMAPS)
    assert found.items == [configmap("b", 10)]
    assert server.asked[-1].path == "/api/v1/configmaps"


async def test_a_list_that_says_null_is_empty() -> None:
    body = {"metadata": {"resourceVersion": "4"}, "items": None}
    async with talking(answer(200, body)) as (client, _):
        assert await client.list(CONFIGMAPS) == ([], "4")


# Errors of a JSON patch


async def test_a_json_patch_whose_test_fails_is_a_conflict() -> None:
    async with talking(refusal(422, "Invalid")) as (client, _):
        with pytest.raises(errors.Conflict):
            await client.patch(CONFIGMAPS, "a", [], "default", kind=PatchKind.JSON)


async def test_a_json_patch_that_makes_the_object_invalid_is_invalid() -> None:
    details = {"causes": [{"field": "data[a b]"}]}
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "details": details}
    async with talking(answer(422, body)) as (client, _):
        with pytest.raises(errors.Invalid):
            await client.patch(CONFIGMAPS, "a", [], "default", kind=PatchKind.JSON)
