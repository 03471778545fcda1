-- What an archive has not read yet (docs/adr/0022-archive.md): which row was written or deleted, in the order of commits.
-- Noted only while somebody follows: while `counters` has `followed`, the number after which changes are known.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY,
    pipeline INTEGER NOT NULL,
    key TEXT NOT NULL
) STRICT;
