"""Whole directories for other installers: a kustomize base, and a provider as clusterctl looks for one.

    deploy/kustomize/operator   CRDs, rights, Deployment       deploy/kustomize/api   the IPAM-API
    deploy/clusterctl/metadata.yaml, ipam-components.yaml      `clusterctl init --ipam …`

The objects are those of manifests.py; here they only get the names, labels and files each tool expects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from berth import __version__
from berth import manifests as make
from berth.dialects import DIALECTS
from berth.manifests import Options

Object = dict[str, Any]
CONTRACT = "v1beta2"  # of Cluster API, which 1.11 and later speak
PROVIDER_LABEL = "cluster.x-k8s.io/provider"
IMAGE_VARIABLE = (
    "${BERTH_IMAGE}"  # clusterctl wants a name with its registry, and fills this in from the user's
)


def kustomize(options: Options) -> dict[str, str]:
    """Two bases; the namespace comes with the operator, so the API's is the same one."""
    operator = {
        "crds.yaml": make.crds(options),
        "rbac.yaml": make.rbac(options),
        "policies.yaml": make.policies(options),
        "operator.yaml": make.operator(options),
    }
    api = {"api.yaml": [obj for obj in make.api(options) if obj["kind"] != "Namespace"]}
    return {**_base("operator", operator, options), **_base("api", api, options)}


def _base(name: str, files: dict[str, list[Object]], options: Options) -> dict[str, str]:
    listed: Object = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
        "images": [_image(options.image)],
    }
    rendered = {f"{name}/{file}": make.render(objects) for file, objects in files.items()}
    return {**rendered, f"{name}/kustomization.yaml": make.render([listed])}


def _image(image: str) -> Object:
    """Listed although nothing changes, so that an overlay's author sees which name to set."""
    name, _, tag = image.rpartition(":")
    return {"name": name, "newName": name, "newTag": tag}


def clusterctl(options: Options) -> dict[str, str]:
    """The files of one release, for the one dialect that clusterctl knows."""
    image = options.image if "/" in options.image else IMAGE_VARIABLE
    [(name, provider)] = [(known.name, known.provider) for known in DIALECTS if known.provider]
    chosen = replace(options, namespace=provider.namespace, dialects=(name,), image=image)
    components = [_labelled(obj, provider.name) for obj in make.bundle(chosen)]
    return {"metadata.yaml": make.render([_metadata()]), "ipam-components.yaml": make.render(components)}


def _metadata() -> Object:
    major, minor, _ = (int(part) for part in __version__.split("."))
    series = {"major": major, "minor": minor, "contract": CONTRACT}
    return {
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [series],
    }


def _labelled(obj: Object, provider: str) -> Object:
    """Every object belongs to the provider, and a CRD says which of its versions fits the contract."""
    labels = {**obj["metadata"].get("labels", {}), PROVIDER_LABEL: provider}
    if obj["kind"] == "CustomResourceDefinition":
        served = [version["name"] for version in obj["spec"]["versions"] if version["served"]]
        labels[f"cluster.x-k8s.io/{CONTRACT}"] = "_".join(served)
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}}
