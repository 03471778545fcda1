-- Who is there (docs/adr/0023-shards.md): each instance says so again and again. Nothing follows from it after a crash of the
-- server, so it is not written ahead.
CREATE UNLOGGED TABLE @instances (
    role text NOT NULL,
    name text NOT NULL,
    until_ms int8 NOT NULL,
    PRIMARY KEY (role, name)
) WITH (fillfactor = 20);
