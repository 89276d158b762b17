"""Answers of something else than an API server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kube.scripted import (
    CONFIGMAPS,
    answer,
)
from tests.kube.talking import talking

from berth import errors


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
