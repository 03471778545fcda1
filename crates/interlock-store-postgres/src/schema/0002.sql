-- What an archive has not read yet (docs/adr/0022-archive.md): which row was written or deleted, in the order of commits.
-- Noted only while somebody follows: while `since` of the counter says after which number changes are known.
ALTER TABLE @counters ADD COLUMN since int8;

CREATE TABLE @changes (
    number int8 PRIMARY KEY,
    kind text COLLATE "C" NOT NULL,
    pipeline text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL
);
