"""The ledger's tables as SQL: columns in order, and the statements that write them. PostgreSQL's words;
SQLite's are made from them.
"""

from __future__ import annotations

ADDRESS = "address, pool, uid, key_id, salt, digest, registered_at"
HOLDER = (
    "address, identity, pool, service_name, namespace_id, cluster_id, retention_days, deny, uid, "
    "expires_at, pending, marked_by, expires_before"
)
HISTORY = "at, pool, address, event, effect, service_name, namespace_id, cluster_id, detail"

WIDTH = len(ADDRESS.split(", "))
CHANGE = "id, effect, (SELECT min(id) FROM history), address"  # the third: since when there is history
# Two questions in one, since each is a way to the database and back with the pool locked: how a pool changed
# since a revision, and the named addresses with those the holders are on, each with these holders' entries.
CONCERNED = f"""SELECT {CHANGE}{", NULL" * (WIDTH - 1 + len(HOLDER.split(", ")))}
FROM history WHERE pool = $3 AND id > $4 AND effect <> 0
UNION ALL
SELECT NULL, NULL, NULL, {", ".join("a." + name for name in ADDRESS.split(", "))},
  {", ".join("h." + name for name in HOLDER.split(", "))}
FROM addresses a LEFT JOIN holders h ON h.address = a.address AND h.identity = ANY($1)
WHERE a.address = ANY(ARRAY(SELECT address FROM holders WHERE identity = ANY($1)) || $2::text[])
ORDER BY 1"""
FEED = f"SELECT {CHANGE} FROM history WHERE pool = $1 AND id > $2 AND effect <> 0 ORDER BY id"
INSERT_ADDRESS = f"INSERT INTO addresses ({ADDRESS}) VALUES ($1, $2, $3, $4, $5, $6, $7)"
REPLACE_HASH = "UPDATE addresses SET key_id = $2, salt = $3, digest = $4 WHERE address = $1"
REPLACE_HOLDER = """ON CONFLICT (address, identity) DO UPDATE SET
  retention_days = excluded.retention_days, deny = excluded.deny,
  uid = excluded.uid, expires_at = excluded.expires_at, pending = excluded.pending,
  marked_by = excluded.marked_by, expires_before = excluded.expires_before"""
UPSERT_HOLDER = f"""INSERT INTO holders ({HOLDER})
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
{REPLACE_HOLDER}"""
INSERT_HISTORY = f"INSERT INTO history ({HISTORY}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
INSERT_OUTBOX = "INSERT INTO outbox (at, kind, address, pool, uid) VALUES ($1, $2, $3, $4, $5)"
ADVANCE = """UPDATE pools SET revision = coalesce(
    (SELECT max(id) FROM history WHERE history.pool = pools.key AND history.effect <> 0), revision)
WHERE key = ANY($1) RETURNING key, revision"""
