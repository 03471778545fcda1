//! What a text may look like: its pattern for editors, its words for people, and which `${...}` are
//! replaced in it.

/// What a text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Any,
    /// A pipeline's name.
    Name,
    /// A schedule's id.
    Id,
    /// `s m h d`.
    Duration,
    /// `m h d`.
    Window,
    /// `ms s m h d`.
    TimeLimit,
    /// `+45m`, a duration or a time of day.
    Deadline,
    Time,
    /// A time of day or an RFC 3339 instant.
    TimeOrInstant,
    /// A date or an RFC 3339 instant.
    Instant,
    /// `last`, a date or an RFC 3339 instant.
    From,
    Date,
    /// `MM-DD`.
    YearDay,
    Weekday,
    Cron,
    Zone,
    /// A shell command: its `${...}` belong to the shell.
    Command,
    /// A path on this host.
    Path,
    /// What begins the keys of a store on Redis.
    KeyPrefix,
    /// The schema of a store on PostgreSQL.
    Schema,
    /// A block of addresses.
    Network,
    /// An address that may name variables and run-time values.
    Url,
    /// Text that may name variables and run-time values.
    Template,
    /// The same, and never shown.
    Hidden,
    /// Text that may name variables and is never shown.
    Secret,
}

/// Which `${...}` are replaced in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholders {
    /// None; one that is written there is a mistake.
    None,
    /// `${ENV}`.
    Environment,
    /// `${ENV}` and the run-time ones, `${slot}` and so on.
    Both,
    /// None, but they mean something to somebody else.
    Foreign,
}

impl Format {
    pub(crate) fn placeholders(self) -> Placeholders {
        match self {
            Self::Command => Placeholders::Foreign,
            Self::Url | Self::Template | Self::Hidden => Placeholders::Both,
            Self::Secret => Placeholders::Environment,
            Self::Any
            | Self::Name
            | Self::Id
            | Self::Duration
            | Self::Window
            | Self::TimeLimit
            | Self::Deadline
            | Self::Time
            | Self::TimeOrInstant
            | Self::Instant
            | Self::From
            | Self::Date
            | Self::YearDay
            | Self::Weekday
            | Self::Cron
            | Self::Zone
            | Self::Path
            | Self::KeyPrefix
            | Self::Schema
            | Self::Network => Placeholders::None,
        }
    }

    /// Whether its text must never be shown.
    pub(crate) fn is_hidden(self) -> bool {
        matches!(self, Self::Hidden | Self::Secret)
    }

    /// Whether a number becomes right by being quoted.
    pub(crate) fn is_free(self) -> bool {
        matches!(
            self,
            Self::Any
                | Self::Name
                | Self::Id
                | Self::Command
                | Self::Path
                | Self::KeyPrefix
                | Self::Schema
                | Self::Template
        )
    }

    /// A regular expression for editors; empty when anything goes.
    pub(crate) fn pattern(self) -> &'static str {
        match self {
            Self::Any | Self::Template | Self::Hidden | Self::Secret => "",
            Self::Name => r"^[a-z0-9][a-z0-9._-]{0,253}[a-z0-9]$",
            Self::Id => r"^(?!(manual|stop|restart)$)[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$",
            Self::Duration => r"^(0*[1-9][0-9]*[smhd])+$",
            Self::Window => r"^(0*[1-9][0-9]*[mhd])+$",
            Self::TimeLimit => r"^(0*[1-9][0-9]*(ms|s|m|h|d))+$",
            Self::Deadline => {
                r"^(([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?|:[0-5][0-9]|\+?(0*[1-9][0-9]*[smhd])+)$"
            }
            Self::Time => r"^([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
            Self::TimeOrInstant => {
                r"^(([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].+)$"
            }
            Self::Instant => r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].+)?$",
            Self::From => r"^(last|[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].+)?)$",
            Self::Date => r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
            Self::YearDay => r"^[0-9]{2}-[0-9]{2}$",
            Self::Weekday => {
                r"^([Mm][Oo][Nn]|[Tt][Uu][Ee]|[Ww][Ee][Dd]|[Tt][Hh][Uu]|[Ff][Rr][Ii]|[Ss][Aa][Tt]|[Ss][Uu][Nn])[A-Za-z]*$"
            }
            Self::Cron | Self::Command | Self::Path => r"\S",
            Self::Zone => r"^[A-Za-z<][A-Za-z0-9_+,./:<>-]*$",
            Self::KeyPrefix => r"^[^{}\s]+$",
            Self::Schema => r"^(?!pg_)[a-z0-9_]{1,63}$",
            Self::Network => r"^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$",
            Self::Url => r"^(https?://|\$\{)",
        }
    }

    /// What to write, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Any => "text",
            Self::Name => "name",
            Self::Id => "schedule id",
            Self::Duration => "duration (`90s`, `1h30m`, `2d`)",
            Self::Window => "duration in `m h d` (`2d12h`)",
            Self::TimeLimit => "duration (`500ms`, `30s`)",
            Self::Deadline => "deadline (`10:00`, `:30`, `2h`, `+20m`)",
            Self::Time => "time of day (`09:30`)",
            Self::TimeOrInstant => "time of day (`09:30`) or instant (`2026-02-25T09:00:00Z`)",
            Self::Instant => "date or instant (`2026-02-25T09:00:00Z`)",
            Self::From => "`last`, date or instant",
            Self::Date => "date (`2026-02-25`)",
            Self::YearDay => "month and day (`12-25`)",
            Self::Weekday => "weekday (`monday`, `mon`)",
            Self::Cron => "cron expression",
            Self::Zone => "time zone (`Europe/Riga`)",
            Self::Command => "command",
            Self::Path => "path",
            Self::KeyPrefix => "text without braces and spaces",
            Self::Schema => "small letters, digits and `_`",
            Self::Network => "address or block of addresses (`10.0.0.0/8`)",
            Self::Url => "URL; `${ENV}` and `${slot}` allowed",
            Self::Template => "text; `${ENV}` and `${slot}` allowed",
            Self::Hidden => "text, never shown; `${ENV}` and `${slot}` allowed",
            Self::Secret => "text, never shown; `${ENV}` and `${file:/path}` allowed",
        }
    }
}
