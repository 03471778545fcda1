-- The incidents that are not resolved, by when they were opened (docs/adr/0059-the-api.md): a list of them, newest first, read all others too.
CREATE INDEX incidents_open_by_time ON incidents (opened_at)
    WHERE iif(json_valid(body), json_extract(body, '$.state') <> 'resolved', TRUE);
-- What each instance says of itself, every few seconds: rows of those that are gone stay for a day.
CREATE TABLE instances (
    instance TEXT PRIMARY KEY,
    said_at INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;
