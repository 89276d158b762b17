"""The official envtest archive: kube-apiserver, etcd and kubectl for one platform in one file.

A shortcut only. Where it cannot be had quickly (no network, another platform, a mirror that lacks it) the
programs are built instead, so nothing here is an error. Nor is a file used whose checksum we do not know: one
that lies beside it on the same server tells of damage, not of who made it. The build is vouched for by Go's
checksum database.
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
from typing import NamedTuple

import aiohttp

from berth.devcluster.progress import Report, Step

# Archives are made for some patch versions only; this is the newest of the minor version we build.
VERSION = "v1.34.1"
ADDRESS = (
    "https://github.com/kubernetes-sigs/controller-tools/releases/download/"
    f"envtest-{VERSION}/envtest-{VERSION}-{{system}}-{{machine}}.tar.gz"
)
SETTING = "BERTH_ENVTEST_URL"
DIGEST_SETTING = "BERTH_ENVTEST_SHA512"
# By "system/machine", SHA-512 of the archive of VERSION; only what a person has compared belongs here.
PINNED: Mapping[str, str] = {}
# A laptop without network must get to the build soon, a slow line must get its 60 MB through.
TIMEOUT = aiohttp.ClientTimeout(total=600, connect=5, sock_connect=5, sock_read=15)
CHUNK = 1 << 16


class ArchiveSource(NamedTuple):
    url: str  # empty: switched off
    sha512: str  # in hexadecimal; empty: not known


OFF = ArchiveSource("", "")


def source(environ: Mapping[str, str]) -> ArchiveSource:
    """Where the archive is and what it must be: from a mirror, too, what is pinned, or the user's own."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    url = environ.get(SETTING, ADDRESS).format(system=sys.platform, machine=machine)
    digest = environ.get(DIGEST_SETTING) or PINNED.get(f"{sys.platform}/{machine}", "")
    return ArchiveSource(url, digest.strip().lower())


async def fetch(source: ArchiveSource, workshop: Path, names: Iterable[str], report: Report) -> list[Path]:
    """Those of the named programs that the archive holds, still in the workshop; none if it cannot be had."""
    if not source.url:
        return []
    if not source.sha512:
        report(Step(f"no checksum of the envtest archive is known ({DIGEST_SETTING}), building instead"))
        return []
    try:
        async with aiohttp.ClientSession(timeout=TIMEOUT, trust_env=True) as session:
            content = await _get(session, source.url, report)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        report(Step("the envtest archive cannot be had, building instead"))
        return []
    if hashlib.sha512(content).hexdigest() != source.sha512:
        report(Step("the envtest archive is not the one with our checksum, building instead"))
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
