"""The kubeconfig of one dev cluster: the administrator's, with everything in the file itself."""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from berth.devcluster.files import write_private
from berth.devcluster.pki import Pki

NAME = "berth-devcluster"


def write(path: Path, pki: Pki, url: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{"name": NAME, "cluster": {"server": url, "certificate-authority-data": _data(pki.ca)}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "users": [{"name": NAME, "user": _admin(pki)}],
    }
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def _admin(pki: Pki) -> dict[str, str]:
    return {
        "client-certificate-data": _data(pki.certificate("admin")),
        "client-key-data": _data(pki.key("admin")),
    }


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
