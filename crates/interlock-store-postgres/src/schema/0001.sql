-- The ledger on PostgreSQL, as decided in docs/adr/0020-postgres.md. `@` stands for the schema. Instants are
-- microseconds since 1970; what a row holds is JSON in `body`; other columns exist for keys and for what is
-- ordered and searched. Every kind of row is a table of its own (`slots`, `runs`, …), a partition of `rows`:
-- a group of any kinds is written by one statement, and each kind has the indexes that it needs.
-- Text is compared by bytes, as everywhere in Interlock.

-- `shards`: how many there are; fixed.
CREATE TABLE @about (
    name text PRIMARY KEY,
    value text NOT NULL
);

-- Numbers that only grow, in the order of commits: who takes one holds its row until it has committed.
CREATE TABLE @counters (
    name text PRIMARY KEY,
    value int8 NOT NULL
);
INSERT INTO @counters VALUES ('event', 0);

-- The last lease of each role's shard; all there from the beginning, never deleted, so that terms only grow.
-- Whoever writes to a shard locks its rows first: that is what makes preconditions and terms hold.
CREATE TABLE @leases (
    shard int4 NOT NULL,
    role text NOT NULL,
    term int8 NOT NULL DEFAULT 0,
    holder text,
    expires_ms int8 NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, role)
) WITH (fillfactor = 20);

CREATE TABLE @rows (
    kind text COLLATE "C" NOT NULL,
    pipeline text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    shard int4 NOT NULL,
    revision int8 NOT NULL,
    at_us int8 NOT NULL,
    until_us int8,
    name text COLLATE "C" NOT NULL,
    rank int8 NOT NULL,
    word text COLLATE "C" NOT NULL,
    more text COLLATE "C" NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (pipeline, key, kind)
) PARTITION BY LIST (kind);

CREATE TABLE @pipelines PARTITION OF @rows FOR VALUES IN ('pipeline');
CREATE INDEX pipelines_of ON @pipelines (shard, pipeline);

CREATE TABLE @versions PARTITION OF @rows FOR VALUES IN ('version');
CREATE TABLE @watermarks PARTITION OF @rows FOR VALUES IN ('watermark') WITH (fillfactor = 70);

-- `word` is `open` while a slot is open, then its disposition.
CREATE TABLE @slots PARTITION OF @rows FOR VALUES IN ('slot');
CREATE INDEX slots_by_time ON @slots (at_us, pipeline, name);
CREATE INDEX slots_of ON @slots (pipeline, at_us, name);
CREATE INDEX slots_open ON @slots (shard, pipeline, at_us, name) WHERE word = 'open';
CREATE INDEX slots_by_word ON @slots (word, at_us) WHERE word NOT IN ('open', 'completed');

-- `until_us` is the last of them.
CREATE TABLE @spans PARTITION OF @rows FOR VALUES IN ('span');
CREATE INDEX spans_by_until ON @spans (until_us);
CREATE INDEX spans_of ON @spans (pipeline, until_us);

-- `at_us` is when it was made, `until_us` its slot, `rank` its generation and attempt.
CREATE TABLE @runs PARTITION OF @rows FOR VALUES IN ('run');
CREATE INDEX runs_by_time ON @runs (at_us, pipeline, name, until_us, rank);
CREATE INDEX runs_of ON @runs (pipeline, at_us);
CREATE INDEX runs_by_slot ON @runs (until_us, name);
CREATE INDEX runs_by_word ON @runs (word, at_us) WHERE word <> 'COMPLETED';
CREATE INDEX runs_by_more ON @runs (more, at_us);

CREATE TABLE @sensors PARTITION OF @rows FOR VALUES IN ('sensor');

CREATE TABLE @incidents PARTITION OF @rows FOR VALUES IN ('incident');
CREATE INDEX incidents_by_time ON @incidents (at_us);
CREATE INDEX incidents_of ON @incidents (pipeline, at_us);
CREATE INDEX incidents_open ON @incidents (shard, pipeline, name) WHERE word <> 'resolved';

CREATE TABLE @due PARTITION OF @rows FOR VALUES IN ('due');
CREATE INDEX due_by_time ON @due (shard, at_us, pipeline);

-- `at_us` is when it may be tried, `until_us` until when it is claimed.
CREATE TABLE @outbox PARTITION OF @rows FOR VALUES IN ('outbox');
CREATE INDEX outbox_waiting ON @outbox (at_us, pipeline, key) WHERE word = 'waiting';
CREATE INDEX outbox_dead ON @outbox (at_us) WHERE word = 'dead';

CREATE TABLE @applied PARTITION OF @rows FOR VALUES IN ('applied');
CREATE TABLE @backfills PARTITION OF @rows FOR VALUES IN ('backfill');

CREATE TABLE @events (
    number int8 PRIMARY KEY,
    pipeline text COLLATE "C" NOT NULL,
    body text NOT NULL
);
CREATE INDEX events_of ON @events (pipeline, number);

CREATE TABLE @inbox (
    number int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    shard int4 NOT NULL,
    pipeline text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    received_ms int8 NOT NULL,
    body text NOT NULL,
    UNIQUE (pipeline, key)
);
CREATE INDEX inbox_of ON @inbox (shard, number);
