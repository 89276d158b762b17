"""A dialect is one folder: outside of it, no code names it but the tuple of all.

Prose may: help texts and their examples are for people, who want to read a real name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import berth
from berth.dialects import ALL_DIALECTS

SOURCE = Path(berth.__file__).parent
TUPLE = SOURCE / "dialects" / "__init__.py"
MEANT = {
    ("central/settings.py", "vitistack:ipam-api"),  # the source in Splunk: upstream's, and searched for
}


def test_no_code_outside_its_folder_names_a_dialect() -> None:
    folders = [SOURCE / "dialects" / name for name in ALL_DIALECTS]
    found = [
        (str(path.relative_to(SOURCE)), word)
        for path in sorted(SOURCE.rglob("*.py"))
        if path != TUPLE and not any(folder in path.parents for folder in folders)
        for word in _words(ast.parse(path.read_text()))
        if _parts(word) & set(ALL_DIALECTS)
    ]
    assert set(found) == MEANT


def test_every_dialect_has_what_the_commands_reach_it_by() -> None:
    files = ("__init__", "kinds", "reconcile", "view", "examples")
    wanted = [SOURCE / "dialects" / name / f"{file}.py" for name in ALL_DIALECTS for file in files]
    assert [path for path in wanted if not path.is_file()] == []


def _words(tree: ast.Module) -> Iterator[str]:
    """Names, modules, and texts without a blank: those are compared, keyed and sent, and not read."""
    documents = {id(node.body[0].value) for node in ast.walk(tree) if _is_documented(node)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in documents and not re.search(r"\s", text):
                yield text
            case _:
                pass


def _is_documented(node: ast.AST) -> bool:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return isinstance(node, kinds) and ast.get_docstring(node) is not None


def _parts(word: str) -> set[str]:
    """`VipSettings` and `vip_classes` are both about vip."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word)
    return set(re.split(r"[^a-z0-9]+", apart.lower()))
