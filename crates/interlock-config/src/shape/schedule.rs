//! What a schedule may say.

use super::{
    DURATION, Field, Format, MapShape, SECONDS, Shape, TEXT, TEXT_OR_TEXTS, ZONE, field, map,
};

const CRON: Shape = Shape::Text(Format::Cron);
const DATES: Shape = Shape::List(&Shape::Text(Format::Date));
const WEEKDAYS: Shape =
    Shape::Either(&[Shape::Text(Format::Weekday), Shape::List(&Shape::Text(Format::Weekday))]);

/// The checks of sensor rules.
pub(super) const CHECKS: &[&str] =
    &["exists", "equals", "gt", "gte", "lt", "lte", "age_lt", "age_gt"];

/// A condition on one sensor.
pub(super) const RULE_FIELDS: &[Field] = &[
    field("key", &TEXT, "The sensor; `key#date` of the slot's own period wins over the plain key.")
        .required(),
    field("check", &Shape::Choice(CHECKS), "How its value is compared.").required(),
    field("field", &TEXT, "Which field of the sensor's JSON is compared.")
        .default("the whole value"),
    field("value", &Shape::Json, "What it is compared with; a duration for `age_lt` and `age_gt`."),
];

/// A rule of `validation` or `postRun`.
pub(super) const RULE: &MapShape = &map("a rule", &[RULE_FIELDS]);

const SENSOR: &MapShape = &map(
    "a sensor schedule",
    &[
        RULE_FIELDS,
        &[
            field("period", &Shape::Choice(&["day", "hour"]), "One slot per day or per hour.")
                .default("day; hour when the deadline is `:MM`"),
            field(
                "deadline",
                &Shape::Text(Format::Deadline),
                "When the window for the sensor closes.",
            ),
        ],
    ],
);

const DST: &MapShape = &map(
    "dst",
    &[&[
        field(
            "gap",
            &Shape::Choice(&["run_after", "skip"]),
            "A wall-clock time that does not exist: run after the gap, or not at all.",
        )
        .default("run_after"),
        field(
            "overlap",
            &Shape::Choice(&["first", "second", "both"]),
            "A wall-clock time that occurs twice.",
        )
        .default("first"),
    ]],
);

/// Days without slots.
pub(super) const EXCLUSIONS: &MapShape = &map(
    "exclusions",
    &[&[
        field("calendar", &TEXT_OR_TEXTS, "Calendars whose days have no slots.")
            .or(&["calendars", "holidays"]),
        field("days", &WEEKDAYS, "Weekdays without slots."),
        field("dates", &DATES, "Dates without slots."),
        field("weekends", &Shape::Bool, "No slots on Saturday and Sunday.").default("false"),
    ]],
);

const INCLUDE: &MapShape = &map(
    "include",
    &[&[
        field("dates", &DATES, "The only dates with slots."),
        field("calendar", &TEXT_OR_TEXTS, "Calendars whose days are the only ones with slots.")
            .or(&["calendars"]),
    ]],
);

/// How readiness is asked over time.
pub(super) const EVALUATION: &MapShape = &map(
    "evaluation",
    &[&[
        field("window", &DURATION, "From a slot's opening, or of a queued one from its turn, until it is given up as not ready.")
            .default("the gap to the next slot, at most 24h"),
        field("interval", &DURATION, "How often readiness is asked besides every sensor change.")
            .default("watcher.defaultInterval"),
    ]],
);

const RECURRENCE: &[Field] = &[
    field("id", &Shape::Text(Format::Id), "Its id within the pipeline.").or(&["name"]).default(
        "`cron`; `stream` for a sensor; `daily` without any time; a hash for unnamed list entries",
    ),
    field("cron", &CRON, "A cron expression: five fields, names, `L W #`, `@daily`, `CRON_TZ=`."),
    field("every", &DURATION, "A slot every so often, at least `1s`."),
    field(
        "at",
        &Shape::Text(Format::TimeOrInstant),
        "A time of day (with `days`, or of `dates`), or one instant.",
    )
    .or(&["after"]),
    field(
        "time",
        &Shape::Text(Format::Time),
        "The same as `at`; beside `cron` it is the expected start, and works as the deadline.",
    ),
    field("dates", &DATES, "Listed dates, at the time of `at`."),
    field("sensor", &Shape::Map(SENSOR), "One slot per period, opened by a sensor.")
        .or(&["trigger"]),
    field("days", &WEEKDAYS, "The only weekdays with slots.").default("every day"),
    field("timezone", &ZONE, "The zone of times and dates.")
        .default("the pipeline's `timezone`, else UTC"),
    field("seconds", &Shape::Bool, "The cron expression has a sixth field in front, seconds.")
        .default("false"),
    field("anchor", &Shape::Text(Format::Instant), "An instant that `every` counts from.")
        .default("1970-01-01T00:00:00Z"),
    field(
        "from",
        &Shape::Text(Format::From),
        "No slot before it; `last` counts `every` from the last success (only `external`).",
    ),
    field("until", &Shape::Text(Format::Instant), "No slot at or after it."),
    field("jitter", &DURATION, "Slots open up to this much later, always the same per pipeline."),
    field("dst", &Shape::Map(DST), "What happens when the clock is changed."),
    field("exclusions", &Shape::Map(EXCLUSIONS), "Days without slots.").or(&["exclude"]),
    field("include", &Shape::Map(INCLUDE), "The only days with slots."),
    field("calendar", &TEXT_OR_TEXTS, "Calendars whose days have no slots."),
];

const JUDGEMENT: &[Field] = &[
    field(
        "deadline",
        &Shape::Text(Format::Deadline),
        "By when a slot must have been evaluated, or its sensor have arrived.",
    )
    .default("sla.evaluationDeadline"),
    field("grace", &DURATION, "Without a deadline: how long after its time a slot is missed.")
        .default("5m"),
    field("startGrace", &DURATION, "How long a slot counts as live.").default("1m"),
    field("early", &DURATION, "How early a report may belong to a slot.")
        .default("a tenth of the gap, at most 1h"),
    field("maxDuration", &SECONDS, "How long a run that is only watched may take.").default("24h"),
];

/// One entry of `schedules` or of a `schedule` list.
pub(super) const ENTRY: &MapShape = &map("a schedule", &[RECURRENCE, JUDGEMENT]);

const START: Shape = Shape::Either(&[
    CRON,
    Shape::List(&Shape::Either(&[CRON, Shape::Map(ENTRY)])),
    Shape::Map(ENTRY),
]);
const CONTROL: Shape = Shape::Either(&[CRON, Shape::List(&CRON)]);

const SCHEDULE_MAP: &MapShape = &map(
    "schedule",
    &[
        &[
            field("start", &START, "When runs are owed."),
            field("stop", &CONTROL, "When running runs are ended; late ones are not made up for."),
            field(
                "restart",
                &CONTROL,
                "When running runs are ended and a new one is started; late ones are not made up for.",
            ),
        ],
        RECURRENCE,
        JUDGEMENT,
        &[field("evaluation", &Shape::Map(EVALUATION), "How readiness is asked over time.")],
    ],
);

/// `schedule`: a cron expression, a list, or a map.
pub(super) const SCHEDULE: Shape = Shape::Either(&[
    CRON,
    Shape::List(&Shape::Either(&[CRON, Shape::Map(ENTRY)])),
    Shape::Map(SCHEDULE_MAP),
]);

/// `schedules`: a list of entries.
pub(super) const SCHEDULES: Shape = Shape::List(&Shape::Either(&[CRON, Shape::Map(ENTRY)]));
