"""Where the programs of the control plane are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from berth.errors import UserError

KUBERNETES = "v1.34.4"
CORE = ("etcd", "kube-apiserver", "kubectl")
EXTRA = ("kube-controller-manager", "kube-proxy", "clusterctl", "helm")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Program name → path. Only what was asked for is in it."""

    paths: Mapping[str, Path]

    def __getitem__(self, name: str) -> Path:
        if name not in self.paths:
            return type(self).locate([name]).paths[name]
        return self.paths[name]

    @classmethod
    def locate(cls, names: Iterable[str] = CORE) -> Self:
        found = {name: cache_directory() / name for name in names}
        missing = [name for name, path in found.items() if not path.exists()]
        if missing:
            raise UserError(f"{', '.join(missing)} not found: run `berth devcluster prepare`")
        return cls(found)


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "berth" / "controlplane" / KUBERNETES
