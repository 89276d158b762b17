"""`berth manifests`: prints the YAML that deploy/ holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from berth import manifests as make
from berth.cli.operator import dialect_names
from berth.errors import UserError
from berth.manifests import Options

PARTS: dict[str, Callable[[Options], list[dict[str, Any]]]] = {
    "crds": make.crds,
    "rbac": make.rbac,
    "webhooks": make.webhooks,
    "operator": make.operator,
    "api": make.api,
    "bundle": make.bundle,
    "all": make.everything,
}
DEFAULTS = Options()

EXAMPLES = """
Print the YAML to install: crds, rbac, webhooks, operator, api, bundle (all an operator needs) or all.

\b
Examples:
  berth manifests all | kubectl apply -f -
  berth manifests bundle --dialects metal3 --image registry.local/berth:0.1.0 | kubectl apply -f -
"""


def manifests(
    part: Annotated[str, typer.Argument(help=", ".join([*PARTS, "chart-files"]))] = "all",
    dialects: Annotated[str, typer.Option(help="Comma list of the dialects to serve.")] = ",".join(
        DEFAULTS.dialects
    ),
    namespace: Annotated[str, typer.Option(help="Where operator and API live.")] = DEFAULTS.namespace,
    image: Annotated[str, typer.Option(help="The image, with its registry.")] = DEFAULTS.image,
    replicas: Annotated[int, typer.Option(help="Of the operator.")] = DEFAULTS.replicas,
    into: Annotated[Path, typer.Option(help="chart-files only: the chart's directory.")] = Path("."),
    make_namespace: Annotated[
        bool, typer.Option("--make-namespace/--no-make-namespace", help="Include the Namespace object.")
    ] = True,
) -> None:
    if part == "chart-files":
        _write_chart(into, dialect_names(dialects))
        return
    if part not in PARTS:
        raise UserError(f"there is no part {part!r}; choose from {', '.join(PARTS)}.")
    options = Options(namespace, dialect_names(dialects), image, replicas, make_namespace)
    typer.echo(make.render(PARTS[part](options)), nl=False)


def _write_chart(into: Path, names: tuple[str, ...]) -> None:
    for name, content in make.chart_files(Options(dialects=names)).items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


manifests.__doc__ = EXAMPLES
