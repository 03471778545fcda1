-- Which store it is (docs/adr/0037-what-a-store-forgets.md): made by chance, once; a restored backup is the same store.
INSERT INTO @about VALUES ('identity', left(replace(gen_random_uuid()::text, '-', ''), 16));
