"""The official envtest archive: kube-apiserver, etcd and kubectl for one platform in one file.

A shortcut only. Where it cannot be had quickly (no network, another platform, a mirror that lacks it) the
programs are built instead, so nothing here is an error; a file whose checksum is wrong is not used either.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import platform
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

import aiohttp

from berth.devcluster.progress import Report, Step

# Archives are made for some patch versions only; this is the newest of the minor version we build.
VERSION = "v1.34.1"
ADDRESS = (
    "https://github.com/kubernetes-sigs/controller-tools/releases/download/"
    f"envtest-{VERSION}/envtest-{VERSION}-{{system}}-{{machine}}.tar.gz"
)
SETTING = "BERTH_ENVTEST_URL"
# A laptop without network must get to the build soon, a slow line must get its 60 MB through.
TIMEOUT = aiohttp.ClientTimeout(total=600, connect=5, sock_connect=5, sock_read=15)
CHUNK = 1 << 16


def address(environ: Mapping[str, str]) -> str:
    """Where the archive is; empty when switched off."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return environ.get(SETTING, ADDRESS).format(system=sys.platform, machine=machine)


async def fetch(url: str, workshop: Path, names: Iterable[str], report: Report) -> list[Path]:
    """Those of the named programs that the archive holds, still in the workshop; none if it cannot be had."""
    if not url:
        return []
    try:
        async with aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True) as session:
            wanted = await _get(session, f"{url}.sha512", report)
            content = await _get(session, url, report)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        report(Step("the envtest archive cannot be had, building instead"))
        return []
    if wanted.split()[:1] != [hashlib.sha512(content).hexdigest().encode()]:
        report(Step("the envtest archive is damaged, building instead"))
        return []
    return await asyncio.to_thread(_unpack, content, workshop, set(names))


async def _get(session: aiohttp.ClientSession, url: str, report: Report) -> bytes:
    content = bytearray()
    async with session.get(url, raise_for_status=True) as response:
        async for chunk in response.content.iter_chunked(CHUNK):
            content += chunk
            report(Step(f"downloading {PurePosixPath(url).name}", len(content), response.content_length))
    return bytes(content)


def _unpack(content: bytes, workshop: Path, names: set[str]) -> list[Path]:
    """By the last part of their names only, so no path in the archive decides where a file goes."""
    unpacked = []
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive.getmembers():
            name, file = PurePosixPath(member.name).name, archive.extractfile(member)
            if name in names and file is not None:
                (workshop / name).write_bytes(file.read())
                unpacked.append(workshop / name)
    return unpacked
