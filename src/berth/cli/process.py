"""How a long-running command runs and ends: the event loop, signals, and errors as one sentence."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Coroutine
from typing import Any

import typer

from berth.errors import KubeError, NotLeader, UserError

STOPPED = (signal.SIGTERM, signal.SIGINT)
# Objects come and go by the thousand with every flood, and hardly any is part of a cycle. With Python's own
# numbers (700, 10, 10) a look through all that is cached held up everybody for 50 ms, twice in 1,000 claims.
COLLECT_AFTER = (5_000, 20, 10)


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run the work until it ends, or SIGTERM or Ctrl-C asks it to end cleanly."""
    gc.set_threshold(*COLLECT_AFTER)
    try:
        _loop_runner()(_until_signal(work))
    except BaseExceptionGroup as group:
        _explain(_innermost(group))
    except (UserError, KubeError, NotLeader) as error:
        _explain(error)


def _loop_runner() -> Any:
    """uvloop where it is to be had; the standard loop does the same work, a little slower."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    for number in STOPPED:
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled() and task.done():
            raise


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _explain(error: BaseException) -> None:
    """What a person should read; a bug keeps its traceback."""
    if not isinstance(error, UserError | KubeError | NotLeader):
        raise error
    print(f"berth: {error}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(1)
