"""Kubeconfig files → the one context in use: which server, how it proves itself, who we are.

Files of a KUBECONFIG list are merged as kubectl does: the first to name an entry wins, and paths in an entry
count from the file they stand in. Whatever cannot be used is one UserError that names the file and the entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from berth.errors import UserError
from berth.kube.http.tls import ClientCertificate, Pem, ServerTrust
from berth.kube.identity import BearerTokenFile, ClientIdentity, Fixed, Proof, basic, bearer
from berth.kube.plugin import VERSIONS, Plugin, decode


@dataclass(frozen=True, slots=True)
class KubeconfigEntry:
    """One named section and the file it stands in."""

    name: str
    body: Mapping[str, Any]
    file: Path

    def text(self, key: str) -> str:
        return str(self.body.get(key) or "")

    def path(self, key: str) -> Path | None:
        return self.file.parent / self.text(key) if self.text(key) else None

    def pem(self, key: str) -> Pem:
        """`key` names a file and `key-data` holds the material; data wins, as in kubectl."""
        if data := self.text(f"{key}-data"):
            return Pem(data=decode(data, f"{key}-data of {self}"))
        return Pem(file=self.path(key))

    def __str__(self) -> str:
        return f"{self.name!r} in {self.file}"


@dataclass(frozen=True, slots=True)
class Context:
    """What the current context points to, ready to connect with."""

    server: str
    trust: ServerTrust
    identity: ClientIdentity
    server_name: str = ""
    namespace: str = ""


def read(files: Sequence[Path]) -> Context:
    """The current context of these files together."""
    documents = [(file, _load(file)) for file in files]
    name = next((str(body["current-context"]) for _, body in documents if body.get("current-context")), "")
    if not name:
        raise UserError(f"{_names(files)} sets no current-context: run kubectl config use-context NAME.")
    context = _entry(documents, "context", name)
    cluster = _entry(documents, "cluster", context.text("cluster"))
    return Context(
        server=_server(cluster),
        trust=ServerTrust(
            cluster.pem("certificate-authority"), bool(cluster.body.get("insecure-skip-tls-verify"))
        ),
        identity=_identity(documents, context, cluster),
        server_name=cluster.text("tls-server-name"),
        namespace=context.text("namespace"),
    )


def _load(file: Path) -> Mapping[str, Any]:
    try:
        body = yaml.safe_load(file.read_text())
    except OSError as error:
        raise UserError(f"Cannot read the kubeconfig {file}: {error.strerror or error}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"The kubeconfig {file} is not YAML.") from error
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise UserError(f"The kubeconfig {file} is not a kubeconfig: it holds no mapping.")
    return body


def _entry(documents: Sequence[tuple[Path, Mapping[str, Any]]], kind: str, name: str) -> KubeconfigEntry:
    for file, body in documents:
        for item in _mappings(body.get(f"{kind}s")):
            if item.get("name") == name:
                return _section(name, item.get(kind) or {}, file)
    files = _names([file for file, _ in documents])
    raise UserError(f"{files} has no {kind} {name!r}, which the current context needs.")


def _section(name: str, body: Any, file: Path) -> KubeconfigEntry:
    entry = KubeconfigEntry(name, body, file)
    if not isinstance(body, dict):
        raise UserError(f"The entry {entry} is not a mapping.")
    return entry


def _mappings(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _server(cluster: KubeconfigEntry) -> str:
    server = cluster.text("server").rstrip("/")
    if not _is_address(server):
        raise UserError(f"The cluster {cluster} has no server address that starts with https:// or http://.")
    if cluster.text("proxy-url"):
        raise UserError(
            f"The cluster {cluster} sets proxy-url, which Berth does not support: connect directly."
        )
    return server


def _is_address(server: str) -> bool:
    try:
        url = urlsplit(server)
        return url.scheme in ("https", "http") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _identity(
    documents: Sequence[tuple[Path, Mapping[str, Any]]], context: KubeconfigEntry, cluster: KubeconfigEntry
) -> ClientIdentity:
    if not context.text("user"):
        return Fixed()
    user = _entry(documents, "user", context.text("user"))
    for key in ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra"):
        if user.body.get(key):
            raise UserError(f"The user {user} sets {key}, which Berth does not support.")
    if user.body.get("exec"):
        return _plugin(user, cluster)
    certificate = ClientCertificate(user.pem("client-certificate"), user.pem("client-key"))
    return _plain_identity(user, certificate)


def _plain_identity(user: KubeconfigEntry, certificate: ClientCertificate) -> ClientIdentity:
    if token := user.text("token"):
        return Fixed(Proof(bearer(token), certificate))
    if path := user.path("tokenFile"):
        return BearerTokenFile(path, certificate)
    if user.text("username"):
        return Fixed(Proof(basic(user.text("username"), user.text("password")), certificate))
    return Fixed(Proof(certificate=certificate))


def _plugin(user: KubeconfigEntry, cluster: KubeconfigEntry) -> Plugin:
    body = user.body["exec"]
    if not isinstance(body, dict) or not body.get("command"):
        raise UserError(f"The user {user} has an exec section without a command.")
    if body.get("apiVersion") not in VERSIONS:
        raise UserError(f"The user {user} needs an exec apiVersion of {' or '.join(VERSIONS)}.")
    if body.get("interactiveMode") == "Always":
        raise UserError(f"The user {user} has a credential program that needs a terminal; Berth has none.")
    return Plugin(
        command=str(body["command"]),
        arguments=_arguments(user, body.get("args")),
        env=_environment(user, body.get("env")),
        api_version=str(body["apiVersion"]),
        install_hint=" ".join(str(body.get("installHint") or "").split()),
        cluster=_cluster_info(cluster) if body.get("provideClusterInfo") else None,
        directory=user.file.parent,
    )


def _arguments(user: KubeconfigEntry, items: Any) -> tuple[str, ...]:
    if not isinstance(items or [], list):
        raise UserError(f"The user {user} has exec args that are no list.")
    return tuple(str(item) for item in items or ())


def _environment(user: KubeconfigEntry, pairs: Any) -> dict[str, str]:
    try:
        return {str(pair["name"]): str(pair["value"]) for pair in pairs or ()}
    except (KeyError, TypeError) as error:
        raise UserError(f"The user {user} has an exec env entry without name and value.") from error


def _cluster_info(cluster: KubeconfigEntry) -> Mapping[str, Any]:
    """What a plug-in may know of the cluster, in the words of ExecCredential."""
    extensions = {
        item.get("name"): item.get("extension") for item in _mappings(cluster.body.get("extensions"))
    }
    info = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": bool(cluster.body.get("insecure-skip-tls-verify")),
        "certificate-authority-data": cluster.text("certificate-authority-data"),
        "config": extensions.get("client.authentication.k8s.io/exec"),
    }
    return {key: value for key, value in info.items() if value}


def _names(files: Sequence[Path]) -> str:
    return f"The kubeconfig {', '.join(str(file) for file in files)}"
