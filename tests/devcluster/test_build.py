"""Programs are built by the real `go`; here from a module proxy in a directory, which needs no network."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from berth.devcluster import gotool
from berth.devcluster.binaries import Binaries, Places
from berth.devcluster.cache import MAKING, BinaryCache
from berth.devcluster.programs import PROGRAMS, Module, Program
from berth.devcluster.progress import Step
from berth.errors import UserError

MODULE = Module("tiny.test/tiny", "v1.2.3")
TINY = Program("tiny", MODULE, "tiny.test/tiny/cmd/tiny", (1, 0))

FILES = {
    "go.mod": "module tiny.test/tiny\n\ngo 1.21\n\nrequire tiny.test/tiny/api v0.0.0\n\n"
    "replace tiny.test/tiny/api => ./api\n",
    "cmd/tiny/main.go": 'package main\n\nimport "tiny.test/tiny/api"\n\nfunc main() { println(api.Word) }\n',
}
API_FILES = {
    "go.mod": "module tiny.test/tiny/api\n\ngo 1.21\n",
    "api.go": 'package api\n\nconst Word = "v1.2.3"\n',
}


def _publish(proxy: Path, path: str, version: str, files: dict[str, str]) -> None:
    directory = proxy / path / "@v"
    directory.mkdir(parents=True)
    (directory / f"{version}.info").write_text(json.dumps({"Version": version}))
    (directory / f"{version}.mod").write_text(files["go.mod"])
    with zipfile.ZipFile(directory / f"{version}.zip", "w") as archive:
        for name, text in files.items():
            # Never seen before, so that `go` has something to compile whatever its own cache holds.
            archive.writestr(f"{path}@{version}/{name}", f"{text}// {uuid.uuid4()}\n")


def _run(program: Path) -> str:
    return subprocess.run([program], capture_output=True, text=True, check=True).stderr


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The environment of a machine whose module proxy has two tiny modules, one inside the other."""
    directory = tmp_path / "proxy"
    _publish(directory, "tiny.test/tiny", "v1.2.3", FILES)
    _publish(directory, "tiny.test/tiny/api", "v1.2.3", API_FILES)
    monkeypatch.setenv("GOPROXY", directory.as_uri())
    monkeypatch.setenv("GOSUMDB", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    monkeypatch.setitem(PROGRAMS, "tiny", TINY)
    yield directory
    subprocess.run(["go", "clean", "-modcache"], check=True)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(None, "", BinaryCache(tmp_path / "cache"))


@pytest.mark.usefixtures("proxy")
async def test_a_program_is_built_with_its_neighbour_and_placed_whole(places: Places) -> None:
    steps: list[Step] = []
    binaries = await Binaries.prepare(["tiny"], steps.append, places)

    assert _run(binaries["tiny"]) == "v1.2.3\n"
    assert binaries.found["tiny"].origin == "cache"
    assert not list(places.cache.directory.glob(f"{MAKING}*"))
    phrases = list(dict.fromkeys(step.what for step in steps))
    assert phrases == [
        "downloading the modules of tiny",
        "compiling tiny v1.2.3 (half a minute on two cores)",
    ]
    assert steps[-1].total is not None
    assert 0 < steps[-1].done <= steps[-1].total


@pytest.mark.usefixtures("proxy")
async def test_two_builders_at_once_build_once(places: Places) -> None:
    steps: list[Step] = []
    first, second = await asyncio.gather(
        Binaries.prepare(["tiny"], steps.append, places), Binaries.prepare(["tiny"], steps.append, places)
    )

    assert first["tiny"] == second["tiny"]
    assert sum(step.what.startswith("compiling") and step.done == 0 for step in steps) == 1
    assert any(step.what.startswith("waiting for another process") for step in steps)


@pytest.mark.usefixtures("proxy")
async def test_what_an_interrupted_builder_left_is_removed(places: Places) -> None:
    left = places.cache.directory / f"{MAKING}left"
    left.mkdir(parents=True)
    await Binaries.prepare(["tiny"], places=places)

    assert not left.exists()


@pytest.mark.usefixtures("proxy")
async def test_a_cancelled_build_leaves_no_half_program(places: Places) -> None:
    begun = asyncio.Event()
    task = asyncio.ensure_future(Binaries.prepare(["tiny"], lambda _: begun.set(), places))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [path.name for path in places.cache.directory.iterdir()] == [".lock"]


async def test_an_unreachable_proxy_is_told_as_such(
    proxy: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")

    with pytest.raises(UserError, match="the Go module proxy cannot be reached: check the network"):
        await Binaries.prepare(["tiny"], places=places)


async def test_a_proxy_without_the_module_is_told_in_the_words_of_go(
    proxy: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(TINY, module=replace(MODULE, version="v9.9.9"))
    monkeypatch.setitem(PROGRAMS, "tiny", absent)

    with pytest.raises(UserError, match=r"`go mod` failed: .*v9\.9\.9"):
        await Binaries.prepare(["tiny"], places=places)


async def test_without_go_the_sentence_says_what_to_install(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        UserError, match=r"^Go is not installed: install Go 1\.24 or newer, or set KUBEBUILDER_ASSETS"
    ):
        await Binaries.prepare(["etcd"], places=places)


async def test_an_old_go_is_told_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho go1.19.8\n")
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(UserError, match=r"go is go1\.19\.8: install Go 1\.24 or newer"):
        await gotool.find()


async def test_a_very_long_line_of_go_is_read_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\nprintf '%200000s\\n' x >&2\necho cannot allocate memory >&2\nexit 1\n"
    (tmp_path / "go").write_text(script)
    (tmp_path / "go").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(UserError, match="the machine is out of memory"):
        await gotool.find()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("compile: writing output: write $WORK/b9: no space left on device", "the disk is full"),
        ("go: module requires go >= 1.26.0 (running go 1.24.4; GOTOOLCHAIN=local)", "this Go is too old"),
        ("k8s.io/api: compile: signal: killed", "the compiler was killed"),
        ("dial tcp: lookup proxy.test on 1.2.3.4:53: no such host", "the Go module proxy cannot be reached"),
        ("x\n\nverifying m@v1: checksum mismatch\n", "a downloaded module is not what it should be"),
        ("first\nlast words\n", "last words"),
        ("", "it did not say why"),
    ],
)
def test_the_failures_of_go_become_sentences(said: str, sentence: str) -> None:
    assert gotool.explain(said).startswith(sentence)
