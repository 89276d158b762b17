"""Stand-ins for ROR, Splunk and NetBox as processes of their own, so that they can be killed and
started again.

    python -m tests.support.neighbours sse|hec|netbox FOLDER PORT

Port 0 means any free one. Files in FOLDER are how a test and its neighbour talk: `up` has the port once it
listens, what came in is appended to `seen`, and `mode` (for Splunk and NetBox) or `events` (for ROR) say
what to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web


def note(folder: Path, line: dict[str, Any]) -> None:
    with (folder / "seen").open("a") as file:
        file.write(json.dumps(line) + "\n")


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def sse(request: web.Request) -> web.StreamResponse:
    """Sends the frames of the file `events` (separated by blank lines), then whatever is appended to it."""
    folder: Path = request.app["folder"]
    note(folder, {"last": request.headers.get("Last-Event-ID", ""), "key": request.headers.get("X-API-KEY")})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    sent = 0 if text_of(folder / "replay") else len(text_of(folder / "sent"))
    while True:
        text = text_of(folder / "events")
        if len(text) > sent:
            await response.write(text[sent:].encode())
            sent = len(text)
            await asyncio.to_thread((folder / "sent").write_text, text)
        if text_of(folder / "cut"):
            await asyncio.to_thread((folder / "cut").unlink)
            return response
        await asyncio.sleep(0.02)


async def hec(request: web.Request) -> web.Response:
    """Takes events in mode `ok`; refuses all, refuses some, delays or dies in the others."""
    folder: Path = request.app["folder"]
    mode = text_of(folder / "mode") or "ok"
    body = await request.text()
    if mode == "refuse":
        return web.Response(status=503)
    if mode == "picky" and "poison" in body:
        return web.json_response({"text": "Invalid data format", "code": 6}, status=400)
    if mode == "small" and len(body) > 500:
        return web.Response(status=413)
    if mode == "hang":
        await asyncio.sleep(60)
    if mode == "die":
        os._exit(9)
    for line in body.splitlines():
        note(folder, {"token": request.headers.get("Authorization"), **json.loads(line)})
    return web.json_response({"text": "Success", "code": 0})


async def netbox(request: web.Request) -> web.Response:
    """Prefixes and IP addresses in memory, with the answers of NetBox that we look at, two on a page."""
    folder = request.app["folder"]
    mode = text_of(folder / "mode")
    if mode == "refuse":
        return web.Response(status=500)
    if mode == "odd":
        return web.json_response(["not what NetBox says"])
    told = {"method": request.method, "path": request.path, "query": dict(request.query)}
    note(folder, {**told, "token": request.headers.get("Authorization")})
    _, area, kind, *tail = request.path.strip("/").split("/")
    if area == "extras":
        return page(request, EXTRAS[kind])
    stored = request.app["stored"][kind]
    if request.method == "POST":
        body = await request.json()
        number = max(stored, default=0) + 1
        stored[number] = {"id": number, **body}
        return web.json_response(stored[number], status=201)
    if request.method == "DELETE":
        gone = stored.pop(int(tail[0]), None)
        return web.Response(status=204 if gone else 404)
    every = [*stored.values(), *(CONTAINERS if kind == "prefixes" else ())]
    return page(request, [shown(one) for one in every if asked_for(one, request.query)])


def shown(one: dict[str, Any]) -> dict[str, Any]:
    """What is sent as a number comes back as an object."""
    return {**one, "vrf": {"id": one["vrf"]} if one.get("vrf") else None}


EXTRAS: dict[str, list[dict[str, Any]]] = {
    "custom-field-choice-sets": [{"extra_choices": [["inet", "Internet"], ["empty", "Nothing yet"]]}],
    "tags": [{"id": 3, "name": "vitistack"}],
}
CONTAINERS = [
    {
        "id": number,
        "prefix": prefix,
        "vrf": 7,
        "status": {"value": "container"},
        "custom_fields": {"infra": "prod", "k8s_zone": "inet"},
    }
    for number, prefix in ((900, "83.118.168.0/22"), (901, "83.118.169.0/24"), (902, "2a05:1234::/64"))
]


def asked_for(one: dict[str, Any], query: Mapping[str, str]) -> bool:
    """The filters of NetBox's lists that we use."""
    have = {
        "prefix": one.get("prefix"),
        "cf_k8s_zone": (one.get("custom_fields") or {}).get("k8s_zone"),
        "status": one.get("status", {"value": "active"})["value"],
        "vrf_id": str(one.get("vrf") or "null"),
    }
    where = ip_interface(one.get("prefix") or one["address"])
    if "within" in query and where.network == ip_network(query["within"]):
        return False
    net = query.get("within") or query.get("parent")
    fits = net is None or where.ip in ip_network(net)
    return fits and all(query.get(key, value) == value for key, value in have.items())


def page(request: web.Request, found: list[dict[str, Any]]) -> web.Response:
    """The link to the next page names another host, as behind a proxy: nobody is to follow that."""
    at = int(request.query.get("offset", "0"))
    query = urlencode({**request.query, "offset": at + 2})
    following = f"http://192.0.2.1{request.path}?{query}" if len(found) > at + 2 else None
    return web.json_response({"results": found[at : at + 2], "next": following})


def main(kind: str, folder: Path, port: int) -> None:
    app = web.Application()
    app["folder"], app["stored"] = folder, {"prefixes": {}, "ip-addresses": {}}
    handler = {"sse": sse, "hec": hec, "netbox": netbox}[kind]
    app.router.add_route("*", "/{tail:.*}", handler)
    bound = socket.create_server(("127.0.0.1", port))
    (folder / "up.part").write_text(str(bound.getsockname()[1]))
    (folder / "up.part").replace(folder / "up")
    web.run_app(app, sock=bound, print=None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
