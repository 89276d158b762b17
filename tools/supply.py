"""What Berth is made of, from the lock file alone: the part a running Berth needs, and a bill of materials.

    python tools/supply.py runtime > requirements-run.lock        what the image installs; a test compares
    python tools/supply.py sbom requirements.lock > sbom.cdx.json CycloneDX 1.6

Why no tool from elsewhere: the lock file already names every package with its version and the hashes of its
files, so a bill of materials is a change of form; a generator would itself be one more thing to pin and to
carry into a network without internet. Standard library only, so it also runs where nothing is installed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
RUN_LOCK = ROOT / "requirements-run.lock"
PINNED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
NEEDED = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock file, and its lines as they stand there."""

    name: str
    version: str
    text: str

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"

    @property
    def hashes(self) -> list[str]:
        return HASH.findall(self.text)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lock: str) -> Iterator[Pin]:
    """A package begins at the margin; its hashes are indented below it."""
    for block in re.split(r"^(?=\S)", lock, flags=re.MULTILINE):
        if found := PINNED.match(block):
            yield Pin(canonical(found["name"]), found["version"], block)


def runtime(lock: str) -> str:
    """The lock file without what only developing needs: what is reachable from our own dependencies."""
    needed = _reachable(_project()["dependencies"])
    return "".join(pin.text for pin in pins(lock) if pin.name in needed)


def _reachable(requirements: list[str]) -> set[str]:
    found: set[str] = set()
    waiting = [name for text in requirements if (name := _name(text))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for text in _requires(name) if (other := _name(text))]
    return found


def _requires(name: str) -> list[str]:
    """Nothing for a package that is not installed here: it is for another system (colorama for Windows)."""
    try:
        return metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []


def _name(requirement: str) -> str:
    """Of a requirement that is no extra of its package; other markers are the lock file's business."""
    found = NEEDED.match(requirement)
    return "" if found is None or "extra ==" in requirement else canonical(found["name"])


def _project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def sbom(lock: str, run_lock: str) -> dict[str, Any]:
    """The same lock file gives the same bytes: no time of day, and a number that follows from the content."""
    project, running = _project(), {pin.name for pin in pins(run_lock)}
    own = {
        "type": "application",
        "bom-ref": f"pkg:pypi/{project['name']}@{project['version']}",
        "name": project["name"],
        "version": project["version"],
        "licenses": [{"license": {"id": project["license"]}}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, lock)}",
        "version": 1,
        "metadata": {"component": own},
        "components": [_component(pin, pin.name in running) for pin in pins(lock)],
    }


def _component(pin: Pin, runs: bool) -> dict[str, Any]:
    """`excluded` is CycloneDX's word for what is not part of the running thing. The hashes are those of every
    file of the release, one per platform: the installed one is among them."""
    return {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "scope": "required" if runs else "excluded",
        "hashes": [{"alg": "SHA-256", "content": content} for content in pin.hashes],
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("runtime", "sbom"))
    parser.add_argument("lock", nargs="?", type=Path, default=LOCK)
    chosen = parser.parse_args(arguments)
    lock = chosen.lock.read_text()
    if chosen.what == "runtime":
        sys.stdout.write(runtime(lock))
    else:
        json.dump(sbom(lock, RUN_LOCK.read_text()), sys.stdout, indent=1)
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
