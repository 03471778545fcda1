-- Which store it is (docs/adr/0037-what-a-store-forgets.md): made by chance, once; a copy of the file is the same store.
INSERT OR IGNORE INTO counters VALUES ('identity', random());
