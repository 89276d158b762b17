"""P3: the OpenAPI document and the server agree: schemathesis over every operation, against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from tests.support.central import TOKEN, World
from tests.support.started import ApiProcess, api_process

from berth.central.openapi import document

schema = schemathesis.openapi.from_dict(document())
CHECKS = [
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    folder: Path = tmp_path_factory.mktemp("openapi")
    (folder / "tokens").write_text(TOKEN)
    with api_process(folder, "--cluster-token-file", "tokens") as one:
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


async def test_the_documents_paths_are_the_servers_paths(world: World) -> None:
    """Every operation of the document is served, with and without /v2."""
    for path, methods in document()["paths"].items():
        for method in methods:
            for base in ("/v2", ""):
                reply = await world.send(method.upper(), base + path, b"{")
                assert reply.status in (400, 401), (base + path, reply)
