//! What `interlock.yaml` may say.

use super::{
    DURATION, ENV_DICT, Field, Format, JSON_DICT, MapShape, SECONDS, STORES, Shape, TEXT,
    TEXT_DICT, TEXTS, Variant, ZONE, field, map, pipeline::DEFAULTS,
};

const SECRET: Shape = Shape::Text(Format::Secret);
const COUNT: Shape = Shape::Int { min: 1, max: 1_000_000_000 };
const NETWORKS: Shape = Shape::List(&Shape::Text(Format::Network));
const DIRS: Shape = Shape::List(&Shape::Text(Format::Path));

const TTLS: &[Field] = &[
    field("readinessTtl", &DURATION, "How long a cached readiness is shown.")
        .or(&["readinessTTL"])
        .default("1h"),
    field(
        "retentionTtl",
        &DURATION,
        "How long events stay, and the run log of each day that is shown. Slots and runs stay for `retention.slots`.",
    )
    .or(&["retentionTTL"])
    .default("168h"),
];

const EMBEDDED: &MapShape = &map(
    "embedded",
    &[&[field("path", &Shape::Text(Format::Path), "The store's directory.").default(".interlock")]],
);

const SHARDS: Field = field(
    "shards",
    &Shape::Int { min: 1, max: 4_096 },
    "How many parts the pipelines are divided into among instances. Counts when the store is made.",
)
.default("12");

const FOLDER: Field = field(
    "folder",
    &Shape::Text(Format::Path),
    "Where this host keeps what is its own: the record of its jobs, their logs, reports that wait.",
)
.default(".interlock");

const REDIS: &MapShape = &map(
    "redis",
    &[
        &[
            field(
                "addr",
                &Shape::Text(Format::Template),
                "Host and port; several, with commas, where one follows another.",
            )
            .default("localhost:6379"),
            field("username", &Shape::Text(Format::Template), "Who we are, where it has users.")
                .default("none"),
            field("password", &SECRET, "Its password.").default("none"),
            field("db", &Shape::Int { min: 0, max: 1_000_000 }, "Which database.").default("0"),
            field("tls", &Shape::Bool, "Whether the server speaks TLS there.").default("false"),
            field("ca", &TEXT, "A PEM file with the authorities that are believed.")
                .default("the machine's"),
            field("cert", &TEXT, "A PEM file with a certificate, for a server that asks for one."),
            field("key", &TEXT, "A PEM file with the certificate's key."),
            field(
                "keyPrefix",
                &Shape::Text(Format::KeyPrefix),
                "In front of every key; on a cluster in braces, with the number of the shard.",
            )
            .default("interlock"),
            field("runIndexLimit", &COUNT, "Runs in a pipeline's index.").default("100"),
            field("eventStreamMax", &COUNT, "Events in a pipeline's stream.").default("10000"),
            SHARDS,
            FOLDER,
        ],
        TTLS,
    ],
);

const POSTGRES: &MapShape = &map(
    "postgres",
    &[&[
        field("dsn", &SECRET, "Where it is.").required(),
        field("maxConnections", &Shape::Int { min: 1, max: 1_000 }, "Connections.").default("10"),
        field("schema", &Shape::Text(Format::Schema), "The database schema of the tables.")
            .default("interlock"),
        field("retentionTtl", &DURATION, "How long events are kept.")
            .or(&["retentionTTL"])
            .default("retention.events"),
        SHARDS,
        FOLDER,
    ]],
);

/// What to write as long as no store is on `DynamoDB`.
const NO_DYNAMODB: &str = "Write `provider: redis` or `provider: postgres` for several instances, `provider: embedded` for one.";

const ARCHIVER: &MapShape = &map(
    "archiver",
    &[&[
        field("enabled", &Shape::Bool, "Copy history to Postgres.").default("false"),
        field("interval", &DURATION, "How often.").default("5m"),
        field("dsn", &SECRET, "Where to."),
        field("batchSize", &Shape::Int { min: 1, max: 10_000 }, "Rows that are read at once.")
            .default("500"),
    ]],
);

