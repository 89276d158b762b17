"""The sorted set of ints beside a plain one, with chunks small enough to split and vanish."""

from __future__ import annotations

from random import Random

import pytest

from berth.net import sortedints
from berth.net.sortedints import SortedInts


@pytest.mark.parametrize("seed", range(8))
def test_it_agrees_with_a_plain_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sortedints, "CHUNK", 4)
    random = Random(seed)
    plain = set(random.sample(range(300), 30))
    ours = SortedInts(plain)
    for _ in range(600):
        value = random.randrange(300)
        assert (value in ours) == (value in plain)
        assert ours.at_or_after(value) == min((one for one in plain if one >= value), default=None)
        if value in plain:
            plain.remove(value)
            ours.remove(value)
        elif random.random() < 0.6:
            plain.add(value)
            ours.add(value)
        assert ours.lowest() == min(plain, default=None)
        assert list(ours) == sorted(plain)
    assert len(ours) == len(plain)


def test_an_empty_one_has_nothing() -> None:
    empty = SortedInts()
    assert not empty
    assert empty.lowest() is None
    assert empty.at_or_after(0) is None
    assert 0 not in empty
