"""Kubeconfig files → the context in use, or one sentence why there is none."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.errors import UserError
from berth.kube import kubeconfig
from berth.kube.identity import BearerTokenFile, Fixed
from berth.kube.kubeconfig import Context
from berth.kube.plugin import Plugin

SERVER = {"server": "https://example.test:6443"}


def config(user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": SERVER if cluster is None else cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }


def read(directory: Path, *bodies: Any) -> Context:
    files = []
    for number, body in enumerate(bodies):
        file = directory / str(number) / "config"
        file.parent.mkdir()
        file.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
        files.append(file)
    return kubeconfig.read(files)


def authorization(context: Context) -> str:
    assert isinstance(context.identity, Fixed)
    return context.identity.proof.authorization


def test_the_current_context_names_server_namespace_and_user(tmp_path: Path) -> None:
    context = read(tmp_path, config({"token": "t0ken"}))
    assert (context.server, context.namespace) == ("https://example.test:6443", "team")
    assert authorization(context) == "Bearer t0ken"


def test_user_and_password_become_a_basic_header(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"me:pass").decode()
    assert authorization(read(tmp_path, config({"username": "me", "password": "pass"}))) == f"Basic {encoded}"


def test_a_token_file_counts_from_its_kubeconfig(tmp_path: Path) -> None:
    context = read(tmp_path, config({"tokenFile": "token"}))
    assert isinstance(context.identity, BearerTokenFile)
    assert context.identity.path == tmp_path / "0" / "token"


def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    body = config()
    del body["contexts"][0]["context"]["user"]
    assert authorization(read(tmp_path, body)) == ""


def test_tls_settings_are_read(tmp_path: Path) -> None:
    cluster = {**SERVER, "tls-server-name": "other.test", "insecure-skip-tls-verify": True}
    context = read(tmp_path, config(cluster=cluster))
    assert (context.server_name, context.trust.insecure) == ("other.test", True)


def test_data_wins_over_files(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    cluster = {**SERVER, "certificate-authority": "ca.crt", "certificate-authority-data": data}
    assert read(tmp_path, config(cluster=cluster)).trust.ca.read() == b"PEM"


def test_data_may_be_wrapped(tmp_path: Path) -> None:
    data = base64.encodebytes(b"PEM" * 100).decode()
    cluster = {**SERVER, "certificate-authority-data": data}
    assert read(tmp_path, config(cluster=cluster)).trust.ca.read() == b"PEM" * 100


def test_paths_count_from_the_file_they_stand_in(tmp_path: Path) -> None:
    user = {"client-certificate": "me.crt", "client-key": "/keys/me.key"}
    identity = read(tmp_path, config(user)).identity
    assert isinstance(identity, Fixed)
    assert identity.proof.certificate.certificate.file == tmp_path / "0" / "me.crt"
    assert identity.proof.certificate.key.file == Path("/keys/me.key")


def test_of_several_files_the_first_to_name_an_entry_wins(tmp_path: Path) -> None:
    first = {"current-context": "here", "users": [{"name": "u", "user": {"token": "first"}}]}
    assert authorization(read(tmp_path, first, config({"token": "second"}))) == "Bearer first"


def test_an_exec_section_becomes_a_plug_in(tmp_path: Path) -> None:
    section = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "get-token",
        "args": ["--for", "me"],
        "env": [{"name": "A", "value": "b"}],
        "installHint": "apt install\n  get-token",
        "provideClusterInfo": True,
        "interactiveMode": "IfAvailable",
    }
    cluster = {
        **SERVER,
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}],
    }
    identity = read(tmp_path, config({"exec": section}, cluster)).identity
    assert identity == Plugin(
        command="get-token",
        arguments=("--for", "me"),
        env={"A": "b"},
        api_version="client.authentication.k8s.io/v1",
        install_hint="apt install get-token",
        cluster={**SERVER, "config": {"audience": "x"}},
        directory=tmp_path / "0",
    )


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "x"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{not: [yaml", "is not YAML"),
        ("just text", "holds no mapping"),
        ("", "sets no current-context"),
        ("contexts: 3", "sets no current-context"),
        ({"current-context": "gone"}, "has no context 'gone'"),
        ({**config(), "clusters": None}, "has no cluster 'c'"),
        ({**config(), "clusters": "many"}, "has no cluster 'c'"),
        ({**config(), "clusters": 7}, "has no cluster 'c'"),
        ({**config(), "users": []}, "has no user 'u'"),
        ({**config(), "users": [{"name": "u", "user": "me"}]}, "is not a mapping"),
        (config(cluster={}), "no server address"),
        (config(cluster={"server": "example.test"}), "no server address"),
        (config(cluster={"server": "https://"}), "no server address"),
        (config(cluster={"server": "https://a:b"}), "no server address"),
        (config(cluster={**SERVER, "proxy-url": "http://p"}), "sets proxy-url"),
        (config(cluster={**SERVER, "certificate-authority-data": "%%"}), "is not base64"),
        (config({"auth-provider": {"name": "oidc"}}), "sets auth-provider"),
        (config({"as": "admin"}), "sets as"),
        (config({"exec": {"command": "x"}}), "needs an exec apiVersion"),
        (config({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}), "without a command"),
        (config({"exec": {**EXEC, "interactiveMode": "Always"}}), "needs a terminal"),
        (config({"exec": {**EXEC, "env": ["A=b"]}}), "name and value"),
        (config({"exec": {**EXEC, "args": 5}}), "exec args that are no list"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(tmp_path: Path, body: Any, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, body)
    message = str(caught.value)
    assert sentence in message
    assert str(tmp_path) in message
    assert message.endswith((".", "NAME."))
    assert "\n" not in message


def test_a_file_that_is_missing_or_a_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Cannot read the kubeconfig .*none: No such file"):
        kubeconfig.read([tmp_path / "none"])
    with pytest.raises(UserError, match="Is a directory"):
        kubeconfig.read([tmp_path])


def test_no_secret_is_in_a_repr(tmp_path: Path) -> None:
    key = base64.b64encode(b"pr1vate").decode()
    user = {"token": "s3cret", "client-certificate-data": key, "client-key-data": key}
    shown = repr(read(tmp_path, config(user)))
    plugin = repr(read(tmp_path / "0", config({"exec": {**EXEC, "env": [{"name": "P", "value": "s3cret"}]}})))
    assert not {"s3cret", "pr1vate", key} & set(shown.split("'"))
    assert "s3cret" not in shown + plugin
