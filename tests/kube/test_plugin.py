"""The exec plug-in: a real program that prints an ExecCredential."""

from __future__ import annotations

import math
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from berth.errors import UserError
from berth.kube.auth import Credentials
from berth.kube.http.tls import ServerTrust
from berth.kube.kubeconfig import Context
from berth.kube.plugin import VERSIONS, Plugin


def credential(**status: str) -> str:
    body = {"apiVersion": VERSIONS[0], "kind": "ExecCredential", "status": status}
    return orjson.dumps(body).decode()


def program(directory: Path, script: str) -> Path:
    file = directory / "get-token"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def printing(directory: Path, output: str) -> Plugin:
    (directory / "output").write_text(output)
    return Plugin(str(program(directory, f"cat {directory}/output")))


async def test_a_token_is_taken_and_kept_for_good_without_an_end(tmp_path: Path) -> None:
    proof = await printing(tmp_path, credential(token="t0ken")).prove()
    assert (proof.authorization, proof.valid_until_seconds) == ("Bearer t0ken", math.inf)


async def test_a_certificate_is_taken(tmp_path: Path) -> None:
    answer = credential(clientCertificateData="CERT", clientKeyData="KEY")
    proof = await printing(tmp_path, answer).prove()
    assert proof.authorization == ""
    assert (proof.certificate.certificate.read(), proof.certificate.key.read()) == (b"CERT", b"KEY")


async def test_a_token_is_kept_until_shortly_before_its_end(tmp_path: Path) -> None:
    end = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    proof = await printing(tmp_path, credential(token="t", expirationTimestamp=end)).prove()
    assert 80 < proof.valid_until_seconds - time.monotonic() < 91


async def test_the_program_gets_arguments_environment_and_what_it_may_know(tmp_path: Path) -> None:
    script = 'printf "%s %s %s" "$1" "$SPECIAL" "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/seen"\n'
    script += f"echo '{credential(token='t')}'"
    plugin = Plugin(
        str(program(tmp_path, script)), ("--arg",), {"SPECIAL": "yes"}, cluster={"server": "https://x"}
    )
    await plugin.prove()
    argument, special, info = (tmp_path / "seen").read_text().split(" ", 2)
    assert (argument, special) == ("--arg", "yes")
    assert orjson.loads(info) == {
        "apiVersion": VERSIONS[0],
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://x"}},
    }


async def test_a_relative_command_counts_from_the_kubeconfig_and_a_bare_one_from_the_path(
    tmp_path: Path,
) -> None:
    program(tmp_path, f"echo '{credential(token='t')}'")
    assert await Plugin("./get-token", directory=tmp_path).prove()
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert await Plugin("get-token", env={"PATH": path}).prove()


async def test_the_program_is_run_again_only_when_its_word_is_over(tmp_path: Path) -> None:
    now = 0.0
    script = f"echo run >> {tmp_path}/runs\necho '{credential(token='t')}'"
    context = Context("http://x", ServerTrust(), Plugin(str(program(tmp_path, script))))
    credentials = Credentials(context, clock=lambda: now)
    access = await credentials.renew()
    assert credentials.access() is access
    now = 1e9
    assert credentials.access() is access
    assert await credentials.renew(refused=access) is not access
    assert (tmp_path / "runs").read_text().count("run") == 2


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("exit 3", "ended with code 3."),
        ("echo first >&2; echo you must log in. >&2; exit 1", "ended with code 1: you must log in."),
        ("echo nonsense", "did not print an ExecCredential"),
        ("echo '{}'", "did not print an ExecCredential"),
        (f"echo '{credential()}'", "neither a token nor a certificate"),
        (f"echo '{credential(token='t', expirationTimestamp='soon')}'", "is no time"),
        ("""echo '{"apiVersion": "v9", "status": {"token": "t"}}'""", "another API version"),
    ],
)
async def test_a_program_that_fails_is_one_sentence(tmp_path: Path, script: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        await Plugin(str(program(tmp_path, script))).prove()
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["berth-no-such-program", "./berth-no-such-program"])
async def test_a_program_that_is_not_there_is_one_sentence(tmp_path: Path, command: str) -> None:
    with pytest.raises(UserError, match="is not installed: apt install it"):
        await Plugin(command, install_hint="apt install it", directory=tmp_path).prove()


async def test_a_program_that_cannot_be_run_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "get-token"
    file.write_text("text")
    with pytest.raises(UserError, match="cannot be run: Permission denied"):
        await Plugin(str(file)).prove()


async def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nexec sleep 600"
    plugin = Plugin(str(program(tmp_path, script)), run_seconds=0.3)
    while not (tmp_path / "pid").exists():  # a machine may be too busy to let it begin in time
        with pytest.raises(UserError, match="did not answer within"):
            await plugin.prove()
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_secret_is_in_a_repr() -> None:
    shown: Any = repr(Plugin("x", env={"PASSWORD": "s3cret"}))
    assert "s3cret" not in shown
