"""The ledger is where leases are written and doubles refused; memory only proposes.

`acquire` decides, takes in memory before anything else can run, and commits. If the ledger says that someone
else was faster, memory learns it and the decision is made anew. The only await of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from berth.errors import Taken
from berth.leasing.decide import Decision, Grant, decide
from berth.leasing.model import Claim
from berth.leasing.space import SOMEONE, Space


class Ledger(Protocol):
    async def commit(self, claim: Claim, grant: Grant) -> None:
        """Write the lease, or raise Taken if the block (or one that overlaps it) is another holder's."""

    async def withdraw(self, claim: Claim, grant: Grant) -> None:
        """Remove the lease; success if there is none."""


async def acquire(
    claim: Claim, spaces: Sequence[Space], ledger: Ledger, random: Random | None = None
) -> Decision:
    """A committed grant, what the holder keeps, or a refusal. After any other error memory is as before."""
    while True:
        decision = decide(claim, spaces, random)
        if not isinstance(decision, Grant):
            return decision
        decision.take()
        try:
            await ledger.commit(claim, decision)
        except Taken as taken:
            decision.space.release(decision.block, claim.holder)
            decision.space.adopt(decision.block, taken.holder or SOMEONE)
        except BaseException:
            decision.space.release(decision.block, claim.holder)
            raise
        else:
            return decision
