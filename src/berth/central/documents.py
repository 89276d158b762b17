"""A YAML file that an administrator wrote → plain values, or one sentence with the line. Zones and identities
decide who gets which address, so what YAML would let pass in silence is refused: a key that is there twice.
However hostile the text (nested without end, merged into itself, dates that are none), reading it costs
little, and no sentence quotes it: what stands in the wrong place may be a token.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from berth.errors import UserError, file_fault

MOST_BYTES = 1024 * 1024  # what a ConfigMap or Secret can have
MOST_MERGED = 1000  # keys of one mapping, after `<<`


def read_document(path: Path) -> str:
    """The text of a file; UserError says why it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise UserError(f"cannot be read: it is larger than {MOST_BYTES} bytes")
        return raw.decode()
    except UnicodeDecodeError as cause:
        line = raw[: cause.start].count(b"\n") + 1
        raise UserError(f"cannot be read: line {line} is not UTF-8") from cause
    except OSError as cause:
        raise UserError(f"cannot be read: {file_fault(cause)}") from cause


def parse_document(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as cause:
        raise UserError(f"is not YAML: {_where(cause)}{_problem(cause)}") from cause
    except yaml.reader.ReaderError as cause:
        line = text[: cause.position].count("\n") + 1
        raise UserError(f"is not YAML: line {line} has a character that is not allowed") from cause
    except RecursionError as cause:
        raise UserError("is not YAML we read: it is nested too deeply") from cause


def short(value: Any) -> str:
    """A value for a sentence: a few characters of text, the kind of anything else."""
    if isinstance(value, str):
        return repr(value if len(value) <= 64 else value[:64] + "…")
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    return {dict: "a mapping", list: "a list", int: "a number", float: "a number"}.get(type(value), "a value")


class _Loader(yaml.SafeLoader):
    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """`<<` may be used; merged into itself again and again it would fill the memory."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_MERGED:
            raise yaml.constructor.ConstructorError(
                None, None, f"a mapping has more than {MOST_MERGED} keys", node.start_mark
            )

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            self._refuse_doubles(node)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as cause:  # 5,000 digits, a 13th month, `!!bool maybe`: no YAMLError in PyYAML
            problem = "a value is not what it looks like; quote it"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from cause

    def _refuse_doubles(self, node: yaml.MappingNode) -> None:
        """As they stand in the file: what `<<` brings may be set again."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            if key.value in seen:
                problem = "the same key is there twice in one mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value)


def _where(cause: yaml.MarkedYAMLError) -> str:
    mark = cause.problem_mark or cause.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _problem(cause: yaml.MarkedYAMLError) -> str:
    """PyYAML's words without what it quotes from the file."""
    words = " ".join(str(cause.problem or cause.context).split())
    return re.sub(r"(alias|anchor|tag|handle) '.*", r"\1", words)
