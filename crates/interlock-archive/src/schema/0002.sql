-- The status of a run log is in the words of the first Interlock, as its readers expect it.
UPDATE @run_logs SET status = CASE status
    WHEN 'waiting' THEN 'PENDING' WHEN 'queued' THEN 'PENDING'
    WHEN 'backoff' THEN 'RUNNING'
    WHEN 'monitoring' THEN 'COMPLETED_MONITORING'
    WHEN 'failed' THEN 'FAILED_FINAL'
    ELSE upper(status) END;

-- A slot that was missed as one of many and ran later keeps that it was missed: it is counted with the many.
CREATE OR REPLACE VIEW @missed_by_pipeline AS
SELECT pipeline_id, schedule_id, sum(missed)::int8 AS missed, min(first) AS first, max(last) AS last
FROM (
    SELECT pipeline_id, schedule_id, count(*) AS missed, min(slot) AS first, max(slot) AS last
    FROM @slots s WHERE (missed_at IS NOT NULL OR disposition = 'missed'
        OR (disposition = 'skipped' AND reason IN ('no_catchup', 'expired', 'capped')))
        AND NOT EXISTS (SELECT 1 FROM @spans t
            WHERE t.pipeline_id = s.pipeline_id AND t.schedule_id = s.schedule_id
              AND s.slot BETWEEN t.first AND t.last
              AND (t.disposition = 'missed'
                OR (t.disposition = 'skipped' AND t.reason IN ('no_catchup', 'expired', 'capped'))))
    GROUP BY pipeline_id, schedule_id
    UNION ALL
    SELECT pipeline_id, schedule_id, sum(count), min(first), max(last)
    FROM @spans WHERE disposition = 'missed'
        OR (disposition = 'skipped' AND reason IN ('no_catchup', 'expired', 'capped'))
    GROUP BY pipeline_id, schedule_id
) found GROUP BY pipeline_id, schedule_id;
