//! What may be said about starting a job: `trigger`, `job` and `steps`.

use super::{
    DURATION, ENV_DICT, Field, Format, JSON_DICT, MapShape, SECONDS, Shape, TEXT, TEXTS, Variant,
    field, map,
};

const COMMAND_TEXT: Shape = Shape::Text(Format::Command);
const ARGV: Shape = Shape::List(&Shape::Scalar(Format::Command));

/// A command: text for the shell, or a list that is executed as it is.
pub(super) const COMMAND: Shape = Shape::Either(&[COMMAND_TEXT, ARGV]);

const BODY: Shape = Shape::Either(&[
    Shape::Text(Format::Template),
    Shape::Dict(&Shape::Json),
    Shape::List(&Shape::Json),
]);

const COMMAND_MAP: &MapShape =
    &map("command", &[&[field("command", &COMMAND, "What to run.").required()]]);

const HTTP_FIELDS: &[Field] = &[
    field("url", &Shape::Text(Format::Url), "Where the request goes."),
    field(
        "method",
        &Shape::Choice(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]),
        "How it is sent.",
    )
    .default("POST"),
    field("headers", &ENV_DICT, "Headers; an `Idempotency-Key` is always sent."),
    field("body", &BODY, "Text, or a map or list that is sent as JSON."),
    field(
        "completion",
        &Shape::Choice(&["response", "callback", "poll"]),
        "How the end of the job is learnt.",
    )
    .default("response; poll when there is a `pollUrl`"),
    field("pollUrl", &Shape::Text(Format::Url), "Asked until it says that the job has ended."),
    field("requestTimeout", &SECONDS, "How long the request itself may take.").default("30s"),
];

// In the Go spelling `timeout` stands inside `http` and is the request's.
const HTTP_MAP: &MapShape =
    &MapShape { name: "http", groups: &[HTTP_FIELDS, GO_TIMEOUT], any_of: &["url"], variants: &[] };

const GO_TIMEOUT: &[Field] =
    &[field("timeout", &SECONDS, "How long the request itself may take.").default("30s")];

const AIRFLOW_FIELDS: &[Field] = &[
    field("url", &Shape::Text(Format::Url), "The web server's address."),
    field("dagId", &TEXT, "Which DAG.").or(&["dag_id"]),
    field("version", &Shape::Int { min: 2, max: 3 }, "Airflow's major version.").default("2"),
    field("headers", &ENV_DICT, "Extra headers."),
    field("conf", &JSON_DICT, "The run's `conf`."),
    field("body", &BODY, "The run's `conf`, as the Go configuration spells it."),
    field("requestTimeout", &SECONDS, "How long one request may take.").default("30s"),
];

const AIRFLOW_MAP: &MapShape = &MapShape {
    name: "airflow",
    groups: &[AIRFLOW_FIELDS, GO_TIMEOUT],
    any_of: &["url"],
    variants: &[],
};

/// What to write for a job that has no adapter.
const NO_ADAPTER: &str = "Start it by `type: http` with a `pollUrl`, or by `type: command` with its own command line tool; \
    `type: external` watches a job that something else starts.";

/// Kinds of the Go controller that nothing here starts. Stored versions may have them, with their options as they were written.
const OTHER_TYPES: &[&str] = &[
    "glue",
    "emr",
    "emr-serverless",
    "step-function",
    "databricks",
    "lambda",
    "dataproc",
    "dataproc-serverless",
    "bigquery",
    "cloud-workflows",
];

const TRIGGER_COMMON: &[Field] = &[
    field("timeout", &SECONDS, "How long a run may take before it is ended."),
    field(
        "onUncertain",
        &Shape::Choice(&["fail", "retry"]),
        "What becomes of a run whose outcome a crash has hidden.",
    )
    .default("fail"),
    field("pollInterval", &SECONDS, "How often a job is asked for its state.").default("30s"),
];

