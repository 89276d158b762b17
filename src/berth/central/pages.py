"""Two pages for people, whole in themselves: no script, no font and no style from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

STYLE = """ body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0
1rem; color: #222 } h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem } code, pre { font:
14px/1.4 ui-monospace, monospace; background: #f4f4f4; border-radius: 4px } code { padding: 1px 4px } pre {
padding: .8rem; overflow-x: auto } table { border-collapse: collapse; width: 100% } td, th { border-bottom:
1px solid #ddd; padding: 4px 8px; text-align: left; vertical-align: top } .method { background: #234; color:
#fff; padding: 2px 8px } @media (prefers-color-scheme: dark) { body { background: #181a1b; color: #ddd }
code, pre { background: #26292b } td, th { border-color: #444 } a { color: #8bf } }
"""

EXAMPLE = """curl -X POST http://localhost:3000/v2/address -d '{
  "secret": "SuperSecret", "zone": "inet", "ip_family": "ipv4",
  "service": {"service_name": "ingress_inet",
              "namespace_id": "467579ae-b8d5-4524-9ce8-bcb66ee02ce0",
              "cluster_id": "0f3c7805-6b1d-4387-b8c4-b8c5d0e9b878"}}'"""


def _page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


FRONT = _page(
    "IPAM-API",
    "<h1>IPAM-API</h1><p>One ledger of addresses for many clusters. "
    '<a href="/swagger/index.html">Description of the API</a></p>',
)


def description(document: dict[str, Any]) -> str:
    """The OpenAPI document as one page to read."""
    info = document["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>For programs: <a href="/openapi.json">openapi.json</a></p>',
        f"<pre>{escape(EXAMPLE)}</pre>",
    ]
    base = document["servers"][0]["url"]
    for path, methods in document["paths"].items():
        parts += [_operation(method, base + path, operation) for method, operation in methods.items()]
    schemas = document["components"]["schemas"]
    parts += [_schema(name, schema) for name, schema in schemas.items()]
    return _page("IPAM-API", "".join(parts))


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    heading = f'<h2><span class="method">{method.upper()}</span> <code>{escape(path)}</code></h2>'
    return f"{heading}<p>{escape(operation['summary'])}</p><table>{rows}</table>"


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(key)}</code></td><td>{_type(value)}</td>"
        f"<td>{'required' if key in required else ''}</td>"
        f"<td>{escape(value.get('description', ''))}</td></tr>"
        for key, value in schema["properties"].items()
    )
    return f"<h2>{escape(name)}</h2><table>{rows}</table>"


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return escape(value["$ref"].rpartition("/")[2])
    return escape(" or ".join(value["enum"]) if "enum" in value else value["type"])
