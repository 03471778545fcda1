//! What archetypes and calendars may say.

use super::{Field, Format, JSON_DICT, MapShape, SECONDS, Shape, TEXT, field, map};

const TRAIT_FIELDS: &[Field] = &[
    field("type", &TEXT, "The trait's name, unique in the archetype.").required(),
    field("description", &TEXT, "For people."),
    field("defaultConfig", &JSON_DICT, "Handed to the evaluator; pipelines override key by key."),
    field("defaultTtl", &SECONDS, "How long a result may be reused."),
    field("defaultTimeout", &SECONDS, "How long the evaluator may take.")
        .default("engine.defaultTimeout"),
];

const TRAIT: &MapShape = &map("a trait", &[TRAIT_FIELDS]);

const RULE_PARAMETERS: &MapShape = &map(
    "parameters",
    &[&[field(
        "threshold",
        &Shape::Int { min: 1, max: 1_000 },
        "How many required traits must pass under `majority-pass`.",
    )
    .default("more than half")]],
);

const READINESS_RULE: &MapShape = &map(
    "readinessRule",
    &[&[
        field(
            "type",
            &Shape::Choice(&["all-required-pass", "majority-pass"]),
            "How the answers become one.",
        )
        .required(),
        field("parameters", &Shape::Map(RULE_PARAMETERS), "Options of the rule."),
    ]],
);

/// A named set of required and optional traits.
pub(super) const ARCHETYPE: &MapShape = &map(
    "the archetype",
    &[&[
        field("name", &TEXT, "What pipelines call it.").required(),
        field("description", &TEXT, "For people."),
        field("requiredTraits", &Shape::List(&Shape::Map(TRAIT)), "Traits that must pass.")
            .required(),
        field("optionalTraits", &Shape::List(&Shape::Map(TRAIT)), "Traits that are only shown."),
        field("readinessRule", &Shape::Map(READINESS_RULE), "How the answers become one.")
            .required(),
    ]],
);

const RANGE: &MapShape = &map(
    "a range",
    &[&[
        field("from", &Shape::Text(Format::Date), "First day.").required(),
        field("to", &Shape::Text(Format::Date), "Last day, included.").required(),
    ]],
);

/// A named set of days.
pub(super) const CALENDAR: &MapShape = &MapShape {
    name: "the calendar",
    groups: &[&[
        field("name", &TEXT, "What schedules call it.").required(),
        field("description", &TEXT, "For people."),
        field(
            "days",
            &Shape::Either(&[
                Shape::Text(Format::Weekday),
                Shape::List(&Shape::Text(Format::Weekday)),
            ]),
            "Whole weekdays.",
        ),
        field("dates", &Shape::List(&Shape::Text(Format::Date)), "Single dates."),
        field("yearly", &Shape::List(&Shape::Text(Format::YearDay)), "Days of every year."),
        field("ranges", &Shape::List(&Shape::Map(RANGE)), "First and last days."),
    ]],
    any_of: &["days", "dates", "yearly", "ranges"],
    variants: &[],
};