const WATCHDOG: &MapShape = &map(
    "watchdog",
    &[&[
        field(
            "enabled",
            &Shape::Bool,
            "Judge absence. With `false`, `serve` has no role `watchdog`.",
        )
        .default("true"),
        field("interval", &DURATION, "How often everything is swept besides every deadline.")
            .default("5m"),
        field("stuckRunThreshold", &DURATION, "When a run counts as stuck.").default("30m"),
    ]],
);

const WATCHER: &MapShape = &map(
    "watcher",
    &[&[
        field(
            "enabled",
            &Shape::Bool,
            "Open slots, evaluate readiness and start jobs. With `false`, `serve` has no role `engine`.",
        )
        .default("true"),
        field("defaultInterval", &DURATION, "How often, where a pipeline does not say.")
            .default("5m"),
    ]],
);

const OUTBOUND: &MapShape = &map(
    "outbound",
    &[&[
        field("allow", &NETWORKS, "May be called, whatever else is said."),
        field("deny", &NETWORKS, "May not be called."),
    ]],
);

const ENGINE: &MapShape = &map(
    "engine",
    &[&[
        field("defaultTimeout", &SECONDS, "How long an evaluator may take.").default("30s"),
        field("maxConcurrentRuns", &COUNT, "Runs at the same time, over all pipelines.")
            .default("100"),
        field("maxConcurrentEvaluations", &COUNT, "Evaluators at the same time.").default("32"),
        field("catchupConcurrency", &COUNT, "Catch-up runs at the same time.").default("10"),
        field("catchupRate", &COUNT, "Catch-up runs started per minute.").default("60000"),
        field(
            "outbound",
            &Shape::Map(OUTBOUND),
            "Which addresses triggers, HTTP evaluators and webhooks may call.",
        )
        .default("all but link-local, cloud metadata, multicast and reserved ones"),
    ]],
);

const TOKEN: &MapShape = &map(
    "a token",
    &[&[
        field("name", &TEXT, "Whose it is.").required(),
        field("token", &SECRET, "The token itself.").required(),
        field(
            "scope",
            &Shape::Choice(&["ping", "badge", "viewer", "operator", "admin"]),
            "What it may do.",
        )
        .default("viewer"),
        field(
            "pipelines",
            &TEXTS,
            "On which pipelines a token for `ping` may report; `*` stands for anything.",
        ),
    ]],
);

const TLS: &MapShape = &map(
    "tls",
    &[&[
        field(
            "cert",
            &Shape::Text(Format::Path),
            "A PEM file with the certificate of the listener, and those that vouch for it behind it.",
        )
        .required(),
        field(
            "key",
            &Shape::Text(Format::Path),
            "A PEM file with its private key, which only the user that runs `serve` may read.",
        )
        .required(),
    ]],
);

const SERVER: &MapShape = &map(
    "server",
    &[&[
        field("addr", &TEXT, "Where it listens.").default("127.0.0.1:8420"),
        field(
            "tls",
            &Shape::Map(TLS),
            "Speak HTTPS there, and nothing else. Files that change are loaded again within seconds.",
        )
        .default("plain HTTP"),
        field(
            "probes",
            &TEXT,
            "Where `/livez` and `/readyz` are answered by a thread that no hung loop can hold up.",
        )
        .default("nowhere"),
        field("apiKey", &SECRET, "A single key with every right, as in earlier versions."),
        field("tokens", &Shape::List(&Shape::Map(TOKEN)), "Scoped tokens."),
        field(
            "maxRequestBody",
            &Shape::Int { min: 1, max: 1 << 30 },
            "Bytes in one request at most.",
        )
        .default("1048576"),
        field(
            "maxRequestsPerSecond",
            &COUNT,
            "Requests from one other machine, and with one token, each second; twice as many at once.",
        )
        .default("1000"),
    ]],
);

