"""P3: the OpenAPI document and the server agree: schemathesis over every operation, and over sequences in
which one call meets what another made, against a real server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from tests.support.central import TOKEN, World
from tests.support.deep import budget
from tests.support.started import ApiProcess, api_process

from berth.central.openapi import document

schema = schemathesis.openapi.from_dict(document())
CHECKS = [
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


ZONES = "zones: [{name: inet, ipv4: [10.0.0.0/8], ipv6: ['2001:db8::/64']}]"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    (folder / "tokens").write_text(TOKEN)
    (folder / "zones").write_text(ZONES)
    flags = ["--cluster-token-file", "tokens", "--zones", "zones", "--sweep-seconds", "3600"]
    with api_process(folder, *flags) as one:
        yield one


@schema.parametrize()
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_p3_every_answer_is_one_the_document_promises(case: Any, api: ApiProcess) -> None:
    """P3. Most made-up zones are unknown, so every other request is moved to one that exists."""
    if isinstance(case.body, dict) and len(str(case.body)) % 2:
        case.body["zone"] = "inet"
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {TOKEN}"}
    response = case.call(base_url=api.url + "/v2")
    case.validate_response(response, checks=CHECKS)
    assert response.status_code != 500


NAMES = ["a", "b", "ø 2", '"', "x" * 512]


def closed(part: Any) -> Any:
    """The document without room for keys that nobody knows, with few names and short lists: made-up bodies
    then say something, meet each other, and are made quickly.
    """
    if isinstance(part, list):
        return [closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    if "pattern" in part:
        return {"type": "string", "enum": NAMES}
    shut = {key: closed(one) for key, one in part.items()}
    shut |= {"additionalProperties": False} if "properties" in shut and "type" in shut else {}
    return shut | ({"maxItems": 3} if "maxItems" in shut else {})


CLOSED = schemathesis.openapi.from_dict(closed(document()))
OPERATIONS = {
    path: CLOSED[path][method.upper()].as_strategy(generation_mode=GenerationMode.POSITIVE)
    for path, methods in document()["paths"].items()
    for method in methods
}
SEQUENCES = st.tuples(OPERATIONS["/address"], st.lists(st.one_of(list(OPERATIONS.values())), max_size=3))


def met(body: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """The body with the words of an earlier request in it, wherever this operation has a place for them.
    Secrets are replaced by single calls only, so that `OWNED` knows of it.
    """
    if "calls" in body:
        return body | {"calls": [one | {"body": kept(one["body"]) | earlier} for one in body["calls"]]}
    if "cluster_id" in body:
        listed = (
            {"addresses": [kept(one) | earlier for one in body["addresses"]]} if "addresses" in body else {}
        )
        return body | {"cluster_id": earlier.get("service", body)["cluster_id"]} | listed
    return body | earlier


def kept(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "new_secret"}


@given(data=st.data())
@budget(1000)
def test_p3_sequences_get_the_answers_the_document_promises(data: st.DataObject, api: ApiProcess) -> None:
    """P3: and an address that one secret holds is never answered to another, since nothing is swept."""
    first, others = data.draw(SEQUENCES)
    told: list[dict[str, Any]] = []
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {TOKEN}"
        for case in (first, *others):
            assert isinstance(case.body, dict)
            earlier = data.draw(st.sampled_from(told or [{"zone": "inet", "address": ""}]))
            case.body = met(case.body, earlier)
            response = case.call(base_url=api.url + "/v2", session=session)
            case.validate_response(response, checks=CHECKS)
            assert response.status_code != 500
            if case.path == "/address" and response.status_code == 200:
                told.append(registered(case.body, response.json()["address"]))


OWNED: dict[str, str] = {}


def registered(body: dict[str, Any], address: str) -> dict[str, Any]:
    """What a later call may say of it."""
    secret = body.get("new_secret") or body["secret"]
    assert OWNED.get(address, body["secret"]) in (body["secret"], secret), "I1: two secrets, one address"
    OWNED[address] = secret
    return {key: body[key] for key in ("zone", "ip_family", "service")} | {
        "secret": secret,
        "address": address,
    }


async def test_the_documents_paths_are_the_servers_paths(world: World) -> None:
    """Every operation of the document is served, with and without /v2."""
    for path, methods in document()["paths"].items():
        for method in methods:
            for base in ("/v2", ""):
                reply = await world.send(method.upper(), base + path, b"{")
                assert reply.status in (400, 401), (base + path, reply)
