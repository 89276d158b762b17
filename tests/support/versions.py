"""The version before and the version after this one, as programs for `start_api`.

The one before knows only the first schema and nothing that came later; the one after brings a migration of
its own. Both are this version's code with exactly that difference, since what has to fit is how they share a
store.
"""

from __future__ import annotations

from tests.support.started import PROGRAM

BEFORE = f"""
from berth.central import sweep
from berth.store import migrate, operators

known = migrate.migrations
migrate.migrations = lambda engine_name: known(engine_name)[:1]

async def nobody(*_):
    return frozenset()

operators.frozen = nobody
sweep.all_frozen = nobody
operators.PRUNE = "DELETE FROM seen_events WHERE id = '' AND at < $1"
{PROGRAM}
"""

AFTER = f"""
from berth.store import migrate

known = migrate.migrations
NEXT = '''
ALTER TABLE holders ADD COLUMN note TEXT NOT NULL DEFAULT '';
CREATE INDEX holders_service ON holders (service_name);
CREATE TABLE later (name TEXT PRIMARY KEY);
'''
migrate.migrations = lambda engine_name: [*known(engine_name), migrate.SchemaStep(9999, "later", NEXT)]
{PROGRAM}
"""