const RETENTION: &MapShape = &map(
    "retention",
    &[&[
        field(
            "slots",
            &DURATION,
            "How long slots, runs and resolved incidents are kept; 8d at least.",
        )
        .default("90d"),
        field("events", &DURATION, "How long events are kept.").default("90d"),
        field("logs", &DURATION, "How long job output is kept.").default("30d"),
    ]],
);

const BEACON: &MapShape = &map(
    "a beacon",
    &[&[
        field("url", &SECRET, "Pinged while the loops make progress.").required(),
        field("interval", &DURATION, "How often.").default("1m"),
    ]],
);

const ALERT_FILTER: &MapShape = &map(
    "when",
    &[&[
        field(
            "levels",
            &Shape::List(&Shape::Choice(&["info", "warning", "error", "critical"])),
            "Only these levels.",
        ),
        field("types", &TEXTS, "Only these alert types."),
        field("pipelines", &TEXTS, "Only these pipelines; `*` stands for anything."),
        field("owners", &TEXTS, "Only pipelines of these owners."),
        field("labels", &TEXT_DICT, "Only pipelines with these labels."),
    ]],
);

const fn channel(types: &'static [&'static str], groups: &'static [&'static [Field]]) -> Variant {
    Variant { types, groups, any_of: &[], open: false, refused: "" }
}

/// A channel of a cloud, which nothing here delivers to.
const fn cloud_channel(types: &'static [&'static str], instead: &'static str) -> Variant {
    Variant { types, groups: &[], any_of: &[], open: true, refused: instead }
}

const NO_TOPIC: &str =
    "Write `type: webhook` with the address of a function or gateway that publishes it.";
const NO_BUCKET: &str = "Write `type: file` and copy the file, or `type: webhook`.";

const HEADERS: Field = field("headers", &ENV_DICT, "Extra headers.");
const ALERT_FORMAT: Field = field(
    "format",
    &Shape::Choice(&["alert", "events"]),
    "What is sent: the alert, or the event that it tells of as `{source, detail-type, detail}`.",
)
.default("alert");
const HOOK: Field = field("url", &SECRET, "Where to.").required();

