-- Backfills (docs/adr/0012-backfill.md). There are few; those that their owner still has something to do with are
-- asked for at each start.
CREATE TABLE backfills (
    pipeline INTEGER NOT NULL,
    number INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    unfinished INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX backfills_unfinished ON backfills (pipeline, number) WHERE unfinished <> 0;
