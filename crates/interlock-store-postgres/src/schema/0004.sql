-- Up to which event an archive has read, while somebody follows: later ones are kept however old they are.
ALTER TABLE @counters ADD COLUMN archived int8;
