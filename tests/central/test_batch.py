"""Several calls in one request: each is answered as it would have been alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from tests.support.central import OTHER_SECRET, Options, World, request_body

from berth.central.client import Access, ApiClient
from berth.central.settings import ApiLimits
from berth.errors import ApiRefused

Start = Callable[..., AbstractAsyncContextManager[World]]
A = "83.118.168.10/32"


def post(service: str, **changes: Any) -> dict[str, Any]:
    return {"method": "POST", "body": request_body(service, **changes)}


def delete(service: str, **changes: Any) -> dict[str, Any]:
    return {"method": "DELETE", "body": request_body(service, **changes)}


async def test_each_call_has_its_own_answer(world: World) -> None:
    await world.post("a", address=A)
    calls = [
        post("a", address=A),
        post("b"),
        post("c", address=A, secret=OTHER_SECRET),
        post("d", zone="mars"),
        delete("a", address=A),
        {"method": "PUT", "body": {}},
        "nonsense",
    ]
    reply = await world.send("POST", "/v2/batch", {"calls": calls})
    assert reply.status == 200
    found = reply.body["answers"]
    assert [one["status"] for one in found] == [200, 200, 404, 400, 200, 400, 400]
    assert found[0]["body"] == {"message": "IP-address updated!", "address": A}
    assert found[1]["body"]["message"] == "Address registered successfully"
    assert found[2]["body"]["reason"] == "NoMatch"
    assert "invalid zone 'mars'" in found[3]["body"]["message"]
    assert found[4]["body"]["message"] == "Service expiration set successfully"


async def test_v186_who_joins_in_the_same_request_is_not_alone_either(world: World) -> None:
    """V-186: joining and replacing the secret, settled together."""
    await world.post("theirs", address=A)
    calls = [post("mine", address=A), post("mine", new_secret=OTHER_SECRET)]
    reply = await world.send("POST", "/v2/batch", {"calls": calls})
    assert [one["status"] for one in reply.body["answers"]] == [200, 409]
    assert (await world.post("theirs", address=A)).status == 200


async def test_a_batch_is_no_way_around_the_limit_of_guesses(start: Start) -> None:
    async with start(Options(limits=ApiLimits(wrong_secrets=5))) as world:
        await world.post("a", address=A)
        calls = [post("b", address=A, secret=f"guess-{number:04}") for number in range(200)]
        reply = await world.send("POST", "/v2/batch", {"calls": calls})
        statuses = Counter(one["status"] for one in reply.body["answers"])
        assert statuses == {404: 64, 429: 136}
        again = await world.send("POST", "/v2/batch", {"calls": calls})
        assert {one["status"] for one in again.body["answers"]} == {429}


async def test_guesses_without_an_address_are_counted_too(start: Start) -> None:
    """A replacement tries both of its secrets on everything that the holder has."""
    async with start(Options(limits=ApiLimits(wrong_secrets=5))) as world:
        await world.post("a", address=A)
        statuses = [
            (await world.post("a", secret=f"guess-{number:04}", new_secret="a-new-secret")).status
            for number in range(8)
        ]
    assert statuses == [404] * 5 + [429] * 3


async def test_a_batch_has_a_limit_and_must_parse(world: World) -> None:
    many = [post("a")] * 257
    assert (await world.send("POST", "/v2/batch", {"calls": many})).status == 413
    assert (await world.send("POST", "/v2/batch", {"calls": "a"})).status == 400
    odd = await world.send("POST", "/v2/batch", {"calls": [{"method": {}, "body": {}}]})
    assert [one["status"] for one in odd.body["answers"]] == [400]
    assert (await world.send("POST", "/v2/batch", {"calls": []})).body == {"answers": []}


async def test_the_client_reads_answers_and_refusals(world: World) -> None:
    async with ApiClient(Access(f"{world.url}/v2")) as client:
        good, bad = await client.batch(
            [("POST", request_body("a", address=A)), ("POST", request_body("b", zone="mars"))]
        )
    assert isinstance(good, dict)
    assert good["address"] == A
    assert isinstance(bad, ApiRefused)
    assert bad.status == 400
