"""`berth operator`: all controllers and webhooks of the enabled dialects."""

from __future__ import annotations

from typing import Annotated

import typer

from berth import log
from berth.cli.options import OPERATORS, Told, dialect_names, operator_settings, taking
from berth.cli.process import run_until_stopped
from berth.dialects import ALL_DIALECTS, DIALECTS, NEED_NOTHING
from berth.run import Listening, operate

EXAMPLES = """
Run all controllers and webhooks of the enabled dialects.

\b
Examples:
  berth operator --kubeconfig ~/.kube/config --dialects metal3
  berth operator --dialects metal3,vip --webhook-url https://127.0.0.1:9443
  BERTH_LEADER_ELECT=true berth operator
"""
ADVICE = " ".join(dialect.advice for dialect in DIALECTS if dialect.advice)


@taking(*OPERATORS)
def operator(
    *,
    dialects: Annotated[
        str,
        typer.Option(
            envvar="BERTH_DIALECTS",
            help=f"Comma list of the dialects to serve, out of {', '.join(ALL_DIALECTS)}. {ADVICE}",
        ),
    ] = ",".join(NEED_NOTHING),
    told: Told,
) -> None:
    log.configure(told["log_level"])
    settings = operator_settings(told, dialects=dialect_names(dialects))
    for dialect in DIALECTS:
        dialect.check(settings)
    run_until_stopped(operate(settings, _say))


operator.__doc__ = EXAMPLES


def _say(listening: Listening) -> None:
    log.get("berth.operator").info(
        "listening", health=listening.health, metrics=listening.metrics, webhook=listening.webhook
    )
