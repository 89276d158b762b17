-- Who speaks for a cluster: one row per operator process that reports its inventory.
CREATE TABLE operators (
  cluster_id TEXT NOT NULL,
  epoch      TEXT NOT NULL,               -- made anew by every process
  sequence   BIGINT NOT NULL,             -- number of its newest report
  first_at   BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL,
  live_until BIGINT NOT NULL,
  missing    TEXT NOT NULL,               -- JSON: what that report listed and the ledger did not have
  PRIMARY KEY (cluster_id, epoch)
);
