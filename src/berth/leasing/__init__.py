"""Decisions: what a claim gets, or why nothing. Pure: committing them is left to whoever asks."""

from berth.leasing.decide import Decision, Grant, Keep, Refusal, decide
from berth.leasing.model import Claim, Lease, Pool, Quota, Reason, Strategy
from berth.leasing.space import UNKNOWN_HOLDER, Space
from berth.leasing.usage import Usage

__all__ = [
    "UNKNOWN_HOLDER",
    "Claim",
    "Decision",
    "Grant",
    "Keep",
    "Lease",
    "Pool",
    "Quota",
    "Reason",
    "Refusal",
    "Space",
    "Strategy",
    "Usage",
    "decide",
]
