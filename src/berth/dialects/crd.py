"""CustomResourceDefinitions as Python: the few shapes all dialects' schemas are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth.kube.resource import Resource

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Names:
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Crd:
    resource: Resource
    schema: Schema
    columns: tuple[Schema, ...] = ()
    names: Names = Names()
    labels: Mapping[str, str] = field(default_factory=dict)
    status: bool = True

    def manifest(self) -> Schema:
        resource = self.resource
        names: Schema = {
            "kind": resource.kind,
            "listKind": f"{resource.kind}List",
            "plural": resource.plural,
            "singular": resource.kind.lower(),
        }
        if self.names.short:
            names["shortNames"] = list(self.names.short)
        if self.names.categories:
            names["categories"] = list(self.names.categories)
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": resource.key, **({"labels": dict(self.labels)} if self.labels else {})},
            "spec": {
                "group": resource.group,
                "names": names,
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "versions": [self._version()],
            },
        }

    def _version(self) -> Schema:
        version: Schema = {
            "name": self.resource.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": self.schema},
        }
        if self.columns:
            version["additionalPrinterColumns"] = list(self.columns)
        if self.status:
            version["subresources"] = {"status": {}}
        return version


def text(description: str = "", **rules: Any) -> Schema:
    return _described({"type": "string", **rules}, description)


def integer(description: str = "", **rules: Any) -> Schema:
    return _described({"type": "integer", **rules}, description)


def boolean(description: str = "") -> Schema:
    return _described({"type": "boolean"}, description)


def listing(items: Schema, description: str = "", **rules: Any) -> Schema:
    return _described({"type": "array", "items": items, **rules}, description)


def mapping(values: Schema, description: str = "", **rules: Any) -> Schema:
    return _described({"type": "object", "additionalProperties": values, **rules}, description)


def record(
    properties: Mapping[str, Schema], required: Sequence[str] = (), description: str = "", **rules: Any
) -> Schema:
    schema: Schema = {"type": "object", "properties": dict(properties), **rules}
    if required:
        schema["required"] = list(required)
    return _described(schema, description)


def root(spec: Schema, status: Schema | None = None, required: Sequence[str] = (), **rules: Any) -> Schema:
    properties: dict[str, Schema] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
    }
    if status is not None:
        properties["status"] = status
    return record(properties, required, **rules)


def checked(schema: Schema, *rules: Schema) -> Schema:
    return {**schema, "x-kubernetes-validations": list(rules)}


def atomic(schema: Schema) -> Schema:
    """One value as a whole: no field ownership per key."""
    return {**schema, "x-kubernetes-map-type": "atomic"}


def rule(expression: str, message: str, **more: Any) -> Schema:
    """A CEL rule: it holds also while no webhook answers."""
    return {"rule": expression, "message": message, **more}


def column(name: str, path: str, kind: str = "string", **more: Any) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, **more}


AGE = column("Age", ".metadata.creationTimestamp", "date")


def conditions() -> Schema:
    """The standard list of conditions, keyed by type."""
    fields = {
        "type": text(maxLength=316),
        "status": text(enum=["True", "False", "Unknown"]),
        "reason": text(maxLength=1024, minLength=1),
        "message": text(maxLength=32768),
        "lastTransitionTime": text(format="date-time"),
        "observedGeneration": integer(format="int64", minimum=0),
    }
    required = ("type", "status", "reason", "message", "lastTransitionTime")
    found = listing(record(fields, required), "What the operator found, by type.")
    return {**found, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema
