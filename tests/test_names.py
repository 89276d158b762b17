"""One word for one idea: a class name is used once in all of src."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "berth"


def test_a_class_name_is_used_once_in_all_of_src() -> None:
    found = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(file.relative_to(SOURCE)))
    double = {name: files for name, files in found.items() if len(files) > 1}
    assert not double
