//! The codes of problems: stable for ever, one sentence each.

use crate::problem::Severity;

/// What kind of problem it is. A code that was published never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the sentence of each code is in the table below")]
pub enum Code {
    Unreadable,
    NotUtf8,
    TooLarge,
    Syntax,
    DuplicateKey,
    TooComplex,
    Unsupported,
    Empty,
    More,
    UnknownKey,
    WrongType,
    MissingKey,
    NotAllowed,
    OutOfRange,
    NoValue,
    PlaceholderNotAllowed,
    VariableNotSet,
    Conflict,
    Repeated,
    Refused,
    Duration,
    Time,
    Date,
    Cron,
    Zone,
    Name,
    Url,
    Rule,
    Weekday,
    Network,
    NeverFires,
    DuplicateSchedule,
    RecurrenceCount,
    GraceTooLong,
    NotApplicable,
    EarlyTooLong,
    UnknownCalendar,
    UnknownArchetype,
    UnknownPipeline,
    DependencyCycle,
    DuplicateName,
    UnknownStep,
    StepCycle,
    UnknownTrait,
    NoTrigger,
    CronSurprise,
    SkippedPeriods,
    NoEffect,
    VariableMissingNow,
    NoEvaluator,
}

const TABLE: [(Code, &str, &str); 50] = [
    (Code::Unreadable, "IL0101", "A file or directory cannot be read."),
    (Code::NotUtf8, "IL0102", "A file is not UTF-8 text."),
    (Code::TooLarge, "IL0103", "A file is larger than 1 MiB."),
    (Code::Syntax, "IL0104", "The file is not YAML."),
    (Code::DuplicateKey, "IL0105", "A key is written twice in one place."),
    (Code::TooComplex, "IL0106", "The file is nested too deeply or expands to too many values."),
    (Code::Unsupported, "IL0107", "A feature of YAML that configuration files may not use."),
    (Code::Empty, "IL0108", "The file says nothing."),
    (Code::More, "IL0109", "The file has more problems than are shown."),
    (Code::UnknownKey, "IL0201", "A key that means nothing in this place."),
    (Code::WrongType, "IL0202", "A value of the wrong kind: a list instead of text, for example."),
    (Code::MissingKey, "IL0203", "A key that must be there is not."),
    (Code::NotAllowed, "IL0204", "A value that is not one of the allowed ones."),
    (Code::OutOfRange, "IL0205", "A number that is too small or too large."),
    (Code::NoValue, "IL0206", "A key without a value."),
    (Code::PlaceholderNotAllowed, "IL0207", "A `${...}` where none is replaced."),
    (Code::VariableNotSet, "IL0208", "An environment variable that is not set."),
    (Code::Conflict, "IL0209", "Two keys that exclude each other, or two spellings of one."),
    (Code::Repeated, "IL0210", "The same entry twice in one list."),
    (
        Code::Refused,
        "IL0211",
        "A key or a value that is known and that this version does not act on.",
    ),
    (Code::Duration, "IL0301", "A duration that cannot be read."),
    (Code::Time, "IL0302", "A time of day or a deadline that cannot be read."),
    (Code::Date, "IL0303", "A date or an instant that cannot be read."),
    (Code::Cron, "IL0304", "A cron expression that cannot be read."),
    (Code::Zone, "IL0305", "A time zone that does not exist."),
    (Code::Name, "IL0306", "A name with characters that names may not have."),
    (Code::Url, "IL0307", "An address that is not an http or https URL."),
    (Code::Rule, "IL0308", "A check whose value or field does not fit it."),
    (Code::Weekday, "IL0309", "A weekday that does not exist."),
    (Code::Network, "IL0310", "A block of IP addresses that cannot be read."),
    (Code::NeverFires, "IL0401", "A schedule that has no slot, ever."),
    (Code::DuplicateSchedule, "IL0402", "Two schedules of one pipeline with the same id."),
    (Code::RecurrenceCount, "IL0403", "A schedule that says more than one way to recur."),
    (Code::GraceTooLong, "IL0404", "A grace that is longer than the gap between two slots."),
    (Code::NotApplicable, "IL0405", "A key that does not apply to this kind of schedule."),
    (
        Code::EarlyTooLong,
        "IL0406",
        "An `early` that is not shorter than the gap between two slots.",
    ),
    (Code::UnknownCalendar, "IL0501", "A calendar that no file defines."),
    (Code::UnknownArchetype, "IL0502", "An archetype that no file defines."),
    (Code::UnknownPipeline, "IL0503", "An upstream pipeline or schedule that no file defines."),
    (Code::DependencyCycle, "IL0504", "Pipelines that wait for each other."),
    (Code::DuplicateName, "IL0505", "Two files that define the same name."),
    (Code::UnknownStep, "IL0506", "A step that depends on one that does not exist."),
    (Code::StepCycle, "IL0507", "Steps that wait for each other."),
    (Code::UnknownTrait, "IL0508", "A trait that the pipeline's archetype does not have."),
    (Code::NoTrigger, "IL0901", "A pipeline without a trigger is never due."),
    (
        Code::CronSurprise,
        "IL0902",
        "A cron expression that is legal and probably means something else.",
    ),
    (Code::SkippedPeriods, "IL0903", "An overlap policy that leaves periods without a run."),
    (Code::NoEffect, "IL0904", "A key that has no effect beside what else the file says."),
    (Code::VariableMissingNow, "IL0905", "A variable that the job will need is not set here."),
    (Code::NoEvaluator, "IL0906", "A required trait that no evaluator answers."),
];

impl Code {
    /// All codes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(code, _, _)| *code)
    }

    /// The code as people see it, like `IL0101`.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// What it means, as a sentence.
    pub fn meaning(self) -> &'static str {
        self.row().2
    }

    /// Codes from `IL0900` are warnings.
    pub fn severity(self) -> Severity {
        if self.as_str() < "IL0900" { Severity::Error } else { Severity::Warning }
    }

    fn row(self) -> &'static (Self, &'static str, &'static str) {
        // Invariant: the table is in the order of the enum; the test below keeps it so.
        TABLE.get(self as usize).unwrap_or(&TABLE[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete_ordered_and_in_sentences() {
        for (index, (code, text, meaning)) in TABLE.iter().enumerate() {
            assert_eq!(*code as usize, index, "{text}");
            assert!(meaning.ends_with('.'), "{text}");
        }
        assert!(TABLE.windows(2).all(|pair| pair[0].1 < pair[1].1), "codes must be unique");
        assert_eq!(Code::NoEvaluator as usize + 1, TABLE.len());
    }
}
