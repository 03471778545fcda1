-- The incidents that are not resolved, by when they were opened (docs/adr/0059-the-api.md): a list of them, newest first, read all others too.
CREATE INDEX incidents_open_by_time ON @incidents (at_us) WHERE word <> 'resolved';
-- What each instance says of itself, every few seconds: rows of those that are gone stay for a day. Nothing follows from it after a
-- crash of the server, so it is not written ahead.
CREATE UNLOGGED TABLE @self_reports (
    instance text PRIMARY KEY,
    said_ms int8 NOT NULL,
    body text NOT NULL
) WITH (fillfactor = 20);
