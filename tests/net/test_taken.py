"""Bitmaps in levels beside a plain set of numbers."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.deep import budget

from berth.net.taken import TakenSet


class TakenMachine(RuleBasedStateMachine):
    """Sizes around the edges of the levels, and runs that fill whole levels."""

    @initialize(size=st.sampled_from([1, 63, 64, 65, 130, 4096, 4100, 9000]))
    def begin(self, size: int) -> None:
        self.size = size
        self.ours = TakenSet(size)
        self.plain: set[int] = set()

    def next_free(self, number: int) -> int | None:
        return next((one for one in range(number, self.size) if one not in self.plain), None)

    @rule(number=st.integers(0, 9000), times=st.sampled_from([1, 2, 70]))
    def add(self, number: int, times: int) -> None:
        for one in range(number % self.size, min(number % self.size + times, self.size)):
            assert self.ours.add(one) == (one not in self.plain)
            self.plain.add(one)

    @rule(times=st.sampled_from([1, 65]))
    def add_the_lowest(self, times: int) -> None:
        for _ in range(times):
            lowest = self.ours.lowest_free()
            assert lowest == self.next_free(0)
            if lowest is not None:
                assert self.ours.add(lowest)
                self.plain.add(lowest)

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.plain)))
        self.ours.remove(number)
        self.plain.remove(number)

    @rule(first=st.integers(0, 9000), length=st.sampled_from([1, 64, 100, 4096, 5000]))
    def add_run(self, first: int, length: int) -> None:
        run = range(first % self.size, min(first % self.size + length, self.size))
        if self.plain.isdisjoint(run):
            self.ours.add_run(run[0], run[-1])
            self.plain.update(run)

    @rule(first=st.integers(0, 9000), length=st.sampled_from([1, 64, 100, 4096, 5000]))
    def remove_run(self, first: int, length: int) -> None:
        run = range(first % self.size, min(first % self.size + length, self.size))
        if self.plain.issuperset(run):
            self.ours.remove_run(run[0], run[-1])
            self.plain.difference_update(run)

    @rule(number=st.integers(0, 9000))
    def look(self, number: int) -> None:
        number %= self.size
        assert self.ours.is_taken(number) == (number in self.plain)
        assert self.ours.free_at_or_after(number) == self.next_free(number)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "ours"):
            assert self.ours.count == len(self.plain)
            runs = list(self.ours.runs())
            assert sum(last - first + 1 for first, last in runs) == len(self.plain)
            assert self.plain.issuperset(first for first, _ in runs)


TestTaken = TakenMachine.TestCase
TestTaken.settings = budget(60, steps=30)


def test_a_set_of_2_to_the_128_takes_and_frees_its_ends_and_its_whole() -> None:
    taken = TakenSet(1 << 128)
    taken.add_run(0, (1 << 128) - 1)
    assert taken.lowest_free() is None
    assert taken.count == 1 << 128
    taken.remove((1 << 128) - 1)
    taken.remove(1 << 77)
    assert taken.lowest_free() == 1 << 77
    assert taken.free_at_or_after((1 << 77) + 1) == (1 << 128) - 1
    assert taken.add(1 << 77)
    assert taken.add((1 << 128) - 1)
    taken.remove_run(0, (1 << 128) - 1)
    assert list(taken.runs()) == []
