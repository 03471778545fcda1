//! Marks, pills, badges: small pieces that every page has, as types that a template prints as they are.

use std::fmt;

use askama::filters::HtmlSafe;

/// Text, escaped.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => fmt::Write::write_char(f, other)?,
            }
        }
        Ok(())
    }
}

/// The silhouette of a state (`m-failed` …); which ones there are stands in `templates/defs.html`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Glyph(pub(crate) &'static str);

impl fmt::Display for Glyph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0;
        if id.starts_with("i-") {
            return Icon(id).fmt(f);
        }
        write!(
            f,
            r##"<svg class="g" viewBox="-7 -7 14 14" aria-hidden="true"><use href="#{id}"/></svg>"##
        )
    }
}

impl HtmlSafe for Glyph {}

/// An icon (`i-bell` …).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Icon(pub(crate) &'static str);

impl fmt::Display for Icon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            r##"<svg class="i" viewBox="0 0 16 16" aria-hidden="true"><use href="#{}"/></svg>"##,
            self.0
        )
    }
}

impl HtmlSafe for Icon {}

/// A state: silhouette, word, colour, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) glyph: Glyph,
    pub(crate) word: String,
    /// `is-failed` …; nothing for what needs no person.
    pub(crate) class: &'static str,
}

impl Mark {
    pub(crate) fn new(glyph: &'static str, word: impl Into<String>, class: &'static str) -> Self {
        Self { glyph: Glyph(glyph), word: word.into(), class }
    }

    /// As a pill.
    pub(crate) fn pill(&self) -> Pill<'_> {
        Pill(self)
    }
}

/// A mark with its word.
pub(crate) struct Pill<'a>(&'a Mark);

impl fmt::Display for Pill<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mark { glyph, word, class } = self.0;
        let blank = if class.is_empty() { "" } else { " " };
        write!(f, r#"<span class="pill{blank}{class}">{glyph}{}</span>"#, Escaped(word))
    }
}

impl HtmlSafe for Pill<'_> {}

/// What asked for a run: icon and word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Badge {
    class: &'static str,
    pub(crate) icon: Icon,
    pub(crate) word: &'static str,
}

impl Badge {
    /// Of a trigger type. `catchup` alone is solid, with an icon of its own.
    pub(crate) fn of(trigger_type: &str) -> Self {
        let (class, icon, word) = match trigger_type {
            "scheduler" => ("b-scheduler", "i-clock", "Scheduled"),
            "catchup" => ("b-catchup", "i-rewind", "Catch-up"),
            "manual" => ("b-manual", "i-hand", "Manual"),
            "retry" => ("b-retry", "i-retry", "Retry"),
            "backfill" => ("b-backfill", "i-stack", "Backfill"),
            "sensor" => ("b-sensor", "i-sensor", "Sensor"),
            "webhook" => ("b-webhook", "i-hook", "Webhook"),
            "external" => ("b-external", "i-inward", "Reported"),
            "reconcile" => ("b-reconcile", "i-check", "Reconciled"),
            _ => ("", "i-q", "Other"),
        };
        Self { class, icon: Icon(icon), word }
    }
}

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, icon, word } = self;
        write!(f, r#"<span class="badge {class}">{icon}{word}</span>"#)
    }
}

impl HtmlSafe for Badge {}

/// SVG that was drawn here, of numbers and escaped text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawing(pub(crate) String);

impl fmt::Display for Drawing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl HtmlSafe for Drawing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_from_outside_is_text_and_nothing_else() {
        let mark = Mark::new("m-failed", r#"<script>"x"</script>&'"#, "is-failed");
        let pill = mark.pill().to_string();
        assert!(pill.contains("&lt;script&gt;&quot;x&quot;&lt;/script&gt;&amp;&#39;"), "{pill}");
    }
}
