"""Cluster API's own CRDs, as its Go module carries them, copied into our cache so that they survive it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from berth.devcluster import cache as caches
from berth.devcluster import gotool
from berth.devcluster.build import download
from berth.devcluster.cache import BinaryCache
from berth.devcluster.faults import explained
from berth.devcluster.programs import CLUSTER_API
from berth.devcluster.progress import Report, Step, silent
from berth.errors import UserError

BASES = Path("core", "config", "crd", "bases")
CLAIMS = "ipam.cluster.x-k8s.io_ipaddressclaims"
ADDRESSES = "ipam.cluster.x-k8s.io_ipaddresses"
CLUSTERS = "cluster.x-k8s.io_clusters"
USUAL = (CLAIMS, ADDRESSES, CLUSTERS)


def cluster_api_crds(names: Iterable[str] = USUAL, cache: BinaryCache | None = None) -> list[Path]:
    """Files for `kubectl apply -f`; `names` are `<group>_<plural>`."""
    directory = _directory(cache or caches.of(os.environ))
    files = [directory / f"{name}.yaml" for name in names]
    missing = [file.stem for file in files if not file.exists()]
    if missing:
        raise UserError(f"Cluster API's CRD {missing[0]} is not there: run `berth devcluster prepare`")
    return files


async def prepare_cluster_api_crds(report: Report = silent, cache: BinaryCache | None = None) -> Path:
    """All of them; the directory they are in."""
    cache = cache or caches.of(os.environ)
    directory = _directory(cache)
    with explained(str(directory)):
        if not directory.exists():
            async with caches.workshop(cache, report) as made:
                report(Step(f"downloading the CRDs of Cluster API {CLUSTER_API.version}"))
                module = await download(await gotool.find(), made, CLUSTER_API)
                _place(Path(module["Dir"]) / BASES, made / "crds", directory)
    return directory


def _directory(cache: BinaryCache) -> Path:
    return cache.directory / f"cluster-api-{CLUSTER_API.version}-crds"


def _place(source: Path, made: Path, directory: Path) -> None:
    """Go's module cache is read-only, and so would a plain copy of it be."""
    made.mkdir()
    for file in source.glob("*.yaml"):
        shutil.copyfile(file, made / file.name)
    if not directory.exists():
        made.rename(directory)
