"""`berth devcluster`: the real control plane for trying and testing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from berth.cli.tables import print_table
from berth.devcluster import Binaries, ClusterOptions, DevCluster
from berth.devcluster.crds import prepare_cluster_api_crds
from berth.devcluster.keep import Keeper
from berth.devcluster.kept import KeptCluster, KeptClusters
from berth.devcluster.programs import CORE, EVERYTHING
from berth.devcluster.progress import Bar
from berth.errors import UserError

EXAMPLES = """
A real kube-apiserver and etcd on this machine.

For trying and testing; no containers, no root.

\b
  berth devcluster start                      until Ctrl-C
  berth devcluster start --background         until `berth devcluster stop`
  export KUBECONFIG=$(berth devcluster kubeconfig)
  berth devcluster start --background --name other --controllers '*'
  berth devcluster list
  berth devcluster prepare                    fetch or build every program beforehand
"""

app = typer.Typer(help=EXAMPLES, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Which of the clusters in the background.")]


@app.command()
def start(
    background: Annotated[bool, typer.Option("--background", help="Return when it serves.")] = False,
    name: Annotated[str, typer.Option(help="Of the cluster in the background.")] = "default",
    port: Annotated[int, typer.Option(help="Of the API server; 0: any free one.", min=0, max=65535)] = 0,
    directory: Annotated[
        Path | None, typer.Option(help="Keep the data here; a later start finds it again.")
    ] = None,
    durable: Annotated[bool, typer.Option("--durable", help="Sync every write to disk.")] = False,
    controllers: Annotated[
        str, typer.Option(help="Also run kube-controller-manager with these controllers ('*' for all).")
    ] = "",
) -> None:
    """Start a control plane and print its kubeconfig."""
    names = [*CORE, "kube-controller-manager"] if controllers else CORE
    with Bar() as bar:
        _run(Binaries.prepare(names, bar))
    options = ClusterOptions(directory=directory, port=port, durable=durable)
    if background:
        _start_in_background(name, options, controllers)
    else:
        _start_in_foreground(options, controllers)


def _start_in_background(name: str, options: ClusterOptions, controllers: str) -> None:
    if options.directory:
        raise UserError("--background keeps its data under its name: leave --directory away, or --background")
    kept = KeptClusters.of(os.environ).named(name)
    kept.start(options, controllers)
    typer.echo(f"The control plane runs in the background as {name}.")
    _say_how_to_use(kept.kubeconfig)
    typer.echo(f"Stop it with: berth devcluster stop {name}")


def _start_in_foreground(options: ClusterOptions, controllers: str) -> None:
    def on_ready(cluster: DevCluster) -> None:
        typer.echo(f"The control plane is ready at {cluster.api_url}")
        _say_how_to_use(cluster.kubeconfig)
        typer.echo("Ctrl-C stops it.")

    if not asyncio.run(Keeper(options, on_ready, controllers).keep()):
        raise typer.Exit(130)


def _say_how_to_use(kubeconfig: Path) -> None:
    kubectl = Binaries.locate(["kubectl"]).found["kubectl"]
    typer.echo(f"  export KUBECONFIG={kubeconfig}")
    if kubectl.origin != "PATH":
        typer.echo(f"  export PATH=$PATH:{kubectl.path.parent}")


@app.command()
def stop(name: Name = "default") -> None:
    """Stop a cluster in the background and remove its data."""
    kept = KeptClusters.of(os.environ).named(name)
    if not kept.directory.exists():
        raise UserError(
            f"there is no dev cluster named {name}: `berth devcluster list` shows which there are"
        )
    kept.stop()
    typer.echo(f"{name} is stopped and removed.")


@app.command()
def kubeconfig(name: Name = "default") -> None:
    """Print the path of a running cluster's kubeconfig."""
    typer.echo(KeptClusters.of(os.environ).running(name).kubeconfig)


@app.command("list")
def list_() -> None:
    """Show the clusters in the background."""
    rows = [
        (kept.name, _state(kept), str(kept.pid or "-"), str(kept.kubeconfig))
        for kept in KeptClusters.of(os.environ).all()
    ]
    print_table(("NAME", "STATE", "PID", "KUBECONFIG"), rows)


def _state(kept: KeptCluster) -> str:
    return "ready" if kept.ready else "starting" if kept.pid else "stopped"


@app.command()
def prepare(
    programs: Annotated[
        list[str] | None, typer.Argument(help="Only these; all that the tests need if none is named.")
    ] = None,
) -> None:
    """Fetch or build the programs into the cache. The first time takes about ten minutes on two cores."""
    with Bar() as bar:
        binaries = _run(_prepare(programs or list(EVERYTHING), bar))
    rows = [(name, found.origin, str(found.path)) for name, found in binaries.found.items()]
    print_table(("PROGRAM", "FROM", "PATH"), rows)


async def _prepare(names: list[str], bar: Bar) -> Binaries:
    binaries = await Binaries.prepare(names, bar)
    if "clusterctl" in names:
        await prepare_cluster_api_crds(bar)
    return binaries


def _run(work: Coroutine[Any, Any, Binaries]) -> Binaries:
    """To its end, or until SIGTERM or Ctrl-C, which end the compilers too."""
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        raise typer.Exit(143) from None


async def _cancelled_by_sigterm(work: Coroutine[Any, Any, Binaries]) -> Binaries:
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
