//! `${...}` in texts: which ones there are, and which are allowed where.

use std::ops::Range;

use crate::shape::Placeholders;

/// Values that are known only when a run starts.
const RUN_TIME: [&str; 7] = ["slot", "date", "hour", "runId", "attempt", "pipeline", "schedule"];

/// One `${...}` in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placeholder<'a> {
    /// Where it stands, braces included.
    pub(crate) span: Range<usize>,
    /// What stands between the braces.
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
}

/// What a placeholder names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `${slot}`, `${params.k}`.
    RunTime,
    /// `${HOME}`.
    Environment,
    /// `${file:/run/secrets/token}`.
    File,
    /// Neither.
    Malformed,
}

/// All placeholders of a text.
pub(crate) fn find(text: &str) -> impl Iterator<Item = Placeholder<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find("${")?;
        let end = text.get(start..)?.find('}').map_or(text.len(), |at| start + at + 1);
        from = end;
        let name = text.get(start + 2..end)?.trim_end_matches('}');
        let closed = text.get(start..end)?.ends_with('}');
        let kind = if closed { kind_of(name) } else { Kind::Malformed };
        Some(Placeholder { span: start..end, name, kind })
    })
}

fn kind_of(name: &str) -> Kind {
    if RUN_TIME.contains(&name) || name.strip_prefix("params.").is_some_and(|k| !k.is_empty()) {
        return Kind::RunTime;
    }
    if name.strip_prefix("file:").is_some_and(|path| path.starts_with('/')) {
        return Kind::File;
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let variable =
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(word);
    if variable { Kind::Environment } else { Kind::Malformed }
}

impl Placeholder<'_> {
    /// Why it may not stand in a text, and what to do; `None` when it may.
    pub(crate) fn refusal(&self, allowed: Placeholders, key: &str) -> Option<(String, String)> {
        if self.kind == Kind::Malformed && allowed != Placeholders::None {
            return Some((
                format!("`{}` is not a placeholder", self.shown()),
                "Write `${NAME}` with letters, digits and `_`.".to_owned(),
            ));
        }
        match (allowed, self.kind) {
            (Placeholders::Both, Kind::File) => Some((
                format!("`{}` is not replaced in `{key}`", self.shown()),
                "A file may be named in the secrets of interlock.yaml only.".to_owned(),
            )),
            (Placeholders::Both | Placeholders::Foreign, _)
            | (Placeholders::Environment, Kind::Environment | Kind::File) => None,
            (Placeholders::Environment, Kind::RunTime | Kind::Malformed) => Some((
                format!("`{}` is not known before a run, `{key}` is", self.shown()),
                "Run-time values may stand in commands, urls, bodies and headers of a trigger."
                    .to_owned(),
            )),
            (Placeholders::None, _) => Some((
                format!("`{}` is not replaced in `{key}`", self.shown()),
                "`${ENV}` may stand in secrets, urls, headers, bodies and env values only."
                    .to_owned(),
            )),
        }
    }

    fn shown(&self) -> String {
        format!("${{{}}}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_with_their_kind() {
        let found: Vec<_> =
            find("a ${slot} ${HOME}x ${params.k} ${file:/k} ${file:k} ${} ${a-b} ${open")
                .map(|p| (p.name.to_owned(), p.kind))
                .collect();
        let expected = [
            ("slot", Kind::RunTime),
            ("HOME", Kind::Environment),
            ("params.k", Kind::RunTime),
            ("file:/k", Kind::File),
            ("file:k", Kind::Malformed),
            ("", Kind::Malformed),
            ("a-b", Kind::Malformed),
            ("open", Kind::Malformed),
        ];
        assert_eq!(found, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(find("no $money {here}").count(), 0);
    }
}
