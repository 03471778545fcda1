-- How far an archive has said that it is with what changed, while somebody follows: nothing is taken out before it has it.
ALTER TABLE @counters ADD COLUMN archived_changes int8;
