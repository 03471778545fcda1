//! What every file may say, defined once.
//!
//! A [`Shape`] is plain static data. Three things are made from it and can therefore never disagree:
//! the structural check that reports every unknown key, wrong kind and missing key of a file in one
//! pass ([`check`]), the JSON Schema for editors ([`schema`]), and the reference page
//! ([`mod@reference`]). What a text means (a duration, a cron expression) is decided by the decoders.

pub(crate) mod check;
mod format;
mod job;
mod kind;
mod pipeline;
mod places;
pub(crate) mod reference;
mod schedule;
pub(crate) mod schema;
mod server;
mod small;

pub(crate) use format::{Format, Placeholders};

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// `interlock.yaml`.
    Config,
    /// One pipeline.
    Pipeline,
    /// One archetype.
    Archetype,
    /// One calendar.
    Calendar,
}

/// The stores that there are, and the keys of their sections.
pub(crate) const STORES: [&str; 3] = ["embedded", "redis", "postgres"];

/// Whether a key of `interlock.yaml` may say something about the store: one that nobody knows may.
pub(crate) fn is_about_the_store(key: &str) -> bool {
    let known = FileKind::Config.shape().fields().any(|field| field.is(key));
    !known || key == "provider" || key == "dynamodb" || STORES.contains(&key)
}

impl FileKind {
    /// All kinds, the most used first.
    pub const ALL: [Self; 4] = [Self::Pipeline, Self::Config, Self::Archetype, Self::Calendar];

    /// The word people type.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Pipeline => "pipeline",
            Self::Archetype => "archetype",
            Self::Calendar => "calendar",
        }
    }

    /// The kind that a word names.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// What a file of this kind may say.
    pub(crate) fn shape(self) -> &'static MapShape {
        match self {
            Self::Config => server::CONFIG,
            Self::Pipeline => pipeline::PIPELINE,
            Self::Archetype => small::ARCHETYPE,
            Self::Calendar => small::CALENDAR,
        }
    }
}

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Text.
    Text(Format),
    /// Text, number or boolean, taken as it is written.
    Scalar(Format),
    /// A whole number.
    Int { min: i64, max: i64 },
    /// Any number, at least this.
    Number { min: f64 },
    /// `true` or `false`.
    Bool,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Any number of values of one shape.
    List(&'static Shape),
    /// Known keys.
    Map(&'static MapShape),
    /// Keys that the user chooses.
    Dict(&'static Shape),
    /// Shapes that YAML itself can tell apart: text, list, map.
    Either(&'static [Shape]),
    /// Anything; kept as JSON.
    Json,
}

/// A map with known keys.
#[derive(Debug)]
pub(crate) struct MapShape {
    /// What people call it in a sentence.
    pub(crate) name: &'static str,
    /// Its keys, in groups that other maps may share.
    pub(crate) groups: &'static [&'static [Field]],
    /// At least one of these keys must be there.
    pub(crate) any_of: &'static [&'static str],
    /// A key whose value decides which further keys there are.
    pub(crate) variants: &'static [Variant],
}

/// Keys that a map has when its `type` is one of some words.
#[derive(Debug)]
pub(crate) struct Variant {
    /// The words; the first is the one that is documented.
    pub(crate) types: &'static [&'static str],
    /// The keys, in groups that others may share.
    pub(crate) groups: &'static [&'static [Field]],
    /// At least one of these keys must be there.
    pub(crate) any_of: &'static [&'static str],
    /// Further keys are kept as JSON.
    pub(crate) open: bool,
    /// What to write instead, if nothing acts on these types.
    pub(crate) refused: &'static str,
}

impl Variant {
    /// Its keys.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.groups.iter().flat_map(|group| group.iter())
    }
}

/// The key that chooses a [`Variant`].
pub(crate) const TYPE: &str = "type";

