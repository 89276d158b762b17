"""Copies of secrets: what another operator writes while the controller is at work is not overwritten."""

from __future__ import annotations

import base64
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from berth.control.batching import Tasks
from berth.dialects.vitistack import kinds
from berth.dialects.vitistack.confirm import Holding
from berth.dialects.vitistack.records import Record
from berth.dialects.vitistack.secrets import Vault
from berth.dialects.vitistack.service_annotations import Terms
from berth.errors import AlreadyExists, Conflict, NotFound
from berth.leasing.holders import Identity
from berth.net import parse_address
from berth.secret import Secret

Object = dict[str, Any]
OLD, EDITED, ROTATED = (Secret(f"{word}-password") for word in ("old", "edited", "rotated"))
WHO = Identity("s", "n-id", "c")
RECORD = Record(
    "n", WHO, "inet", parse_address("10.0.0.1"), "my-secret", "", Terms(), uid="u", kept=True, until=9e9
)


class Server:
    """Secrets with their versions, as an API server keeps them."""

    def __init__(self) -> None:
        self.secrets: dict[str, Object] = {}
        self.version = 0

    async def get(self, resource: Any, name: str, namespace: str) -> Object:
        if name not in self.secrets:
            raise NotFound(404, name)
        return self.secrets[name]

    async def create(self, resource: Any, body: Object) -> Object:
        if body["metadata"]["name"] in self.secrets:
            raise AlreadyExists(409, "there")
        return self._stored(body)

    async def replace(self, resource: Any, body: Object) -> Object:
        self._insist(body["metadata"]["name"], body["metadata"].get("resourceVersion"))
        return self._stored(body)

    async def delete(self, resource: Any, name: str, namespace: str, *, resource_version: str) -> None:
        self._insist(name, resource_version)
        del self.secrets[name]

    def _insist(self, name: str, version: str | None) -> None:
        if name not in self.secrets:
            raise NotFound(404, name)
        if version not in (None, self.secrets[name]["metadata"]["resourceVersion"]):
            raise Conflict(409, "changed")

    def _stored(self, body: Object) -> Object:
        self.version += 1
        about = {**body["metadata"], "resourceVersion": str(self.version)}
        self.secrets[about["name"]] = {**body, "metadata": about}
        return self.secrets[about["name"]]

    def edit(self, name: str, value: Secret) -> None:
        data = {"secret": base64.b64encode(value.bytes).decode()}
        self._stored({"metadata": {"name": name}, "type": "Opaque", "data": data})


def live(record: Record) -> Object:
    said = {kinds.ADDRESSES: "10.0.0.1", kinds.ZONE: "inet", kinds.SECRET_NAME: record.secret}
    return {"metadata": {"namespace": "n", "name": "s", "uid": "u", "annotations": said}}


async def rotated_meanwhile(record: Record, at: str) -> tuple[Vault, Holding]:
    """While the controller does this, another operator notes another rotation."""
    server: Any = Server()
    for name in ("my-secret", kinds.DEFAULT_SECRET):
        server.edit(name, EDITED)
    vault = Vault(server, "ipam-system", lambda: True, Tasks())
    await vault.keep(record, OLD)

    def taken(step: str) -> Any:
        async def take(*_: Any) -> None:
            if step == at:
                await vault.keep(record, ROTATED, OLD)

        return take

    async def stored(*_: Any) -> Object:
        return live(record)

    async def old(*_: Any) -> tuple[Secret, ...]:
        return (OLD,)

    parts: Any = SimpleNamespace(
        vault=vault,
        client=SimpleNamespace(get=stored),
        secrets_of=old,
        is_shared=lambda _: False,
        records=SimpleNamespace(seen=lambda _: record, of_service=lambda *_: [record], save=taken("save")),
        registrar=SimpleNamespace(replace=taken("replace")),
        pools=SimpleNamespace(add=taken("pool")),
    )
    events: Any = SimpleNamespace(event=lambda *_: None)
    return vault, Holding(parts, events)


@pytest.mark.parametrize(
    ("record", "at"),
    [
        pytest.param(RECORD, "replace", id="edited"),
        pytest.param(replace(RECORD, replaced=True), "save", id="replaced"),
        pytest.param(replace(RECORD, secret="default", replaced=True), "replace", id="to-default"),
    ],
)
async def test_a_rotation_meanwhile_keeps_its_copy(record: Record, at: str) -> None:
    """T26: the pass begins again with what is there then."""
    vault, holding = await rotated_meanwhile(record, at)
    with pytest.raises(Conflict):
        await holding.hold(live(record), record.address)
    assert await vault.kept(record.name) == (ROTATED, OLD)
