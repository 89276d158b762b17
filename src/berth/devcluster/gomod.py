"""The small go.mod with which one foreign program is built from the module proxy. Pure.

Some modules require their neighbours under a placeholder version (`v0.0.0`) and replace them by directories
of their own repository. Such a replacement holds only inside that repository: whoever requires the module
from outside must say under which version the neighbour is published. The rest is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from berth.devcluster.programs import Module

PLACEHOLDER = "v0.0.0"


def go_mod(module: Module, upstream: dict[str, Any]) -> str:
    """`upstream` is what `go mod edit -json` says about the module's own go.mod."""
    lines = ["module berth/built", "", f"go {upstream['Go']}", ""]
    lines += [f"godebug {setting['Key']}={setting['Value']}" for setting in upstream.get("Godebug") or ()]
    lines += [f"require {module.path} {module.version}", ""]
    lines += _replacements(module, upstream)
    return "\n".join(lines) + "\n"


def _replacements(module: Module, upstream: dict[str, Any]) -> Iterator[str]:
    local = {entry["Old"]["Path"] for entry in upstream.get("Replace") or () if _is_local(entry["New"])}
    for required in upstream.get("Require") or ():
        path = required["Path"]
        if path in local and required["Version"].startswith(PLACEHOLDER):
            yield f"replace {path} => {path} {module.local_version}"


def _is_local(replacement: dict[str, Any]) -> bool:
    return "Version" not in replacement


def link_flags(module: Module) -> str:
    """Smaller files, and the version that the release scripts would have written into them."""
    flags = ["-s", "-w"]
    if module.stamp.startswith("helm.sh/"):
        flags.append(f"-X {module.stamp}.version={module.version}")
    elif module.stamp:
        major, minor, _ = module.version.removeprefix("v").split(".")
        values = {"gitVersion": module.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags += [f"-X {module.stamp}.{name}={value}" for name, value in values.items()]
    return " ".join(flags)
