-- The incidents that are not resolved (docs/adr/0057-lists-of-ten-thousand.md): resolved ones of three months lie beside them, and each page of
-- those that are open read them all. What cannot be read is among them, so that a damaged row keeps nobody from writing others.
CREATE INDEX incidents_open ON incidents (pipeline, key)
    WHERE iif(json_valid(body), json_extract(body, '$.state') <> 'resolved', TRUE);
