//! The layouts that were considered: the same rows, keyed differently.

/// How one layout stores and finds rows.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Its letter in the decision record.
    pub(crate) name: &'static str,
    /// Its tables.
    pub(crate) schema: &'static str,
    /// Indexes that are made after the history was filled in, to save time.
    pub(crate) indexes: &'static str,
    /// In which order history is filled in quickest.
    pub(crate) fill_order: FillOrder,
    /// Whether rows name their pipeline by text.
    pub(crate) named: bool,
    /// How the slots of one pipeline are found.
    pub(crate) find: Find,
}

/// The order of history rows that a layout takes best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FillOrder {
    /// By instant.
    Time,
    /// By pipeline.
    Pipeline,
}

/// How the slots of one pipeline are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    /// By one range of one index.
    Range,
    /// By one short range for each hour.
    Hours,
}

/// Tables that are the same in all of them.
pub(crate) const SHARED: &str = "
    CREATE TABLE due (at INTEGER NOT NULL, kind INTEGER NOT NULL, pipeline ANY NOT NULL,
        name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (at, kind, pipeline, name)) STRICT, WITHOUT ROWID;
    CREATE TABLE watermarks (pipeline ANY NOT NULL, schedule TEXT NOT NULL, revision INTEGER NOT NULL,
        body TEXT NOT NULL, PRIMARY KEY (pipeline, schedule)) STRICT, WITHOUT ROWID;";

/// All of them.
pub(crate) const ALL: [Candidate; 5] = [
    Candidate {
        name: "A",
        schema: "
            CREATE TABLE slots (pipeline TEXT NOT NULL, schedule TEXT NOT NULL, nominal INTEGER NOT NULL,
                revision INTEGER NOT NULL, open INTEGER NOT NULL, disposition TEXT, body TEXT NOT NULL,
                PRIMARY KEY (pipeline, schedule, nominal)) STRICT, WITHOUT ROWID;
            CREATE TABLE events (number INTEGER PRIMARY KEY, pipeline TEXT NOT NULL, body TEXT NOT NULL) STRICT;",
        indexes: "
            CREATE INDEX slots_by_time ON slots (nominal);
            CREATE INDEX slots_open ON slots (pipeline, nominal) WHERE open = 1;
            CREATE INDEX events_by_pipeline ON events (pipeline);",
        fill_order: FillOrder::Pipeline,
        named: true,
        find: Find::Range,
    },
    Candidate {
        name: "B",
        schema: TIME_KEYED,
        indexes: "
            CREATE INDEX slots_by_pipeline ON slots (pipeline, nominal);
            CREATE INDEX slots_open ON slots (pipeline, nominal) WHERE open = 1;
            CREATE INDEX events_by_pipeline ON events (pipeline);",
        fill_order: FillOrder::Time,
        named: false,
        find: Find::Range,
    },
    Candidate {
        name: "C",
        schema: ROWID_KEYED,
        indexes: "
            CREATE UNIQUE INDEX slots_by_pipeline ON slots (pipeline, nominal, schedule);
            CREATE INDEX slots_by_time ON slots (nominal);
            CREATE INDEX slots_open ON slots (pipeline, nominal) WHERE open = 1;
            CREATE INDEX events_by_pipeline ON events (pipeline);",
        fill_order: FillOrder::Time,
        named: false,
        find: Find::Range,
    },
    Candidate {
        name: "D",
        schema: TIME_KEYED,
        indexes: "
            CREATE INDEX slots_by_hour ON slots (nominal / 3600000000, pipeline, nominal, schedule);
            CREATE INDEX slots_open ON slots (pipeline, nominal) WHERE open = 1;
            CREATE INDEX events_by_block ON events (number / 4096, pipeline);",
        fill_order: FillOrder::Time,
        named: false,
        find: Find::Hours,
    },
    Candidate {
        name: "E",
        schema: ROWID_KEYED,
        indexes: "
            CREATE UNIQUE INDEX slots_by_hour ON slots (nominal / 3600000000, pipeline, nominal, schedule);
            CREATE INDEX slots_by_time ON slots (nominal);
            CREATE INDEX slots_open ON slots (pipeline, nominal) WHERE open = 1;
            CREATE INDEX events_by_block ON events (number / 4096, pipeline);",
        fill_order: FillOrder::Time,
        named: false,
        find: Find::Hours,
    },
];

const TIME_KEYED: &str = "
    CREATE TABLE slots (nominal INTEGER NOT NULL, pipeline INTEGER NOT NULL, schedule TEXT NOT NULL,
        revision INTEGER NOT NULL, open INTEGER NOT NULL, disposition TEXT, body TEXT NOT NULL,
        PRIMARY KEY (nominal, pipeline, schedule)) STRICT, WITHOUT ROWID;
    CREATE TABLE events (number INTEGER PRIMARY KEY, pipeline INTEGER NOT NULL, body TEXT NOT NULL) STRICT;";

const ROWID_KEYED: &str = "
    CREATE TABLE slots (row INTEGER PRIMARY KEY, nominal INTEGER NOT NULL, pipeline INTEGER NOT NULL,
        schedule TEXT NOT NULL, revision INTEGER NOT NULL, open INTEGER NOT NULL, disposition TEXT,
        body TEXT NOT NULL) STRICT;
    CREATE TABLE events (number INTEGER PRIMARY KEY, pipeline INTEGER NOT NULL, body TEXT NOT NULL) STRICT;";
