"""The examples and the page about the API are true."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
from tests.support.central import World

from berth.central.identity import load_identities
from berth.central.zones import load_zones
from berth.cli.ledger import app

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "api"


def test_the_zones_file_is_the_built_in_example() -> None:
    assert load_zones(EXAMPLES / "zones.yaml") == load_zones(None)


def test_the_identities_file_is_accepted() -> None:
    assert load_identities(EXAMPLES / "identities.yaml") is not None


async def test_the_request_is_answered_as_the_page_says(world: World) -> None:
    reply = await world.send("POST", "/v2/address", REQUEST)
    assert reply.body == ANSWER


REQUEST = (EXAMPLES / "request.json").read_bytes()
PAGE = (ROOT / "docs" / "api.md").read_text()
ANSWER = orjson.loads(re.findall(r'\{"message":"Address[^}]*\}', PAGE)[0])


def test_the_page_names_every_command() -> None:
    names = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    hidden = {"mongo-backup", "version", "show-secret"}
    assert names - hidden <= set(re.findall(r"`([a-z-]+)`", PAGE))
