"""What is going on while programs are fetched or built: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


@dataclass(frozen=True, slots=True)
class Step:
    """`what` is a phrase that stays the same while `done` grows; no total: nobody knows."""

    what: str
    done: int = 0
    total: int | None = None


Report = Callable[[Step], None]


def silent(_: Step) -> None:
    """For those who do not want to know."""


class Bar:
    """A Report that draws. One line per phrase, the running one with its bar."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._columns = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._columns.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish()
        self._columns.stop()

    def __call__(self, step: Step) -> None:
        if step.what not in self._tasks:
            self._begin(step)
        count = f"{step.done}/{step.total}" if step.total else str(step.done or "")
        self._columns.update(self._tasks[step.what], completed=step.done, total=step.total, count=count)

    def _begin(self, step: Step) -> None:
        self._finish()
        self._tasks[step.what] = self._columns.add_task(step.what, total=step.total, count="")
        if not self._console.is_terminal:
            self._console.print(f"{step.what} …", highlight=False, soft_wrap=True)

    def _finish(self) -> None:
        """A new phrase means the last one is done, whatever was left of its estimate."""
        for task in self._columns.tasks:
            total = task.total or task.completed or 1
            self._columns.update(task.id, completed=total, total=total)
            self._columns.stop_task(task.id)
