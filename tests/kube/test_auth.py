"""Credentials: where they are found, how they stay fresh, and what is said when they are no good."""

from __future__ import annotations

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from tests.kube.certificates import Authority
from tests.kube.scripted import CONFIGMAPS, answer, configmap, refusal, scripted

from berth.errors import Unreachable, UserError
from berth.kube import auth
from berth.kube.auth import Credentials
from berth.kube.client import Client
from berth.kube.http.tls import ClientCertificate, Pem, ServerTrust
from berth.kube.identity import BearerTokenFile, Fixed, Proof
from berth.kube.kubeconfig import Context

FOUND = answer(200, configmap("a", 1))


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def write_config(file: Path, server: str = "https://example.test", **user: str) -> Path:
    body: dict[str, Any] = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": user}],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(body))
    return file


# Where they are found


def test_an_explicit_file_comes_first(tmp_path: Path) -> None:
    given = write_config(tmp_path / "given", "https://given.test")
    listed = write_config(tmp_path / "listed", "https://listed.test")
    env = {"KUBECONFIG": str(listed), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    assert auth.load(given, env).server == "https://given.test"
    assert auth.load(None, env).server == "https://listed.test"


def test_inside_a_cluster_the_service_account_comes_before_the_home_directory(tmp_path: Path) -> None:
    write_config(tmp_path / ".kube" / "config", "https://home.test")
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "HOME": str(tmp_path)}
    assert auth.load(None, env).server == "https://[fd00::1]:6443"
    assert auth.load(None, {"HOME": str(tmp_path)}).server == "https://home.test"


def test_files_of_a_list_may_be_missing_but_not_all(tmp_path: Path) -> None:
    there = write_config(tmp_path / "there", "https://there.test")
    assert auth.load(None, {"KUBECONFIG": f"{tmp_path}/none:{there}"}).server == "https://there.test"
    with pytest.raises(UserError, match=r"Cannot read the kubeconfig .*/none"):
        auth.load(None, {"KUBECONFIG": f"{tmp_path}/none:{tmp_path}/neither"})


def test_without_any_there_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster"):
        auth.load(None, {"HOME": str(tmp_path)})


