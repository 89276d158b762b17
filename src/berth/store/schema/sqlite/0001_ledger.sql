-- Times are UTC milliseconds. Addresses are canonical text without a mask.
CREATE TABLE pools (
  key      TEXT PRIMARY KEY,              -- zone/family, e.g. inet/4
  zone     TEXT NOT NULL,
  family   INTEGER NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0     -- newest history id that took or freed an address here
) WITHOUT ROWID;

CREATE TABLE addresses (
  address       TEXT PRIMARY KEY,         -- the row that refuses doubles, over all zones
  pool          TEXT NOT NULL REFERENCES pools (key),
  uid           TEXT NOT NULL,
  key_id        TEXT NOT NULL,
  salt          BLOB NOT NULL,
  digest        BLOB NOT NULL,
  registered_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE holders (
  address        TEXT NOT NULL REFERENCES addresses (address),
  identity       TEXT NOT NULL,           -- digest of the three names
  pool           TEXT NOT NULL,
  service_name   TEXT NOT NULL,
  namespace_id   TEXT NOT NULL,
  cluster_id     TEXT NOT NULL,
  retention_days INTEGER NOT NULL,
  deny           INTEGER NOT NULL,
  uid            TEXT NOT NULL,
  expires_at     INTEGER,
  pending        INTEGER NOT NULL,
  marked_by      TEXT NOT NULL,
  expires_before INTEGER,
  PRIMARY KEY (address, identity)
) WITHOUT ROWID;
CREATE INDEX holders_identity ON holders (identity);
CREATE INDEX holders_cluster ON holders (cluster_id);
CREATE INDEX holders_expiry ON holders (pool, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE history (
  id           INTEGER PRIMARY KEY AUTOINCREMENT,
  at           INTEGER NOT NULL,
  pool         TEXT NOT NULL,
  address      TEXT NOT NULL,
  event        TEXT NOT NULL,
  effect       INTEGER NOT NULL,          -- 1 took the address, -1 freed it, 0 neither
  service_name TEXT NOT NULL,
  namespace_id TEXT NOT NULL,
  cluster_id   TEXT NOT NULL,
  detail       TEXT NOT NULL
);
CREATE INDEX history_address ON history (address, id);
CREATE INDEX history_feed ON history (pool, id) WHERE effect <> 0;

CREATE TABLE duties (                     -- work that one replica at a time does
  name     TEXT PRIMARY KEY,
  holder   TEXT NOT NULL,
  until_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE seen_events (id TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE outbox (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  kind    TEXT NOT NULL,                  -- push or drop
  address TEXT NOT NULL,
  pool    TEXT NOT NULL,
  uid     TEXT NOT NULL,
  tries   INTEGER NOT NULL DEFAULT 0,
  due_at  INTEGER NOT NULL DEFAULT 0
);
