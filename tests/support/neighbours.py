"""Stand-ins for ROR, Splunk and NetBox as processes of their own, so that they can be killed and
started again.

    python -m tests.support.neighbours sse|hec|netbox FOLDER [PORT]

The port is printed. Files in FOLDER are how a test and its neighbour talk: what came in is appended to
`seen`, and `mode` (for Splunk) or `events` (for ROR) say what to do.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

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
    """Prefixes in memory, with the answers of NetBox that the mirror looks at."""
    folder, prefixes = request.app["folder"], request.app["prefixes"]
    mode = text_of(folder / "mode")
    if mode == "refuse":
        return web.Response(status=500)
    if mode == "odd":
        return web.json_response(["not what NetBox says"])
    note(folder, {"method": request.method, "path": request.path, "query": dict(request.query)})
    tail = request.path.removeprefix("/api/ipam/prefixes/").strip("/")
    if request.method == "POST":
        body = await request.json()
        number = max(prefixes, default=0) + 1
        prefixes[number] = {"id": number, **body}
        return web.json_response(prefixes[number], status=201)
    if request.method == "DELETE":
        gone = prefixes.pop(int(tail), None)
        return web.Response(status=204 if gone else 404)
    if request.path.startswith("/api/extras/"):
        return web.json_response({"results": [], "next": None})
    wanted = request.query.get("prefix")
    found = [one for one in prefixes.values() if wanted is None or one["prefix"] == wanted]
    if request.query.get("status") == "container":
        container = {
            "id": 900,
            "prefix": "83.118.168.0/22",
            "vrf": {"id": 7},
            "custom_fields": {"infra": "prod"},
        }
        found = [container]
    return web.json_response({"results": found, "next": None})


def main(kind: str, folder: Path, port: int) -> None:
    app = web.Application()
    app["folder"], app["prefixes"] = folder, {}
    handler = {"sse": sse, "hec": hec, "netbox": netbox}[kind]
    app.router.add_route("*", "/{tail:.*}", handler)

    async def tell(_: web.Application) -> None:
        (folder / "up").write_text("up")

    app.on_startup.append(tell)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
