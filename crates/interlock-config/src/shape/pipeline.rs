//! What a pipeline file may say.

use super::{
    DURATION, ENV_DICT, Field, Format, JSON_DICT, MapShape, SECONDS, Shape, TEXT, TEXT_DICT,
    TEXT_OR_TEXTS, ZONE, field,
    job::{COMMAND, JOB, STEPS, TRIGGER},
    map,
    schedule::{EVALUATION, EXCLUSIONS, RULE, SCHEDULE, SCHEDULES},
};

const COUNT: Shape = Shape::Int { min: 1, max: 1_000_000 };
const DEADLINE: Shape = Shape::Text(Format::Deadline);

const IDENTITY: &MapShape = &map(
    "pipeline",
    &[&[
        field("id", &Shape::Text(Format::Name), "The pipeline's name.").required(),
        field("owner", &TEXT, "Who is told."),
        field("description", &TEXT, "For people."),
    ]],
);

const TRAIT_OVERRIDE: &MapShape = &map(
    "a trait",
    &[&[
        field("evaluator", &TEXT, "A program in `evaluatorDirs`, or an http(s) URL."),
        field("config", &JSON_DICT, "Handed to the evaluator, over the archetype's defaults."),
        field("ttl", &SECONDS, "How long a result may be reused."),
        field("timeout", &SECONDS, "How long the evaluator may take."),
    ]],
);

const VALIDATION: &MapShape = &map(
    "validation",
    &[&[
        field(
            "trigger",
            &Shape::Choice(&["ALL", "ANY", "all", "any", "All", "Any"]),
            "Whether all rules must hold or any.",
        )
        .default("ALL"),
        field("rules", &Shape::List(&Shape::Map(RULE)), "Conditions on sensors."),
    ]],
);

const POST_RUN: &MapShape = &map(
    "postRun",
    &[&[
        field("rules", &Shape::List(&Shape::Map(RULE)), "Sensors that must arrive and hold.")
            .required(),
        field("sensorTimeout", &DURATION, "How long they may take.").default("2h"),
        field("driftField", &TEXT, "Which field is compared with the run's baseline.")
            .default("sensor_count"),
        field("driftThreshold", &Shape::Number { min: 0.0 }, "How much it may differ.")
            .default("0"),
        field("evaluation", &Shape::Map(EVALUATION), "How the rules are asked over time.").refused(
            "Remove it: the rules are asked at each report and when `sensorTimeout` is over.",
        ),
    ]],
);

const RETRY: &MapShape = &map(
    "retry",
    &[&[
        field("maxAttempts", &Shape::Int { min: 1, max: 100 }, "Attempts, the first included.")
            .default("3"),
        field("backoffSeconds", &Shape::Int { min: 0, max: 86_400 }, "Wait before the second one.")
            .default("30"),
        field(
            "backoffMultiplier",
            &Shape::Number { min: 0.0 },
            "Each wait is so many times the last.",
        )
        .default("2.0"),
        field("maxBackoff", &DURATION, "No wait is longer.").default("1h"),
        field(
            "retryableFailures",
            &Shape::List(&Shape::Choice(&["TRANSIENT", "TIMEOUT", "PERMANENT", "EVALUATOR_CRASH"])),
            "Which failures are tried again.",
        )
        .default("[TRANSIENT, TIMEOUT]"),
    ]],
);

const SLA: &MapShape = &map(
    "sla",
    &[&[
        field("evaluationDeadline", &DEADLINE, "By when evaluation must have started."),
        field("completionDeadline", &DEADLINE, "By when the run must have completed.")
            .or(&["deadline"]),
        field("expectedDuration", &DURATION, "The warning comes this long before the breach.")
            .or(&["atRiskLeadTime"]),
        field("maxDuration", &DURATION, "How long everything may take from the first sensor.")
            .or(&["maxDurationSLA"]),
        field("validationTimeout", &DEADLINE, "A duration: when a slot is given up as not ready."),
        field("timezone", &ZONE, "The zone of `HH:MM`.").default("the schedule's"),
        field("critical", &Shape::Bool, "Carried to alerts.").default("false"),
    ]],
);

const MONITORING: &MapShape = &map(
    "monitoring",
    &[&[
        field("enabled", &Shape::Bool, "Watch for drift after completion.").default("false"),
        field("duration", &DURATION, "For how long.").default("2h"),
    ]],
);

const WATCH: &MapShape = &map(
    "watch",
    &[&[
        field("enabled", &Shape::Bool, "`false` makes the pipeline dormant.").default("true"),
        field("interval", &DURATION, "How often readiness is asked.")
            .default("watcher.defaultInterval"),
        field("monitoring", &Shape::Map(MONITORING), "Drift after completion."),
    ]],
);

const STUCK: &MapShape = &map(
    "stuck",
    &[&[
        field("threshold", &DURATION, "When a run counts as stuck.")
            .default("watchdog.stuckRunThreshold"),
        field(
            "action",
            &Shape::Choice(&["alert", "cancel", "fail"]),
            "What becomes of a stuck run.",
        )
        .default("alert"),
    ]],
);

const HANDLERS: &MapShape = &map(
    "handlers",
    &[&[
        field("success", &COMMAND, "Run after success."),
        field("failure", &COMMAND, "Run after failure."),
        field("exit", &COMMAND, "Run in any case."),
    ]],
);

const UPSTREAM: &MapShape = &map(
    "a dependency",
    &[&[
        field("pipeline", &TEXT, "The pipeline that must have completed.").required(),
        field("schedule", &TEXT, "Which of its schedules.").default("any"),
    ]],
);