/// One key of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// Other spellings.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) shape: &'static Shape,
    /// One sentence for people.
    pub(crate) doc: &'static str,
    pub(crate) required: bool,
    /// What holds without it; empty when nothing does.
    pub(crate) default: &'static str,
    /// What to write instead, if nothing acts on it; empty when something does.
    pub(crate) refused: &'static str,
    /// Words that it does not take although people know them, each with what to write instead.
    pub(crate) refused_words: &'static [(&'static str, &'static str)],
    /// The first version that knows it.
    pub(crate) since: &'static str,
}

/// A key that may be left out.
pub(crate) const fn field(name: &'static str, shape: &'static Shape, doc: &'static str) -> Field {
    Field {
        name,
        aliases: &[],
        shape,
        doc,
        required: false,
        default: "",
        refused: "",
        refused_words: &[],
        since: "0.1",
    }
}

impl Field {
    /// The same key, which must be there.
    pub(crate) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The same key with what holds without it.
    pub(crate) const fn default(mut self, text: &'static str) -> Self {
        self.default = text;
        self
    }

    /// The same key with other spellings.
    pub(crate) const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// The same key, on which nothing acts: it is refused with what to write instead.
    pub(crate) const fn refused(mut self, instead: &'static str) -> Self {
        self.refused = instead;
        self
    }

    /// The same key, with words that are refused, each with what to write instead.
    pub(crate) const fn refusing(mut self, words: &'static [(&'static str, &'static str)]) -> Self {
        self.refused_words = words;
        self
    }

    /// Whether it may be written.
    pub(crate) fn is_accepted(&self) -> bool {
        self.refused.is_empty()
    }

    /// Whether a word in a file is this key.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.name == word || self.aliases.contains(&word)
    }
}

/// A map without variants.
pub(crate) const fn map(name: &'static str, groups: &'static [&'static [Field]]) -> MapShape {
    MapShape { name, groups, any_of: &[], variants: &[] }
}

impl MapShape {
    /// Its keys that do not depend on a variant.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static Field> {
        self.groups.iter().flat_map(|group| group.iter())
    }

    /// Whether this is another view of the same map: constants have no identity of their own.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
            && self.fields().map(|field| field.name).eq(other.fields().map(|field| field.name))
    }

    /// The variant that a word chooses.
    pub(crate) fn variant(&self, word: &str) -> Option<&'static Variant> {
        self.variants.iter().find(|variant| variant.types.contains(&word))
    }

    /// The variants that may be written.
    pub(crate) fn accepted_variants(&self) -> impl Iterator<Item = &'static Variant> {
        self.variants.iter().filter(|variant| variant.refused.is_empty())
    }

    /// All words that choose a variant which may be written.
    pub(crate) fn variant_words(&self) -> Vec<&'static str> {
        self.accepted_variants().flat_map(|variant| variant.types.iter().copied()).collect()
    }
}

/// Any text, without placeholders.
pub(crate) const TEXT: Shape = Shape::Text(Format::Any);
/// A list of texts.
pub(crate) const TEXTS: Shape = Shape::List(&TEXT);
/// One text or several.
pub(crate) const TEXT_OR_TEXTS: Shape = Shape::Either(&[TEXT, Shape::List(&TEXT)]);
/// A duration in `s m h d`.
pub(crate) const DURATION: Shape = Shape::Text(Format::Duration);
/// A duration, or a number of seconds as the Go configuration has it.
pub(crate) const SECONDS: Shape =
    Shape::Either(&[Shape::Text(Format::TimeLimit), Shape::Int { min: 0, max: 31_536_000 }]);
/// A time zone.
pub(crate) const ZONE: Shape = Shape::Text(Format::Zone);
/// Texts under names that the user chooses.
pub(crate) const TEXT_DICT: Shape = Shape::Dict(&Shape::Scalar(Format::Any));
/// Values that may hold secrets under names that the user chooses.
pub(crate) const ENV_DICT: Shape = Shape::Dict(&Shape::Scalar(Format::Hidden));
/// JSON under names that the user chooses.
pub(crate) const JSON_DICT: Shape = Shape::Dict(&Shape::Json);
