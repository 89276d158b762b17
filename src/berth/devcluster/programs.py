"""Which programs there are, from which Go module each is built, and how old a found one may be.

The cache directory carries the version of Kubernetes; the other modules' versions are checked one by one
(see binaries.py), so raising any of them here is all it takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from berth.errors import UserError


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module at a version. `stamp` is the package whose variables carry the version."""

    path: str
    version: str
    stamp: str = ""

    @property
    def local_version(self) -> str:
        """The version under which the modules inside this one's repository are published."""
        if self.path == "k8s.io/kubernetes":
            return "v0." + self.version.removeprefix("v1.")
        return self.version


KUBERNETES = Module("k8s.io/kubernetes", "v1.34.4", "k8s.io/component-base/version")
ETCD = Module("go.etcd.io/etcd/server/v3", "v3.6.5")
CLUSTER_API = Module("sigs.k8s.io/cluster-api", "v1.14.0", "sigs.k8s.io/cluster-api/version")
HELM = Module("helm.sh/helm/v3", "v3.19.5", "helm.sh/helm/v3/internal/version")


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: Module
    package: str
    oldest: tuple[int, int]
    version_arguments: tuple[str, ...] = ("--version",)
    takes: str = "half a minute"  # on two cores with nothing cached


def _kubernetes(name: str, takes: str, *version_arguments: str) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name, KUBERNETES, package, (1, 30), version_arguments or ("--version",), takes)


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", ETCD, "go.etcd.io/etcd/server/v3", (3, 5)),
        _kubernetes("kube-apiserver", "4 minutes"),
        _kubernetes("kubectl", "a minute", "version", "--client"),
        _kubernetes("kube-controller-manager", "a minute"),
        _kubernetes("kube-proxy", "half a minute"),
        Program(
            "clusterctl",
            CLUSTER_API,
            "sigs.k8s.io/cluster-api/cmd/clusterctl",
            (1, 11),
            ("version", "-o", "short"),
            "2 minutes",
        ),
        Program("helm", HELM, "helm.sh/helm/v3/cmd/helm", (3, 12), ("version", "--short"), "2 minutes"),
    )
}

# What a cluster itself needs, and what `make test` needs on top.
CORE = ("etcd", "kube-apiserver", "kubectl")
EVERYTHING = tuple(PROGRAMS)


def program(name: str) -> Program:
    if name not in PROGRAMS:
        raise UserError(f"there is no program {name}: the names are {', '.join(PROGRAMS)}")
    return PROGRAMS[name]


def known(names: Iterable[str]) -> list[Program]:
    return [program(name) for name in names]


def parse_version(text: str) -> tuple[int, int, int] | None:
    """The first thing that looks like a version in what a program prints about itself."""
    match = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None
