"""The YAML that `deploy/` holds: CRDs, RBAC, webhooks and deployments; `berth manifests` prints it.

Rights and webhooks come from the dialects themselves, so that what is installed is what the code asks for.
"""

from __future__ import annotations

from berth.dialects import NEED_NOTHING
from berth.manifests.chart import chart_files
from berth.manifests.options import API, EVERY, OPERATOR, WEBHOOK, Object, Options, render
from berth.manifests.policies import policies
from berth.manifests.rights import plans, rbac
from berth.manifests.rights import webhooks as configurations
from berth.manifests.workloads import api, namespaces, operator

__all__ = [
    "API",
    "EVERY",
    "NEED_NOTHING",
    "OPERATOR",
    "WEBHOOK",
    "Object",
    "Options",
    "api",
    "bundle",
    "chart_files",
    "crds",
    "everything",
    "namespaces",
    "operator",
    "plans",
    "policies",
    "rbac",
    "render",
    "webhooks",
]


def crds(options: Options) -> list[Object]:
    return [crd for dialect in options.chosen() for crd in dialect.crds()]


def webhooks(options: Options) -> list[Object]:
    """Who is asked about what, and what the API server itself refuses with nobody to ask."""
    return [*configurations(options), *policies(options)]


def bundle(options: Options) -> list[Object]:
    """All an operator needs, in one file. The webhooks are registered by the operator itself; the policies
    beside them are not, so that it needs no right to change them.
    """
    rest = [*crds(options), *rbac(options), *policies(options), *_without_namespace(operator(options))]
    return [*namespaces(options), *rest]


def everything(options: Options) -> list[Object]:
    return [*bundle(options), *_without_namespace(api(options))]


def _without_namespace(objects: list[Object]) -> list[Object]:
    return [obj for obj in objects if obj["kind"] != "Namespace"]
