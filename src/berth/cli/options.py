"""The options of commands, out of the settings' own words (settings.py): a look at a cluster is told what its
operator was told, by the same flags and environment names.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from berth.dialects import ALL_DIALECTS, DIALECTS
from berth.errors import UserError
from berth.settings import Option, Settings, filled, options

Told = Mapping[str, Any]  # by the names of options
OPERATORS: tuple[type, ...] = (Settings, *(dialect.settings for dialect in DIALECTS))


def taking(*kinds: type, look: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with an option for each of these settings, where its parameter `told` stands."""
    found = [parameter(option, typed) for kind in kinds for option, typed in options(kind, look)]

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            told = {one.name: values.pop(one.name) for one in found}
            command(**values, told=told)

        signature = inspect.signature(command, eval_str=True)
        own = list(signature.parameters.values())
        at = [one.name for one in own].index("told")
        every = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own[:at], *found, *own[at + 1 :])]
        run.__signature__ = signature.replace(parameters=every)  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return wrapped


def parameter(option: Option, typed: Any) -> inspect.Parameter:
    told = typer.Option(
        option.flag, envvar=list(option.environment), help=option.help, min=option.least, max=option.most
    )
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[typed, told]
    )


def operator_settings(told: Told, **more: Any) -> Settings:
    parts = tuple(filled(dialect.settings, told) for dialect in DIALECTS)
    return filled(Settings, told, parts=parts, **more)


def dialect_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in ALL_DIALECTS]
    if unknown or not names:
        wrong = ", ".join(unknown) or "nothing"
        raise UserError(f"--dialects names {wrong}; choose from {', '.join(ALL_DIALECTS)}.")
    return names