/// How a job is started.
pub(super) const TRIGGER: &MapShape = &MapShape {
    name: "trigger",
    groups: &[TRIGGER_COMMON],
    any_of: &[],
    variants: &[
        Variant {
            types: &["command"],
            groups: &[&[field(
                "command",
                &Shape::Either(&[COMMAND_TEXT, ARGV, Shape::Map(COMMAND_MAP)]),
                "What to run: text for the shell, or a list that is executed as it is.",
            )
            .required()]],
            any_of: &[],
            open: false,
            refused: "",
        },
        Variant {
            types: &["steps"],
            groups: &[&[field("steps", &STEPS, "Named commands with an order.")]],
            any_of: &[],
            open: false,
            refused: "",
        },
        Variant {
            types: &["http"],
            groups: &[
                HTTP_FIELDS,
                &[field(
                    "http",
                    &Shape::Map(HTTP_MAP),
                    "The same, as the Go configuration nests it.",
                )],
            ],
            any_of: &["url", "http"],
            open: false,
            refused: "",
        },
        Variant {
            types: &["airflow"],
            groups: &[
                AIRFLOW_FIELDS,
                &[field(
                    "airflow",
                    &Shape::Map(AIRFLOW_MAP),
                    "The same, as the Go configuration nests it.",
                )],
            ],
            any_of: &["url", "airflow"],
            open: false,
            refused: "",
        },
        Variant { types: &["external"], groups: &[], any_of: &[], open: false, refused: "" },
        Variant { types: OTHER_TYPES, groups: &[], any_of: &[], open: true, refused: NO_ADAPTER },
    ],
};

const JOB_BUDGETS: &[Field] = &[
    field("maxRetries", &Shape::Int { min: 0, max: 10 }, "Further attempts after a failure.")
        .default("0"),
    field(
        "maxCodeRetries",
        &Shape::Int { min: 0, max: 3 },
        "Further attempts after a PERMANENT failure.",
    )
    .default("1"),
    field("maxDriftReruns", &Shape::Int { min: 0, max: 5 }, "Reruns for late or drifted data.")
        .default("1"),
    field("maxManualReruns", &Shape::Int { min: 0, max: 5 }, "Reruns by hand, per reason.")
        .default("1"),
    field(
        "jobPollWindowSeconds",
        &Shape::Int { min: 0, max: 86_400 },
        "How long a job may take; 0 means the default.",
    ),
    field(
        "onUncertain",
        &Shape::Choice(&["fail", "retry"]),
        "What becomes of a run whose outcome a crash has hidden.",
    )
    .default("fail"),
];

/// A job in the spelling of the Go configuration for AWS.
pub(super) const JOB: &MapShape = &MapShape {
    name: "job",
    groups: &[JOB_BUDGETS],
    any_of: &[],
    variants: &[
        Variant {
            types: &["command"],
            groups: &[&[field("config", &Shape::Map(COMMAND_MAP), "What to run.").required()]],
            any_of: &[],
            open: false,
            refused: "",
        },
        Variant {
            types: &["http"],
            groups: &[&[field("config", &Shape::Map(HTTP_MAP), "The request.").required()]],
            any_of: &[],
            open: false,
            refused: "",
        },
        Variant {
            types: &["airflow"],
            groups: &[&[field("config", &Shape::Map(AIRFLOW_MAP), "The DAG.").required()]],
            any_of: &[],
            open: false,
            refused: "",
        },
        Variant { types: &["external"], groups: &[], any_of: &[], open: false, refused: "" },
        Variant {
            types: OTHER_TYPES,
            groups: &[&[field("config", &JSON_DICT, "The job's options, kept as they are.")]],
            any_of: &[],
            open: false,
            refused: NO_ADAPTER,
        },
    ],
};

const STEP: &MapShape = &map(
    "a step",
    &[&[
        field("name", &TEXT, "Its name, unique in the job.").required(),
        field("command", &COMMAND, "What it runs.").required(),
        field("depends", &Shape::Either(&[TEXT, TEXTS]), "Steps that must have succeeded before.")
            .default("the step above; `[]` for none"),
        field("description", &TEXT, "For people."),
        field("retries", &Shape::Int { min: 0, max: 100 }, "Further attempts after a failure.")
            .default("0"),
        field("timeout", &DURATION, "How long it may take."),
        field("continueOnFailure", &Shape::Bool, "Its failure does not fail the job.")
            .default("false"),
        field("env", &ENV_DICT, "Environment variables besides the job's."),
        field("workdir", &Shape::Text(Format::Path), "Where it runs.").or(&["dir", "workingDir"]),
    ]],
);

/// Named commands with an order.
pub(super) const STEPS: Shape = Shape::List(&Shape::Map(STEP));
