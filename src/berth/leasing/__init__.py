"""Decisions: what a claim gets, or why nothing. Pure but for `acquire`, which awaits a ledger."""

from berth.leasing.decide import Decision, Grant, Keep, Refusal, decide
from berth.leasing.ledger import Ledger, acquire
from berth.leasing.model import Claim, Lease, Pool, Reason, Strategy
from berth.leasing.space import SOMEONE, Space
from berth.leasing.usage import Usage

__all__ = [
    "SOMEONE",
    "Claim",
    "Decision",
    "Grant",
    "Keep",
    "Lease",
    "Ledger",
    "Pool",
    "Reason",
    "Refusal",
    "Space",
    "Strategy",
    "Usage",
    "acquire",
    "decide",
]
