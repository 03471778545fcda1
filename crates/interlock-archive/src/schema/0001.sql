-- The archive, as decided in docs/adr/0022-archive.md. `@` stands for the schema.

-- How far each kind of data was read; moved in the transaction that writes the rows.
CREATE TABLE @cursors (
    name text PRIMARY KEY,
    place text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO @cursors (name, place) VALUES ('events', '0'), ('changes', '0'), ('rows', 'at ');

-- Appended, never changed.
CREATE TABLE @events (
    number int8 PRIMARY KEY,
    pipeline_id text NOT NULL,
    kind text NOT NULL,
    at timestamptz NOT NULL,
    slot text,
    run_id text,
    message text NOT NULL,
    details jsonb NOT NULL
);
CREATE INDEX events_of ON @events (pipeline_id, at);
CREATE INDEX events_by_kind ON @events (kind, at);

-- One attempt at a slot.
CREATE TABLE @runs (
    run_id text PRIMARY KEY,
    pipeline_id text NOT NULL,
    schedule_id text NOT NULL,
    slot timestamptz NOT NULL,
    generation int4 NOT NULL,
    attempt int4 NOT NULL,
    status text NOT NULL,
    trigger_type text NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    ended_at timestamptz,
    message text,
    failure_category text,
    metadata jsonb NOT NULL
);
CREATE INDEX runs_of ON @runs (pipeline_id, created_at);

-- The last slot of each schedule's date.
CREATE TABLE @run_logs (
    pipeline_id text NOT NULL,
    date date NOT NULL,
    schedule_id text NOT NULL,
    slot timestamptz NOT NULL,
    status text NOT NULL,
    attempt int4 NOT NULL,
    run_id text,
    opened_at timestamptz NOT NULL,
    PRIMARY KEY (pipeline_id, date, schedule_id)
);

-- `record` is the whole slot.
CREATE TABLE @slots (
    pipeline_id text NOT NULL,
    schedule_id text NOT NULL,
    slot timestamptz NOT NULL,
    date date NOT NULL,
    state text NOT NULL,
    disposition text,
    reason text,
    generation int4 NOT NULL,
    attempt int4 NOT NULL,
    opened_by text NOT NULL,
    opened_at timestamptz NOT NULL,
    missed_at timestamptz,
    late boolean NOT NULL,
    uncertain boolean NOT NULL,
    sla_breach_at timestamptz,
    version text NOT NULL,
    record jsonb NOT NULL,
    PRIMARY KEY (pipeline_id, schedule_id, slot)
);
CREATE INDEX slots_by_date ON @slots (date);

-- Many slots in a row with the same fate. A row of `slots` wins over the span that covers it.
CREATE TABLE @spans (
    pipeline_id text NOT NULL,
    schedule_id text NOT NULL,
    first timestamptz NOT NULL,
    last timestamptz NOT NULL,
    count int8 NOT NULL,
    disposition text NOT NULL,
    reason text,
    version text NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (pipeline_id, schedule_id, first)
);

-- `record` is the whole incident, with who acknowledged and resolved it.
CREATE TABLE @incidents (
    pipeline_id text NOT NULL,
    key text NOT NULL,
    state text NOT NULL,
    kind text NOT NULL,
    level text NOT NULL,
    message text NOT NULL,
    opened_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    count int8 NOT NULL,
    record jsonb NOT NULL,
    PRIMARY KEY (pipeline_id, key)
);

-- Each pipeline's days: what was owed, what became of it, and how much of that was in time. A completion is late when
-- its run ended after the slot's SLA.
CREATE VIEW @daily_sla AS
SELECT s.pipeline_id, s.date,
    count(*) AS slots,
    count(*) FILTER (WHERE s.disposition = 'completed') AS completed,
    count(*) FILTER (WHERE s.disposition = 'failed') AS failed,
    count(*) FILTER (WHERE s.missed_at IS NOT NULL OR s.disposition = 'missed') AS missed,
    count(*) FILTER (WHERE s.disposition = 'completed' AND r.ended_at > s.sla_breach_at) AS completed_late,
    count(*) FILTER (WHERE s.sla_breach_at IS NOT NULL) AS with_sla,
    count(*) FILTER (WHERE s.sla_breach_at IS NOT NULL AND s.disposition = 'completed'
        AND r.ended_at <= s.sla_breach_at) AS within_sla
FROM @slots s
LEFT JOIN LATERAL (SELECT max(ended_at) AS ended_at FROM @runs r
    WHERE r.pipeline_id = s.pipeline_id AND r.schedule_id = s.schedule_id AND r.slot = s.slot
      AND r.status = 'COMPLETED') r ON TRUE
GROUP BY s.pipeline_id, s.date;
CREATE INDEX runs_of_slot ON @runs (pipeline_id, schedule_id, slot);

-- What did not run and should have: single slots, and stretches of them.
CREATE VIEW @missed_by_pipeline AS
SELECT pipeline_id, schedule_id, sum(missed)::int8 AS missed, min(first) AS first, max(last) AS last
FROM (
    SELECT pipeline_id, schedule_id, count(*) AS missed, min(slot) AS first, max(slot) AS last
    FROM @slots WHERE missed_at IS NOT NULL OR disposition = 'missed'
        OR (disposition = 'skipped' AND reason IN ('no_catchup', 'expired', 'capped'))
    GROUP BY pipeline_id, schedule_id
    UNION ALL
    SELECT pipeline_id, schedule_id, sum(count), min(first), max(last)
    FROM @spans WHERE disposition = 'missed'
        OR (disposition = 'skipped' AND reason IN ('no_catchup', 'expired', 'capped'))
    GROUP BY pipeline_id, schedule_id
) found GROUP BY pipeline_id, schedule_id;

-- How long completed runs take, in seconds.
CREATE VIEW @run_durations AS
SELECT pipeline_id, count(*) AS runs,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - started_at)) AS p50,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - started_at)) AS p90,
    percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM ended_at - started_at)) AS p99,
    max(extract(epoch FROM ended_at - started_at)) AS longest
FROM @runs WHERE status = 'COMPLETED' AND started_at IS NOT NULL AND ended_at IS NOT NULL
GROUP BY pipeline_id;
