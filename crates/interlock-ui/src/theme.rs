//! Light, dark, or as the system.

/// How the pages are coloured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    /// As the system of who looks.
    #[default]
    Auto,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// All of them, in the order of the switch.
    pub(crate) const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    /// The word for it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// What it is called.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Auto => "As the system",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }

    /// Its icon.
    pub(crate) const fn icon(self) -> &'static str {
        match self {
            Self::Auto => "i-auto",
            Self::Light => "i-sun",
            Self::Dark => "i-moon",
        }
    }

    /// The theme of a word.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.as_str() == word)
    }
}
