"""The verbs against a scripted server: what is sent, and what is made of the answer.

What a real API server can be made to show is tested on the real one, in test_client_cluster.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest
from tests.kube.scripted import (
    CONFIGMAPS,
    WHOLE,
    answer,
    configmap,
    cut,
    listing,
    refusal,
)
from tests.kube.talking import Waits, patient, talking

from berth import errors
from berth.kube.client import PatchKind

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
