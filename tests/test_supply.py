"""What an image or a bill of materials is made from is the lock file, and nothing is missing from it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
supply = SimpleNamespace(**runpy.run_path(str(ROOT / "tools" / "supply.py")))  # a script, in no package
LOCK = (ROOT / "requirements.lock").read_text()
RUN_LOCK = (ROOT / "requirements-run.lock").read_text()


def test_the_runtime_lock_file_is_up_to_date() -> None:
    assert supply.runtime(LOCK) == RUN_LOCK, "run: python tools/supply.py runtime > requirements-run.lock"


def test_the_runtime_lock_file_leaves_out_what_only_developing_needs() -> None:
    names = {pin.name for pin in supply.pins(RUN_LOCK)}
    assert {"aiohttp", "typer", "cryptography"} <= names
    assert not names & {"pytest", "mypy", "ruff", "hatchling"}


def test_no_lock_file_names_an_index() -> None:
    assert "://" not in LOCK + RUN_LOCK


def test_berth_runs_with_the_runtime_packages_alone() -> None:
    """Every module is imported, and nothing loaded comes from a package that the lock file leaves out."""
    program = (
        "import pkgutil, sys, importlib, berth\n"
        "for found in pkgutil.walk_packages(berth.__path__, 'berth.'): importlib.import_module(found.name)\n"
        "print('\\n'.join({name.partition('.')[0] for name in sys.modules}))\n"
    )
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True, timeout=180).split()
    owners = metadata.packages_distributions()
    used = {supply.canonical(dist) for module in loaded for dist in owners.get(module, ())}
    assert used - {pin.name for pin in supply.pins(RUN_LOCK)} - {"berth", "setuptools", "pip"} == set()


def test_the_bill_of_materials_lists_every_package_once_with_its_hashes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    supply.main(["sbom"])
    bill = json.loads(capsys.readouterr().out)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == "berth"
    references = [component["bom-ref"] for component in bill["components"]]
    assert len(references) == len(set(references)) == sum("==" in line for line in LOCK.splitlines())
    assert all(component["hashes"] for component in bill["components"])
    required = {c["name"] for c in bill["components"] if c["scope"] == "required"}
    assert required == {pin.name for pin in supply.pins(RUN_LOCK)}


def test_the_containerfile_copies_only_what_the_ignore_file_lets_in() -> None:
    allowed = {line[1:] for line in (ROOT / ".containerignore").read_text().split() if line[0] == "!"}
    copied = {
        word
        for line in (ROOT / "Containerfile").read_text().splitlines()
        if line.startswith("COPY") and "--from" not in line
        for word in line.split()[1:-1]
    }
    assert {name.removesuffix("/*.whl") for name in allowed} == copied
    assert all((ROOT / name).exists() for name in copied - {"wheels"})
