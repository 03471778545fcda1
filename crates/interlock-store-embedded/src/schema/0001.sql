-- The ledger, as decided in docs/adr/0004-ledger-layout.md. Instants are microseconds since 1970; what
-- a row holds is JSON in `body`; other columns exist for keys and for what is searched. Rows that come
-- in masses are keyed by time, and what finds those of one pipeline is bucketed (by hour, by block), so
-- that new entries of all pipelines land on the same few pages.
--
-- There are no foreign keys: the one writing thread gives a name its number before it uses it, and names
-- are never deleted; letting SQLite look again costs a third of the speed. `interlock store check` looks.

-- Numbers for names: every row of a pipeline says its number.
CREATE TABLE names (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- Numbers that only grow, also when what they numbered was deleted: `event`, `inbox`.
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last lease of each role's shard; never deleted, so that terms only grow.
CREATE TABLE leases (
    role TEXT NOT NULL,
    shard INTEGER NOT NULL,
    term INTEGER NOT NULL,
    holder TEXT,
    expires INTEGER NOT NULL,
    PRIMARY KEY (role, shard)
) STRICT, WITHOUT ROWID;

CREATE TABLE pipelines (
    pipeline INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;

CREATE TABLE versions (
    pipeline INTEGER NOT NULL,
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, version)
) STRICT;

CREATE TABLE watermarks (
    pipeline INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, schedule)
) STRICT, WITHOUT ROWID;

-- `disposition` is `open` while a slot is open.
CREATE TABLE slots (
    nominal INTEGER NOT NULL,
    pipeline INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    revision INTEGER NOT NULL,
    disposition TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (nominal, pipeline, schedule)
) STRICT, WITHOUT ROWID;
CREATE INDEX slots_by_hour ON slots (nominal / 3600000000, pipeline, nominal, schedule);
CREATE INDEX slots_open ON slots (pipeline, nominal, schedule) WHERE disposition = 'open';
CREATE INDEX slots_by_disposition ON slots (disposition, nominal)
    WHERE disposition NOT IN ('open', 'completed');

CREATE TABLE spans (
    nominal INTEGER NOT NULL,
    pipeline INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    revision INTEGER NOT NULL,
    last INTEGER NOT NULL,
    disposition TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (nominal, pipeline, schedule)
) STRICT, WITHOUT ROWID;
CREATE INDEX spans_by_last ON spans (last);
CREATE INDEX spans_by_pipeline ON spans (pipeline, last);

CREATE TABLE runs (
    nominal INTEGER NOT NULL,
    pipeline INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    generation INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT NOT NULL,
    trigger_type TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (nominal, pipeline, schedule, generation, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_creation ON runs (created_at);
CREATE INDEX runs_by_hour ON runs (created_at / 3600000000, pipeline, created_at);
CREATE INDEX runs_by_trigger_type ON runs (trigger_type, created_at);
CREATE INDEX runs_by_status ON runs (status, created_at) WHERE status <> 'COMPLETED';

CREATE TABLE sensors (
    pipeline INTEGER NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE incidents (
    pipeline INTEGER NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, key)
) STRICT;
CREATE INDEX incidents_by_time ON incidents (opened_at);
CREATE INDEX incidents_by_pipeline ON incidents (pipeline, opened_at);

CREATE TABLE due (
    at INTEGER NOT NULL,
    pipeline INTEGER NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (at, pipeline, kind, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
    pipeline INTEGER NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    claimed_until INTEGER,
    dead INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, name)
) STRICT;
CREATE INDEX outbox_waiting ON outbox (not_before) WHERE dead = 0;

CREATE TABLE applied (
    pipeline INTEGER NOT NULL,
    key TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (pipeline, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    pipeline INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_block ON events (number / 4096, pipeline);

CREATE TABLE inbox (
    number INTEGER PRIMARY KEY,
    pipeline INTEGER NOT NULL,
    key TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (pipeline, key)
) STRICT;

-- How far each `inbox.db` (by its epoch: somebody may delete the file) was taken over into `inbox`.
CREATE TABLE imports (
    epoch TEXT PRIMARY KEY,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