const DEPENDS_ON: Shape = Shape::Either(&[
    TEXT,
    Shape::List(&Shape::Either(&[TEXT, Shape::Map(UPSTREAM)])),
    Shape::Map(UPSTREAM),
]);

const CASCADE: &MapShape =
    &map("cascade", &[&[field("delayBetween", &TEXT, "The pause between two reruns.")]]);
const QUARANTINE: &MapShape = &map(
    "quarantine",
    &[&[field("blocking", &Shape::Bool, "Whether bad rows stop what follows.")]],
);

const OWN: &[Field] = &[
    field("name", &Shape::Text(Format::Name), "The pipeline's name, which is its identity."),
    field("pipeline", &Shape::Map(IDENTITY), "The name, as the Go configuration nests it."),
    field("description", &TEXT, "For people."),
    field("schedule", &SCHEDULE, "A cron expression, a list of them, or a map."),
    field("schedules", &SCHEDULES, "Schedules with everything that one can say."),
    field("archetype", &TEXT, "The set of traits that readiness asks."),
    field(
        "traits",
        &Shape::Dict(&Shape::Map(TRAIT_OVERRIDE)),
        "Evaluators and overrides, by trait.",
    ),
    field("validation", &Shape::Map(VALIDATION), "Readiness as rules on sensors."),
    field(
        "dependsOn",
        &DEPENDS_ON,
        "Pipelines whose slot of the same period must have completed: the last that was due on the slot's date by its time, else the first of that date.",
    ),
    field("trigger", &Shape::Map(TRIGGER), "How the job is started; without one it is never due."),
    field("job", &Shape::Map(JOB), "The same, as the Go configuration for AWS spells it."),
    field("steps", &STEPS, "Named commands with an order."),
    field("postRun", &Shape::Map(POST_RUN), "What is checked after completion."),
    field("params", &TEXT_DICT, "Default parameters, `${params.k}`."),
    field("cascade", &Shape::Map(CASCADE), "Reruns of what depends on it.").refused(
        "Remove it, and write `dependsOn` in the pipelines that follow this one.",
    ),
    field("quarantine", &Shape::Map(QUARANTINE), "Rows that were set aside.").refused(
        "Remove it, and let the job report a sensor that a rule of `validation` or `postRun` looks at.",
    ),
];

/// Keys that `defaults:` in interlock.yaml may set for every pipeline.
const SHARED: &[Field] = &[
    field("owner", &TEXT, "Who is told."),
    field("labels", &TEXT_DICT, "For routing and filtering."),
    field(
        "runbook",
        &TEXT,
        "A link or a text that says what to do: part of each alert. Without one: the route's, else the kind's section of docs/messages.md.",
    ),
    field("tier", &Shape::Int { min: 0, max: 100 }, "How much it matters; carried to alerts."),
    field("timezone", &ZONE, "The zone of schedules that name none.").default("UTC"),
    field("calendar", &TEXT_OR_TEXTS, "Calendars whose days have no slots."),
    field("exclusions", &Shape::Map(EXCLUSIONS), "Days without slots, for all schedules."),
    field("catchupWindow", &Shape::Text(Format::Window), "How far back missed slots are run.")
        .default("missed slots are not run"),
    field(
        "overlapPolicy",
        &Shape::Choice(&["skip", "all", "latest"]),
        "Which of several missed or colliding slots run: the first, all in order, the newest.",
    )
    .default("skip"),
    field("catchupMaxRuns", &COUNT, "At most this many in one plan; the oldest are cut.")
        .default("10000"),
    field("maxActiveRuns", &Shape::Int { min: 1, max: 10_000 }, "Runs at the same time.")
        .default("1"),
    field("grace", &DURATION, "Without a deadline: how long after its time a slot is missed.")
        .default("5m"),
    field("startGrace", &DURATION, "How long a slot counts as live.").default("1m"),
    field("evaluation", &Shape::Map(EVALUATION), "How readiness is asked over time."),
    field("failOpen", &Shape::Bool, "Run even when readiness cannot be told.").default("false"),
    field("retry", &Shape::Map(RETRY), "What is tried again."),
    field("sla", &Shape::Map(SLA), "What the pipeline promises about time."),
    field("maxDurationSLA", &DURATION, "The same as `sla.maxDuration`."),
    field("watch", &Shape::Map(WATCH), "Whether and how it is watched."),
    field("stuck", &Shape::Map(STUCK), "When a run is stuck, and what then."),
    field("stuckRunThreshold", &DURATION, "The same as `stuck.threshold`."),
    field("timeout", &DURATION, "How long a run may take before it is ended."),
    field("env", &ENV_DICT, "Environment variables of the job."),
    field("workdir", &Shape::Text(Format::Path), "Where the job runs.").or(&["workingDir"]),
    field("shell", &TEXT, "Which shell runs shell commands.").default("sh"),
    field("handlers", &Shape::Map(HANDLERS), "Commands that follow the job."),
    field("skipIfSuccessful", &Shape::Bool, "Do not run a slot whose period already succeeded.")
        .default("false"),
    field("dryRun", &Shape::Bool, "Record what would be done, start nothing.").default("false"),
    field("retention", &DURATION, "How long history is kept.")
        .refused("Write `retention.slots` and `retention.events` in interlock.yaml: they hold for all pipelines."),
];

/// A pipeline.
pub(super) const PIPELINE: &MapShape = &MapShape {
    name: "the pipeline",
    groups: &[OWN, SHARED],
    any_of: &["name", "pipeline"],
    variants: &[],
};

/// What holds for every pipeline.
pub(super) const DEFAULTS: &MapShape = &map("defaults", &[SHARED]);