const ALERT: &MapShape = &MapShape {
    name: "an alert channel",
    groups: &[&[
        field("name", &TEXT, "Its name, for silences and dead letters.").default("its type"),
        field("when", &Shape::Map(ALERT_FILTER), "Which alerts it gets.").default("all"),
        field(
            "after",
            &DURATION,
            "Only incidents that stay open and unacknowledged for this long: a later step of escalation.",
        )
        .default("at once"),
        field(
            "findings",
            &Shape::Int { min: 1, max: 1_000 },
            "Only once so many were found in a row: slots of a schedule with no good one between.",
        )
        .default("1"),
        field(
            "of",
            &Shape::Int { min: 2, max: 1_000 },
            "With `findings`: so many of the schedule's last slots, instead of in a row.",
        )
        .default("in a row"),
        field(
            "recovered",
            &Shape::Int { min: 1, max: 1_000 },
            "The end only once so many slots in a row went well; what begins again before was not over.",
        )
        .default("1"),
        field("repeat", &DURATION, "Sends a reminder after this long, while the incident is open and not acknowledged.")
            .default("once"),
        field(
            "runbook",
            &TEXT,
            "A link or a text that says what to do, for alerts of pipelines that name none.",
        ),
        field("digest", &Shape::Bool, "Whether more than ten at once are one message.")
            .default("true for console, slack and email"),
    ]],
    any_of: &[],
    variants: &[
        channel(&["console"], &[]),
        channel(
            &["file"],
            &[&[
                field("path", &Shape::Text(Format::Path), "JSON lines are appended here.")
                    .required(),
                ALERT_FORMAT,
            ]],
        ),
        channel(
            &["webhook"],
            &[&[HOOK, field("secret", &SECRET, "Signs every request."), HEADERS, ALERT_FORMAT]],
        ),
        Variant {
            types: &["slack"],
            groups: &[&[
                field("url", &SECRET, "An incoming webhook; beside a token, where the API is."),
                field("token", &SECRET, "A bot token, with `channel`: one thread per pipeline and day."),
                field("channel", &TEXT, "Where the bot writes."),
            ]],
            any_of: &["url", "token"],
            open: false,
            refused: "",
        },
        channel(
            &["email"],
            &[&[
                field("smtp", &Shape::Text(Format::Template), "Host and port.").required(),
                field("tls", &Shape::Choice(&["starttls", "tls", "none"]), "How it is encrypted.")
                    .default("starttls"),
                field("from", &TEXT, "The sender.").required(),
                field("to", &TEXTS, "The receivers.").required(),
                field("username", &Shape::Text(Format::Template), "For the server."),
                field("password", &SECRET, "For the server."),
            ]],
        ),
        channel(
            &["pagerduty"],
            &[&[
                field("routingKey", &SECRET, "The integration's key.").required(),
                field("url", &SECRET, "Where events go.").default("PagerDuty's Events API v2"),
            ]],
        ),
        channel(
            &["http"],
            &[&[
                HOOK,
                field("method", &Shape::Choice(&["POST", "PUT", "PATCH"]), "How.").default("POST"),
                HEADERS,
                field(
                    "body",
                    &Shape::Text(Format::Any),
                    "A template: `{{message}}`, `{{level}}`, `{{state}}`, `{{alertType}}`, `{{pipelineId}}`, \
                     `{{timestamp}}`, `{{key}}`, `{{details.NAME}}`, `{{json}}`.",
                )
                    .default("the alert as JSON"),
                ALERT_FORMAT,
            ]],
        ),
        cloud_channel(&["sns", "eventbridge", "pubsub"], NO_TOPIC),
        cloud_channel(&["s3"], NO_BUCKET),
    ],
};

/// `interlock.yaml`.
pub(super) const CONFIG: &MapShape = &map(
    "interlock.yaml",
    &[&[
        field("provider", &Shape::Choice(&STORES), "Which store.")
            .default("the store whose section is there, else embedded")
            .refusing(&[("dynamodb", NO_DYNAMODB)]),
        field("embedded", &Shape::Map(EMBEDDED), "One file, no server."),
        field("redis", &Shape::Map(REDIS), "Redis or Valkey."),
        field("postgres", &Shape::Map(POSTGRES), "Postgres."),
        field("dynamodb", &JSON_DICT, "DynamoDB.").refused(NO_DYNAMODB),
        field("archiver", &Shape::Map(ARCHIVER), "Long keeping in Postgres."),
        field("watchdog", &Shape::Map(WATCHDOG), "Who judges absence."),
        field("watcher", &Shape::Map(WATCHER), "Who asks for readiness."),
        field("engine", &Shape::Map(ENGINE), "Limits of scheduler and controller."),
        field("server", &Shape::Map(SERVER), "The HTTP interface."),
        field("alerts", &Shape::List(&Shape::Map(ALERT)), "Who is told, and how.")
            .default("[{type: console}]"),
        field("pipelineDirs", &DIRS, "Directories of pipelines.").default("[pipelines]"),
        field("calendarDirs", &DIRS, "Directories of calendars.").default("[calendars]"),
        field("archetypeDirs", &DIRS, "Directories of archetypes.").default("[archetypes]"),
        field("evaluatorDirs", &DIRS, "Directories of evaluators.").default("[evaluators]"),
        field("defaults", &Shape::Map(DEFAULTS), "What holds for every pipeline."),
        field("beacons", &Shape::List(&Shape::Map(BEACON)), "Who learns when Interlock stops."),
        field("retention", &Shape::Map(RETENTION), "How long history is kept."),
        field("timezone", &ZONE, "The zone of pipelines that name none.").default("UTC"),
    ]],
);
