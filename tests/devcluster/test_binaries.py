"""Where programs are looked for, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from berth.devcluster.binaries import Binaries, Places
from berth.devcluster.cache import BinaryCache
from berth.devcluster.programs import PROGRAMS
from berth.errors import UserError

KUBECTL = PROGRAMS["kubectl"]


@dataclass(frozen=True)
class World:
    """Three places, and programs that can do no more than tell their version."""

    root: Path

    @property
    def places(self) -> Places:
        return Places(self.root / "assets", str(self.root / "path"), BinaryCache(self.root / "cache"))

    def put(self, place: str, says: str, name: str = "kubectl") -> Path:
        file = self.root / place / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {says}\n")
        file.chmod(0o755)
        return file

    def origin(self) -> str:
        return Binaries.locate(["kubectl"], self.places).found["kubectl"].origin


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_assets_come_before_path_before_cache(world: World) -> None:
    world.put("cache", "v1.34.4")
    assert world.origin() == "cache"
    world.put("path", "v1.31.0")
    assert world.origin() == "PATH"
    world.put("assets", "v1.32.0")
    assert world.origin() == "KUBEBUILDER_ASSETS"


def test_what_the_assets_lack_is_found_elsewhere(world: World) -> None:
    world.put("assets", "v1.34.4", name="etcd")
    world.put("cache", "v1.34.4")

    assert world.origin() == "cache"


@pytest.mark.parametrize("says", ["v1.29.9", "nonsense", "v1.34.4; exit 3"])
def test_what_is_too_old_or_broken_on_the_path_is_passed_over(world: World, says: str) -> None:
    world.put("path", says)
    world.put("cache", "v1.34.4")

    assert world.origin() == "cache"


def test_assets_that_are_too_old_are_told(world: World) -> None:
    file = world.put("assets", "v1.25.0")
    world.put("cache", "v1.34.4")

    with pytest.raises(UserError, match=rf"{file} is older than 1\.30.*unset KUBEBUILDER_ASSETS"):
        world.origin()


def test_a_program_built_from_another_version_counts_as_missing(world: World) -> None:
    made = world.put("made", "v1.34.4")
    cache = world.places.cache
    cache.directory.mkdir()
    cache.place(KUBECTL, made)
    assert world.origin() == "cache"

    newer = replace(KUBECTL, module=replace(KUBECTL.module, version="v1.35.0"))
    assert cache.find(newer) is None


def test_what_is_nowhere_is_named_with_what_to_do(world: World) -> None:
    with pytest.raises(UserError) as caught:
        Binaries.locate(["etcd", "kube-apiserver", "kubectl"], world.places)

    assert str(caught.value) == (
        "etcd, kube-apiserver and kubectl not found on this machine: run `berth devcluster prepare`"
    )


def test_a_program_nobody_knows_is_named(world: World) -> None:
    with pytest.raises(UserError, match="there is no program kublet: the names are etcd, kube-apiserver"):
        Binaries.locate(["kublet"], world.places)


def test_programs_not_asked_for_at_first_are_found_when_needed(world: World) -> None:
    world.put("cache", "v1.34.4")
    proxy = world.put("cache", "v1.34.4", name="kube-proxy")

    assert Binaries.locate(["kubectl"], world.places)["kube-proxy"] == proxy


def test_the_environment_says_where_to_look() -> None:
    places = Places.of({"KUBEBUILDER_ASSETS": "/a", "PATH": "/p", "XDG_CACHE_HOME": "/c"})

    assert places.assets == Path("/a")
    assert places.path == "/p"
    assert places.cache.directory == Path("/c/berth/controlplane/v1.34.4")


async def test_nothing_is_fetched_when_everything_is_there(world: World) -> None:
    world.put("cache", "v1.34.4")
    said: list[object] = []

    await Binaries.prepare(["kubectl"], said.append, world.places)

    assert said == []
