"""A namespace with IPAMRanges and IPAMRequests in it, and words for what tests ask of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.operator import built, eventually, gone

from berth.dialects.kubipam.kinds import BUSY, FINALIZER, INVALID, RANGE, READY, REQUEST
from berth.kube.client import Client
from berth.kube.resource import Resource

Object = dict[str, Any]
EVENTS = Resource("", "v1", "Event", "events")


@dataclass(frozen=True, slots=True)
class World:
    client: Client
    namespace: str

    # Asking

    async def range(self, *ranges: str, name: str = "p", **spec: Any) -> Object:
        body = built(RANGE, name, {"ranges": list(ranges), **spec})
        return await self.client.create(RANGE, body, self.namespace)

    async def ask(self, name: str, range: str = "p", **spec: Any) -> Object:
        body = built(REQUEST, name, {"ipam": {"name": range}, **spec})
        return await self.client.create(REQUEST, body, self.namespace)

    async def granted(self, name: str, range: str = "p", **spec: Any) -> str:
        """Ask and wait for the answer: the CIDR, or `none` if the range is busy."""
        await self.ask(name, range, **spec)
        status = await eventually(partial(self._decided, name))
        return str(status["cidr"]) if status["state"] == READY else "none"

    async def grants(self, sizes: Iterable[int], range: str = "p", start: int = 0) -> str:
        """One request after the other, and what each of them got."""
        found = [
            await self.granted(f"r{number}", range, size=size) for number, size in enumerate(sizes, start)
        ]
        return " ".join(found)

    async def together(self, sizes: Mapping[str, int | None], range: str = "p") -> dict[str, str]:
        """Many asked at once: the CIDR of each by its name, or its state if it got none."""
        specs = {name: {} if size is None else {"size": size} for name, size in sizes.items()}
        await asyncio.gather(*(self.ask(name, range, **spec) for name, spec in specs.items()))
        return await eventually(partial(self._all_answered, set(sizes)), 180, every=0.1)

    async def _all_answered(self, names: set[str]) -> dict[str, str]:
        found = (await self.client.list(REQUEST, self.namespace)).items
        states = {one["metadata"]["name"]: one.get("status") or {} for one in found}
        assert all(states[name].get("state") for name in names)
        return {name: states[name].get("cidr") or states[name]["state"] for name in names}

    async def release(self, name: str) -> None:
        await self.delete(name)
        await gone(self.client, REQUEST, name, self.namespace)

    async def delete(self, name: str) -> None:
        await self.client.delete(REQUEST, name, self.namespace)

    async def delete_range(self, name: str = "p") -> None:
        await self.client.delete(RANGE, name, self.namespace)

    async def range_gone(self, name: str = "p") -> None:
        await gone(self.client, RANGE, name, self.namespace)

    async def change(self, resource: Resource, name: str, **spec: Any) -> Object:
        return await self.client.patch(resource, name, {"spec": spec}, self.namespace)

    # Looking

    async def get_range(self, name: str = "p") -> Object:
        return await self.client.get(RANGE, name, self.namespace)

    async def get(self, name: str) -> Object:
        return await self.client.get(REQUEST, name, self.namespace)

    async def status(self, name: str) -> Object:
        return (await self.get(name)).get("status") or {}

    async def answered(self, name: str) -> Object:
        """The status of a request once it has a state."""
        return await eventually(partial(self._answered, name))

    async def _answered(self, name: str) -> Object:
        status = await self.status(name)
        return status if status.get("state") in (READY, BUSY, INVALID) else {}

    async def _decided(self, name: str) -> Object:
        """The operator may hear of a request before it hears of its range, and then says so first."""
        status = await self._answered(name)
        return {} if str(status.get("message", "")).endswith(" not found") else status

    async def becomes(self, name: str, **fields: Any) -> Object:
        """The status of a request once it has these fields; None: absent."""
        return await eventually(partial(self._has, REQUEST, name, fields))

    async def range_becomes(self, name: str = "p", **fields: Any) -> Object:
        return await eventually(partial(self._has, RANGE, name, fields))

    async def _has(self, resource: Resource, name: str, fields: Object) -> Object:
        status: Object = (await self.client.get(resource, name, self.namespace)).get("status") or {}
        assert {key: status.get(key) for key in fields} == fields, status
        return {"state": None, **status}

    async def refused(self, name: str, state: str, message: str) -> None:
        await self.becomes(name, state=state, message=message, cidr=None)

    async def held(self, name: str = "p") -> None:
        """The range has its finalizer."""
        await eventually(partial(self._is_held, name))

    async def _is_held(self, name: str) -> bool:
        return FINALIZER in ((await self.get_range(name))["metadata"].get("finalizers") or [])

    async def events(self, name: str = "p") -> set[tuple[str, str, str]]:
        """Type, reason and message of the Events on a range."""
        found = (await self.client.list(EVENTS, self.namespace)).items
        return {
            (event["type"], event["reason"], event["message"])
            for event in found
            if event["involvedObject"]["name"] == name and event["involvedObject"]["kind"] == "IPAMRange"
        }

    async def told(self, type: str, reason: str, message: str, name: str = "p") -> None:
        await eventually(partial(self._told, (type, reason, message), name))

    async def _told(self, event: tuple[str, str, str], name: str) -> bool:
        found = await self.events(name)
        assert event in found
        return True
