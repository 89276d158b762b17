"""T30: the version before, this one and the next work on one store, during an upgrade and on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.central.faults.asking import asked, grown, until_answered
from tests.central.faults.killing import check, opened, records
from tests.support.started import PROGRAM, ApiProcess, api_process, start_api
from tests.support.versions import AFTER, BEFORE

from berth.central.client import Access, ApiClient

pytestmark = pytest.mark.faults


@pytest.mark.postgres
async def test_t30_replicas_are_replaced_one_by_one(
    postgres: object, request: pytest.FixtureRequest, tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T30: before → this → next, two versions at a time, under load; no answer changes and none is lost."""
    url = request.getfixturevalue("postgres").database()
    flags = ("--database", url, "--pepper-file", str(tmp_path / "pepper"), "--sweep-seconds", "0.2")
    answered: dict[str, str] = {}
    async with AsyncExitStack() as stack:

        async def begin(program: str) -> ApiProcess:
            return await asyncio.to_thread(
                stack.enter_context, api_process(tmp_path, *flags, program=program)
            )

        old = await begin(BEFORE)
        for program in (PROGRAM, AFTER):
            loads = [asyncio.create_task(load(old, answered, stop := asyncio.Event()))]
            await grown(answered)
            new = await begin(program)
            loads.append(asyncio.create_task(load(new, answered, stop)))
            await grown(answered)
            stop.set()
            await asyncio.gather(*loads)
            assert await asyncio.to_thread(old.stop) == 0
            old = new
            tried(1)
    assert len(set(answered.values())) == len(answered), "I1: one address, two holders"
    async with opened(url) as engine:
        check(await records(engine), answered)


async def load(api: ApiProcess, answered: dict[str, str], stop: asyncio.Event) -> None:
    """Some come and stay, some come and go; who asks again is told the same."""
    number = 0
    async with ApiClient(Access(api.url + "/v2")) as client:
        while not stop.is_set():
            who = f"{api.process.pid}-{number}"
            answered[who] = await until_answered(client, asked(who))
            assert await until_answered(client, asked(who)) == answered[who], "I5: it moved"
            guest = asked(f"{who}-guest")
            await client.release(asked(f"{who}-guest", await until_answered(client, guest)))
            number += 1


async def test_t30_one_file_has_one_server_and_the_way_back_is_open(
    tmp_path: Path, tried: Callable[[int], None]
) -> None:
    """T30 on SQLite: a second server is refused, whatever its version; each version finds what was there."""
    flags = ("--sweep-seconds", "3600")
    answered: dict[str, str] = {}
    for program in (BEFORE, PROGRAM, AFTER, PROGRAM, BEFORE):
        with api_process(tmp_path, *flags, program=program) as api:
            if program == AFTER:
                with pytest.raises(AssertionError, match="Another server uses"):
                    start_api(tmp_path, *flags, program=PROGRAM)
            async with ApiClient(Access(api.url + "/v2")) as client:
                for who, address in answered.items():
                    assert await client.register(asked(who)) == address
                answered[f"s{len(answered)}"] = await client.register(asked(f"s{len(answered)}"))
            assert api.stop() == 0
    assert len(set(answered.values())) == 5
    tried(len(answered))
