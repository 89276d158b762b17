"""`berth manifests`: prints the YAML that deploy/ holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from berth import manifests as make
from berth.cli.options import dialect_names
from berth.devcluster.faults import explained
from berth.errors import InvalidText, UserError
from berth.manifests import Options, installers
from berth.net import parse_block

PARTS: dict[str, Callable[[Options], list[dict[str, Any]]]] = {
    "crds": make.crds,
    "rbac": make.rbac,
    "webhooks": make.webhooks,
    "operator": make.operator,
    "api": make.api,
    "bundle": make.bundle,
    "all": make.everything,
}
DIRECTORIES: dict[str, Callable[[Options], dict[str, str]]] = {
    "chart-files": make.chart_files,
    "kustomize": installers.kustomize,
    "clusterctl": installers.clusterctl,
}
DEFAULTS = Options()
USUAL = ",".join(DEFAULTS.dialects)

EXAMPLES = """
Print the YAML to install, or write another installer's files.

Printed: crds, rbac, webhooks, operator, api, bundle (all an operator needs) or all. Written into a directory:
chart-files, kustomize or clusterctl. Without --dialects, all has every dialect and the IPAM-API; the others
have those that need nothing else.

\b
Examples:
  berth manifests bundle --dialects metal3 --image registry.local/berth:0.1.0 | kubectl apply -f -
  berth manifests bundle --dialects vitistack --api-url https://ipam.example.org/v2 | kubectl apply -f -
  berth manifests bundle --dialects metal3 --cert-manager | kubectl apply -f -
  berth manifests bundle --dialects vip --openshift | kubectl apply -f -
  berth manifests all | kubectl apply -f -
  berth manifests clusterctl --image registry.local/berth:0.1.0 --into ipam-metal3/v0.1.0
"""


def manifests(
    part: Annotated[str, typer.Argument(help=", ".join([*PARTS, *DIRECTORIES]))] = "all",
    dialects: Annotated[
        str, typer.Option(help="Comma list of the dialects to serve.", show_default=f"{USUAL}; all of all")
    ] = "",
    namespace: Annotated[str, typer.Option(help="Where operator and API live.")] = DEFAULTS.namespace,
    image: Annotated[str, typer.Option(help="The image, with its registry.")] = DEFAULTS.image,
    replicas: Annotated[int, typer.Option(help="Of the operator.", min=1)] = DEFAULTS.replicas,
    api_url: Annotated[
        str,
        typer.Option(help="The IPAM-API with its /v2, for vitistack.", show_default="the one of all.yaml"),
    ] = "",
    webhook_service: Annotated[
        str, typer.Option(help="Name of the Service that the API server asks.")
    ] = DEFAULTS.webhook_service,
    cert_manager: Annotated[
        bool,
        typer.Option("--cert-manager", help="The webhooks' certificate from cert-manager, not self-made."),
    ] = False,
    openshift: Annotated[
        bool,
        typer.Option(
            "--openshift", help="No user, group or fsGroup of our own: the SCC restricted-v2 chooses them."
        ),
    ] = False,
    api_server_cidrs: Annotated[
        str,
        typer.Option(
            help="Comma list of the API servers' CIDRs: only they are let to the webhooks' port.",
            show_default="anybody",
        ),
    ] = "",
    into: Annotated[Path, typer.Option(help="Of what is written as files: where.")] = Path("."),
    make_namespace: Annotated[
        bool, typer.Option("--make-namespace/--no-make-namespace", help="Include the Namespace object.")
    ] = True,
) -> None:
    if not image:
        raise UserError(f"--image must name the image, for example {DEFAULTS.image}.")
    usual = ",".join(make.EVERY) if part == "all" else USUAL
    options = Options(
        namespace=namespace,
        dialects=dialect_names(dialects or usual),
        image=image,
        replicas=replicas,
        make_namespace=make_namespace,
        api_url=api_url,
        webhook_service=webhook_service,
        cert_manager=cert_manager,
        openshift=openshift,
        api_server_cidrs=tuple(_cidr(text.strip()) for text in api_server_cidrs.split(",") if text.strip()),
    )
    if part in DIRECTORIES:
        _write(into, DIRECTORIES[part](options))
    elif part in PARTS:
        typer.echo(make.render(PARTS[part](options)), nl=False)
    else:
        raise UserError(f"there is no part {part!r}; choose from {', '.join([*PARTS, *DIRECTORIES])}.")


def _cidr(text: str) -> str:
    """A single address is a CIDR too."""
    try:
        return str(parse_block(text))
    except InvalidText as error:
        raise UserError(f"--api-server-cidrs must be CIDRs, for example 10.0.0.0/28: {error}.") from error


def _write(into: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = into / name
        with explained(str(path)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)


manifests.__doc__ = EXAMPLES
