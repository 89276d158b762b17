"""Several calls in one request: each is answered as it would have been alone."""

from __future__ import annotations

from typing import Any

from tests.support.central import OTHER_SECRET, World, request_body

from berth.central.client import Access, ApiClient
from berth.errors import ApiRefused

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
