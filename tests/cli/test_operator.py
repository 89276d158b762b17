"""`berth operator` as a person starts it wrongly: one sentence with what to do, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog
import yaml
from tests.kube.certificates import Authority
from tests.kube.scripted import Line, Server, answer, refusal, scripted
from tests.support.processes import mentioning
from typer.testing import CliRunner

from berth.cli.main import app

PATIENCE_SECONDS = 60.0
VARIABLES = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "BERTH_KUBECONFIG")


@dataclass
class Terminal:
    """A person with a home of their own."""

    home: Path

    def kubeconfig(self, server: str, **cluster: str) -> Path:
        file = self.home / "kubeconfig"
        body = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": server, **cluster}}],
        }
        file.write_text(yaml.safe_dump(body))
        return file

    async def fails(self, *arguments: object) -> str:
        """What it says; it must be one line on standard error, and the process must end by itself."""
        own = {key: value for key, value in os.environ.items() if key not in VARIABLES}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "berth.cli.main", "operator", *map(str, arguments)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**own, "HOME": str(self.home), "TMPDIR": str(self.home)},
        )
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                out, said = [part.decode() for part in await process.communicate()]
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert (process.returncode, out) == (1, "")
        assert "Traceback" not in said
        assert said.startswith("berth: ")
        assert said.count("\n") == 1, said
        assert mentioning(str(self.home)) == []
        return said


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


@pytest.fixture
def own_log() -> Iterator[None]:
    """The command sets up the log of its process, which here is the tests'."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """An API server that tells its version and serves nothing."""

    async def reply(line: Line) -> None:
        version = running.asked[-1].path == "/version"
        await (answer(200, {"gitVersion": "v1.34.4"}) if version else refusal(404, "NotFound"))(line)

    async with scripted() as running:
        running.script = [reply] * 1000
        yield running


async def test_no_cluster_at_all(terminal: Terminal) -> None:
    assert "give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster" in await terminal.fails()


async def test_a_kubeconfig_that_cannot_be_read(terminal: Terminal) -> None:
    (terminal.home / "noise").write_bytes(b"\xff{")
    assert "is not YAML" in await terminal.fails("--kubeconfig", terminal.home / "noise")


async def test_no_api_server_there(terminal: Terminal) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening: nobody can be there
        address = f"https://127.0.0.1:{bound.getsockname()[1]}"
        said = await terminal.fails("--kubeconfig", terminal.kubeconfig(address))
    assert f"No API server can be reached at {address}: connection refused." in said


async def test_an_api_server_with_a_certificate_of_somebody_else(terminal: Terminal) -> None:
    authority = terminal.home / "ca.crt"
    authority.write_bytes(Authority("other").pem)
    async with scripted(tls=Authority().server(terminal.home, "127.0.0.1")) as server:
        address = f"https://127.0.0.1:{server.port}"
        config = terminal.kubeconfig(address, **{"certificate-authority": str(authority)})
        assert "its certificate is not trusted" in await terminal.fails("--kubeconfig", config)


async def test_a_busy_port_for_probes(terminal: Terminal, server: Server) -> None:
    config = terminal.kubeconfig(f"http://127.0.0.1:{server.port}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        said = await terminal.fails("--kubeconfig", config, "--health-listen", at)
    assert f"{at} is in use by another process; stop it or choose another with --health-listen." in said


async def test_metrics_over_https_without_a_port_of_their_own(terminal: Terminal, server: Server) -> None:
    Authority().issue("metrics", "127.0.0.1").write(terminal.home, "tls")
    config = terminal.kubeconfig(f"http://127.0.0.1:{server.port}")
    said = await terminal.fails("--kubeconfig", config, "--metrics-cert-dir", terminal.home)
    assert "--metrics-cert-dir needs --metrics-listen" in said


async def test_a_busy_port_for_webhooks(terminal: Terminal, server: Server) -> None:
    config = terminal.kubeconfig(f"http://127.0.0.1:{server.port}")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        said = await terminal.fails("--kubeconfig", config, "--webhook-url", f"https://{at}")
    assert f"{at} is in use by another process; stop it or choose another with --webhook-port." in said
    assert not [asked for asked in server.asked if asked.method != "GET"], "nothing was registered"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--log-level", "loud"], "--log-level must be one of debug, info, warning, error, not 'loud'."),
        (["--dialects", "metal4"], "--dialects names metal4; choose from metal3,"),
        (["--dialects", ","], "--dialects names nothing; choose from metal3,"),
        (["--when-api-is-down", "panic"], "--when-api-is-down must be refuse or admit, not 'panic'."),
        (["--webhook-port", "99999"], "should be less than or equal to 65535"),
        (["--vitistack-pending-seconds", "30"], "--vitistack-pending-seconds must be at least 65, not 30"),
        (["--lease-seconds", "0"], "should be greater than or equal to 1"),
        (["--dialects", "vip,vitistack", "--kubeconfig", "/none"], "give them different lists"),
    ],
)
@pytest.mark.usefixtures("own_log")
def test_a_flag_that_makes_no_sense(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["operator", *arguments])
    assert result.exit_code != 0
    assert sentence in f"{result.output}{result.stderr}{result.exception}"
