-- Who speaks for a cluster: one row per operator process that reports its inventory.
CREATE TABLE operators (
  cluster_id TEXT NOT NULL,
  epoch      TEXT NOT NULL,               -- made anew by every process
  sequence   INTEGER NOT NULL,            -- number of its newest report
  first_at   INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,
  live_until INTEGER NOT NULL,
  missing    TEXT NOT NULL,               -- JSON: what that report listed and the ledger did not have
  PRIMARY KEY (cluster_id, epoch)
) WITHOUT ROWID;
