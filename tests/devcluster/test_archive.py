"""The envtest archive, served here by a small web server: used when whole, passed over when not."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from berth.devcluster import archive
from berth.devcluster.binaries import Binaries, Places
from berth.devcluster.cache import BinaryCache
from berth.devcluster.programs import CORE
from berth.devcluster.progress import Step


def _archive(*names: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as file:
        for name in names:
            text = b"#!/bin/sh\necho v1.34.1\n"
            member = tarfile.TarInfo(name)
            member.size = len(text)
            file.addfile(member, io.BytesIO(text))
    return content.getvalue()


ENVTEST = _archive(*(f"controller-tools/envtest/{name}" for name in CORE))


@dataclass
class Informers:
    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    def publish(self, content: bytes) -> archive.ArchiveSource:
        """The archive with its checksum beside it, as the official server has both; and as we know it."""
        digest = hashlib.sha512(content).hexdigest()
        self.files = {"/e.tar.gz": content, "/e.tar.gz.sha512": f"{digest}  e.tar.gz\n".encode()}
        return archive.ArchiveSource(self.address, digest)

    async def serve(self, request: web.Request) -> web.Response:
        if request.path not in self.files:
            raise web.HTTPNotFound
        return web.Response(body=self.files[request.path])


@pytest_asyncio.fixture
async def mirror() -> AsyncIterator[Informers]:
    mirror = Informers()
    app = web.Application()
    app.router.add_get("/{path:.*}", mirror.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    mirror.address = f"http://127.0.0.1:{runner.addresses[0][1]}/e.tar.gz"
    yield mirror
    await runner.cleanup()


async def test_the_three_programs_are_taken_from_the_archive(mirror: Informers, tmp_path: Path) -> None:
    places = Places(None, "", BinaryCache(tmp_path, mirror.publish(ENVTEST)))
    steps: list[Step] = []

    binaries = await Binaries.prepare(CORE, steps.append, places)

    assert sorted(binaries.found) == sorted(CORE)
    assert Step("downloading e.tar.gz", len(ENVTEST), len(ENVTEST)) in steps


async def test_names_in_the_archive_do_not_decide_where_files_go(mirror: Informers, tmp_path: Path) -> None:
    source = mirror.publish(_archive("../../etcd", "/kubectl", "x/other"))

    made = await archive.fetch(source, tmp_path, ["etcd", "kubectl"], lambda _: None)

    assert made == [tmp_path / "etcd", tmp_path / "kubectl"]


async def test_another_archive_is_not_used_though_its_server_vouches_for_it(
    mirror: Informers, tmp_path: Path
) -> None:
    """Whoever can put another file there can put its checksum beside it."""
    source = mirror.publish(ENVTEST)
    mirror.publish(_archive("etcd", "kube-apiserver", "kubectl", "x"))
    steps: list[Step] = []

    assert await archive.fetch(source, tmp_path, CORE, steps.append) == []
    assert steps[-1] == Step("the envtest archive is not the one with our checksum, building instead")


@pytest.mark.parametrize("content", [b"", ENVTEST[:-1], b"<html>sign in</html>"])
async def test_a_damaged_archive_is_not_used(mirror: Informers, tmp_path: Path, content: bytes) -> None:
    source = mirror.publish(ENVTEST)
    mirror.files["/e.tar.gz"] = content
    steps: list[Step] = []

    assert await archive.fetch(source, tmp_path, CORE, steps.append) == []
    assert steps[-1] == Step("the envtest archive is not the one with our checksum, building instead")


async def test_an_archive_whose_checksum_nobody_knows_is_not_even_asked_for(
    mirror: Informers, tmp_path: Path
) -> None:
    mirror.publish(ENVTEST)
    steps: list[Step] = []

    assert await archive.fetch(archive.ArchiveSource(mirror.address, ""), tmp_path, CORE, steps.append) == []
    told = "no checksum of the envtest archive is known (BERTH_ENVTEST_SHA512), building instead"
    assert steps == [Step(told)]


async def test_an_archive_that_cannot_be_had_is_passed_over(mirror: Informers, tmp_path: Path) -> None:
    steps: list[Step] = []

    known = "0" * 128
    assert (
        await archive.fetch(archive.ArchiveSource(mirror.address, known), tmp_path, CORE, steps.append) == []
    )
    away = archive.ArchiveSource("http://127.0.0.1:9/e.tar.gz", known)
    assert await archive.fetch(away, tmp_path, CORE, steps.append) == []
    assert steps == [Step("the envtest archive cannot be had, building instead")] * 2


def test_the_address_is_the_official_one_unless_the_setting_names_another() -> None:
    assert archive.source({}).url.startswith("https://github.com/kubernetes-sigs/controller-tools/releases/")
    assert "{" not in archive.source({}).url
    assert archive.source({"BERTH_ENVTEST_URL": "http://mirror.test/{machine}.tar.gz"}).url.endswith(
        ".tar.gz"
    )
    assert archive.source({"BERTH_ENVTEST_URL": ""}).url == ""
    assert archive.source({"BERTH_ENVTEST_SHA512": "AB\n"}).sha512 == "ab"


async def test_an_empty_address_switches_it_off(tmp_path: Path) -> None:
    steps: list[Step] = []

    assert await archive.fetch(archive.ArchiveSource("", "0"), tmp_path, CORE, steps.append) == []
    assert steps == []
