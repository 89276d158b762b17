"""A kind of object and where it lives: group, version, kind, plural, scope → URL path.

The column's smallest piece; `client.py` asks it for every path and nobody else builds one.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind as the API server serves it; the core group is the empty string."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> str:
        """Unique among kinds whatever their version: the name the CustomResourceDefinition would have."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The object's path, the collection's without a name, all namespaces' without a namespace."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if namespace and self.namespaced:
            path = f"{path}/namespaces/{_segment(namespace)}"
        path = f"{path}/{self.plural}"
        if name:
            path = f"{path}/{_segment(name)}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return self.key


def _segment(name: str) -> str:
    # Names are DNS labels almost always; RBAC's may hold a colon, and a slash must never become a path.
    return quote(name, safe="-.:")
