"""Whether a pepper is the one a ledger was sealed with. A server or a command with another would answer
every owner with "no such address", and seal what is new so that the others cannot open it.

The ledger keeps the newest key's id and a check value, which tells nothing of the key: so two servers that
begin on one empty database with files of their own are told apart too, and so are two keys of one id.
"""

from __future__ import annotations

from pathlib import Path

from berth.errors import UserError
from berth.secret import Pepper, load_pepper
from berth.store import kv
from berth.store.engine import Engine, Transaction

MARK = "pepper"
UNKNOWN = "SELECT key_id FROM addresses WHERE key_id <> '' AND NOT key_id = ANY($1) LIMIT 1"
ANY = "SELECT 1 FROM addresses LIMIT 1"


async def fitting_pepper(engine: Engine, path: Path, *, create: bool = True) -> Pepper:
    """The pepper of this file. It is made only for a ledger that has nothing, and was never given another;
    UserError unless it opens everything that is stored.
    """
    async with engine.transaction(slow=True) as tx:
        await tx.migrate_alone()  # one server at a time: the second sees the first one's mark
        empty = not await tx.rows(ANY)
        used = await kv.mark(tx, MARK)
        new = empty and (engine.one_writer or not used)
        pepper = load_pepper(path, create=create and new)
        await _refuse_unfit(tx, pepper, path, "" if new else used)
        if used != pepper.check():
            await kv.set_mark(tx, MARK, pepper.check())
    return pepper


async def _refuse_unfit(tx: Transaction, pepper: Pepper, path: Path, used: str) -> None:
    unknown = await tx.rows(UNKNOWN, pepper.key_ids)
    if unknown:
        raise UserError(
            f"The pepper file {path} is not the one of this ledger: stored secrets need its key "
            f"{unknown[0][0]!r}, which the file does not have. Put the right file there, or "
            "that key's line into this one."
        )
    if used and not pepper.has(used):
        raise UserError(
            f"The pepper file {path} is not the one this ledger is used with (newest key "
            f"{used.partition(' ')[0]!r}): all servers need the same file. Copy it from there; if it is lost "
            "and no address is registered, begin with a new database."
        )