def test_a_service_account_names_its_namespace(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("team\n")
    context = auth.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    assert (context.namespace, context.server) == ("team", "https://10.0.0.1:443")
    assert context.identity == BearerTokenFile(tmp_path / "token")


# Tokens that are rotated


async def test_a_rotated_token_is_used_after_ten_seconds(tmp_path: Path) -> None:
    file, time = tmp_path / "token", Time()
    file.write_text("one\n")
    async with scripted(*[FOUND] * 3) as server:
        context = Context(f"http://127.0.0.1:{server.port}", ServerTrust(), BearerTokenFile(file, clock=time))
        async with Client(Credentials(context, clock=time)) as client:
            await client.get(CONFIGMAPS, "a", "default")
            file.write_text("two\n")
            await client.get(CONFIGMAPS, "a", "default")
            time.now += 11
            await client.get(CONFIGMAPS, "a", "default")
    assert server.tokens == ["Bearer one", "Bearer one", "Bearer two"]


async def test_a_rotated_token_is_used_at_once_after_a_401(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    script = [FOUND, refusal(401, "Unauthorized"), FOUND]
    identity = BearerTokenFile(file)
    async with scripted(*script) as server, Client(server.credentials(identity)) as client:
        await client.get(CONFIGMAPS, "a", "default")
        file.write_text("two")
        await client.create(CONFIGMAPS, configmap("a", 0))
    assert server.tokens == ["Bearer one", "Bearer one", "Bearer two"]


async def test_a_token_file_that_is_away_for_a_moment_does_not_stop_us(tmp_path: Path) -> None:
    file, time = tmp_path / "token", Time()
    file.write_text("one")
    credentials = Credentials(
        Context("http://x", ServerTrust(), BearerTokenFile(file, clock=time)), clock=time
    )
    await credentials.renew()
    file.unlink()
    time.now += 11
    assert credentials.access() is None
    assert (await credentials.renew()).authorization == "Bearer one"
    assert credentials.access() is not None
    file.write_text("two")
    time.now += 11
    assert (await credentials.renew()).authorization == "Bearer two"


@pytest.mark.parametrize(
    ("content", "sentence"), [(None, "No such file"), (b" \n", "is empty"), (b"\xff", "not text")]
)
async def test_a_token_file_that_is_no_good_from_the_start_is_one_sentence(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        await BearerTokenFile(tmp_path / "token").prove()


# TLS


def client_of(server: str, trust: ServerTrust, identity: Fixed | None = None, name: str = "") -> Client:
    return Client(Credentials(Context(server, trust, identity or Fixed(), server_name=name)))


async def test_the_clusters_authority_vouches_for_the_server(tmp_path: Path) -> None:
    authority = Authority()
    async with scripted(FOUND, tls=authority.server(tmp_path, "127.0.0.1")) as server:
        trust = ServerTrust(Pem(data=authority.pem))
        async with client_of(f"https://127.0.0.1:{server.port}", trust) as client:
            assert await client.get(CONFIGMAPS, "a", "default") == configmap("a", 1)


async def test_a_server_of_another_authority_is_one_sentence(tmp_path: Path) -> None:
    async with scripted(tls=Authority().server(tmp_path, "127.0.0.1")) as server:
        trust = ServerTrust(Pem(data=Authority("other").pem))
        async with client_of(f"https://127.0.0.1:{server.port}", trust) as client:
            with pytest.raises(UserError) as caught:
                await client.check()
    message = str(caught.value)
    assert "its certificate is not trusted" in message
    assert "\n" not in message


async def test_a_certificate_for_another_name_is_refused_unless_that_name_is_asked_for(
    tmp_path: Path,
) -> None:
    authority = Authority()
    trust = ServerTrust(Pem(data=authority.pem))
    async with scripted(FOUND, FOUND, tls=authority.server(tmp_path, "api.test")) as server:
        address = f"https://127.0.0.1:{server.port}"
        async with client_of(address, trust) as client:
            with pytest.raises(Unreachable, match="not trusted"):
                await client.get(CONFIGMAPS, "a", "default")
        async with client_of(address, trust, name="api.test") as client:
            await client.get(CONFIGMAPS, "a", "default")
        async with client_of(address, ServerTrust(insecure=True)) as client:
            await client.get(CONFIGMAPS, "a", "default")


@pytest.mark.parametrize("in_line", [True, False])
async def test_we_prove_ourselves_with_a_certificate(tmp_path: Path, in_line: bool) -> None:
    authority = Authority()
    pair = authority.issue("me")
    files = pair.write(tmp_path, "me")
    if in_line:
        mine = ClientCertificate(Pem(data=pair.certificate), Pem(data=pair.key))
    else:
        mine = ClientCertificate(Pem(file=files[0]), Pem(file=files[1]))
    async with scripted(FOUND, tls=authority.server(tmp_path, "127.0.0.1", clients=True)) as server:
        identity = Fixed(Proof(certificate=mine))
        trust = ServerTrust(Pem(data=authority.pem))
        async with client_of(f"https://127.0.0.1:{server.port}", trust, identity) as client:
            await client.get(CONFIGMAPS, "a", "default")


async def test_a_replaced_certificate_file_makes_new_connections_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    authority, time = Authority(), Time()
    certificate, key = authority.issue("me").write(tmp_path, "me")
    mine = ClientCertificate(Pem(file=certificate), Pem(file=key))
    context = Context("https://x", ServerTrust(Pem(data=authority.pem)), Fixed(Proof(certificate=mine)))
    credentials = Credentials(context, clock=time)
    first = await credentials.renew()
    time.now += 11
    assert credentials.access() is None
    assert (await credentials.renew()).tls is first.tls
    authority.issue("me again").write(tmp_path, "me")
    time.now += 11
    assert (await credentials.renew()).tls is not first.tls


@pytest.mark.parametrize(
    ("trust", "mine", "sentence"),
    [
        (ServerTrust(Pem(data=b"no pem")), None, "certificate-authority-data: it is not PEM"),
        (ServerTrust(Pem(data=b"")), ClientCertificate(Pem(data=b"x"), Pem(data=b"y")), "belong together"),
        (ServerTrust(Pem(file=Path("/none/ca.crt"))), None, "Cannot read /none/ca.crt: No such file"),
        (ServerTrust(), ClientCertificate(Pem(file=Path("/none/me.crt"))), "Cannot read /none/me.crt"),
    ],
)
async def test_certificates_that_cannot_be_used_are_one_sentence(
    trust: ServerTrust, mine: ClientCertificate | None, sentence: str
) -> None:
    identity = Fixed(Proof(certificate=mine or ClientCertificate()))
    with pytest.raises(UserError, match=sentence):
        await Credentials(Context("https://x", trust, identity)).renew()


async def test_a_certificate_file_being_replaced_keeps_the_old_proof(tmp_path: Path) -> None:
    time = Time()
    certificate, key = Authority().issue("me").write(tmp_path, "me")
    mine = ClientCertificate(Pem(file=certificate), Pem(file=key))
    credentials = Credentials(Context("https://x", ServerTrust(), Fixed(Proof(certificate=mine))), clock=time)
    first = await credentials.renew()
    key.unlink()
    key.symlink_to("x" * 300)  # neither there nor missing: looking at it is an error
    time.now += 11
    assert (await credentials.renew()).tls is first.tls


async def test_an_encrypted_key_is_one_sentence_and_no_question_at_the_terminal() -> None:
    pair = Authority().issue("me")
    private = serialization.load_pem_private_key(pair.key, None)
    locked = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    mine = ClientCertificate(Pem(data=pair.certificate), Pem(data=locked))
    with pytest.raises(UserError, match="unencrypted"):
        await Credentials(Context("https://x", ServerTrust(), Fixed(Proof(certificate=mine)))).renew()


async def test_a_key_given_in_line_never_touches_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/none")  # nor does a full or read-only one matter
    pair = Authority().issue("me")
    mine = ClientCertificate(Pem(data=pair.certificate), Pem(data=pair.key))
    await Credentials(Context("https://x", ServerTrust(), Fixed(Proof(certificate=mine)))).renew()


# No API server


async def test_no_server_is_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: nobody can be there
        async with client_of(f"http://127.0.0.1:{taken.getsockname()[1]}", ServerTrust()) as client:
            sentence = r"^No API server can be reached at http://\S+: connection refused\.$"
            with pytest.raises(UserError, match=sentence):
                await client.check()


async def test_a_name_that_does_not_exist_is_one_sentence() -> None:
    async with client_of("https://api.invalid", ServerTrust()) as client:
        with pytest.raises(UserError, match="its name cannot be resolved"):
            await client.check()


async def test_a_refusal_is_one_sentence() -> None:
    script = [refusal(401, "Unauthorized", "Unauthorized")]
    async with scripted(*script) as server, Client(server.credentials()) as client:
        with pytest.raises(UserError, match="refused us: Unauthorized"):
            await client.check()


async def test_a_server_that_speaks_no_tls_is_one_sentence() -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTPS request to an HTTP server.\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with client_of(f"https://127.0.0.1:{port}", ServerTrust()) as client:
            with pytest.raises(UserError, match="TLS could not be agreed"):
                await client.check()


# Secrets


async def test_no_secret_is_in_a_repr_or_an_error(tmp_path: Path) -> None:
    file = write_config(tmp_path / "config", "http://127.0.0.1:1", token="s3cret")
    credentials = auth.load(file)
    access = await credentials.renew()
    async with Client(credentials) as client:
        with pytest.raises(Unreachable) as caught:
            await client.raw("POST", "/x", body={"password": "pa55"})
    told = f"{credentials!r} {access!r} {caught.value!r} {caught.value.__cause__!r} {vars(client)!r}"
    encoded = base64.b64encode(b"s3cret").decode()
    assert not [secret for secret in ("s3cret", "pa55", encoded) if secret in told]
