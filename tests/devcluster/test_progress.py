"""What a person sees while something takes long."""

from __future__ import annotations

import io

from rich.console import Console

from berth.devcluster.progress import Bar, Step, silent

STEPS = [
    Step("downloading", 1),
    Step("downloading", 2),
    Step("compiling etcd", 0, 9),
    Step("compiling etcd", 9, 9),
]


def test_without_a_terminal_each_phrase_is_one_plain_line() -> None:
    screen = io.StringIO()
    with Bar(Console(file=screen, force_terminal=False)) as bar:
        for step in STEPS:
            bar(step)

    assert screen.getvalue() == "downloading …\ncompiling etcd …\n"


def test_on_a_terminal_the_bar_counts() -> None:
    screen = io.StringIO()
    with Bar(Console(file=screen, force_terminal=True, width=120)) as bar:
        for step in STEPS:
            bar(step)

    assert "compiling etcd" in screen.getvalue()
    assert "9/9" in screen.getvalue()


def test_those_who_do_not_want_to_know_hear_nothing() -> None:
    for step in STEPS:
        silent(step)
