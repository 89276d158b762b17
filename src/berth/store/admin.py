"""What only an administrator does to one address: give it another secret when the old one is lost."""

from __future__ import annotations

from berth.errors import UserError
from berth.secret import Pepper, Secret
from berth.store import rows, statement
from berth.store.engine import Engine
from berth.store.requests import zone_of
from berth.store.rows import HistoryRow

NOT_FOUND = "no matching address found with the provided secret, zone and address"


async def replace_secret(
    engine: Engine, pepper: Pepper, where: tuple[str, str], secret: Secret, *, force: bool = False
) -> None:
    """In one transaction. An address that several services use needs `force`: each of them must be told."""
    address, zone = where
    async with engine.transaction(slow=True) as tx:
        now = (await tx.lock(None)).now
        found = await rows.addresses(tx, [address])
        if not found or zone_of(found[0].pool) != zone:
            raise UserError(NOT_FOUND)
        count = len(await rows.holders_by(tx, "address", [address]))
        if count > 1 and not force:
            raise UserError(
                f"{count} services use this address; with --force all of them need the new secret."
            )
        hashed = pepper.hash(secret)
        await tx.rows(statement.REPLACE_HASH, address, hashed.key_id, hashed.salt, hashed.digest)
        await rows.record(tx, [HistoryRow(now, found[0].pool, address, "secret replaced", 0, None, "cli")])
