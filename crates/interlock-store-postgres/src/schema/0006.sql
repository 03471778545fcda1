-- Under which right an event was written, `role:shard:term`: for whoever has to find out which instance did something.
ALTER TABLE @events ADD COLUMN writer text;
