//! Reads a cron expression, pointing at the character where it cannot.

use std::ops::Range;

use super::{Cron, CronText, Days, OfMonth, OfWeek, Seconds, Times};
use crate::text::TextError;

/// One of the six fields: what it is called, what it takes.
#[derive(Debug, Clone, Copy)]
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", min: 0, max: 59, names: &[] };
const MINUTE: Field = Field { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Field = Field { name: "hour", min: 0, max: 23, names: &[] };
const DAY_OF_MONTH: Field = Field { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
/// 7 is Sunday too; it is folded onto 0 after ranges have been expanded.
const DAY_OF_WEEK: Field = Field {
    name: "day of week",
    min: 0,
    max: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A piece of the expression and where it stands.
#[derive(Debug, Clone, Copy)]
struct Piece<'a> {
    text: &'a str,
    start: usize,
}

impl<'a> Piece<'a> {
    fn span(self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }

    fn split(self, separator: char) -> impl Iterator<Item = Piece<'a>> {
        self.text.split(separator).scan(self.start, move |start, text| {
            let piece = Piece { text, start: *start };
            *start += text.len() + separator.len_utf8();
            Some(piece)
        })
    }

    /// The parts before and after the first separator.
    fn split_once(self, separator: char) -> Option<(Piece<'a>, Piece<'a>)> {
        let (before, after) = self.text.split_once(separator)?;
        let start = self.start + before.len() + separator.len_utf8();
        Some((Piece { text: before, start: self.start }, Piece { text: after, start }))
    }

    fn error(self, message: impl Into<String>, help: impl Into<String>) -> TextError {
        TextError::new(self.span(), message, help)
    }
}

pub(super) fn parse(text: &str, seconds: Seconds) -> Result<CronText, TextError> {
    let mut pieces = words(text);
    let zone = take_zone(&mut pieces)?;
    let start = pieces.first().map_or(text.len(), |piece| piece.start);
    let body = text.get(start..).unwrap_or("").trim_end();
    if let [piece] = *pieces.as_slice()
        && piece.text.starts_with('@')
    {
        let expansion = expand_macro(piece)?;
        let mut parsed = parse_fields(&words(expansion), body)?;
        parsed.zone = zone;
        return Ok(parsed);
    }
    check_field_count(&pieces, text, seconds)?;
    let mut parsed = parse_fields(&pieces, body)?;
    parsed.zone = zone;
    Ok(parsed)
}

fn words(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_ascii_whitespace(), start) {
            (false, None) => start = Some(at),
            (true, Some(from)) => {
                pieces.push(Piece { text: text.get(from..at).unwrap_or(""), start: from });
                start = None;
            }
            (true, None) | (false, Some(_)) => {}
        }
    }
    pieces
}

fn take_zone(pieces: &mut Vec<Piece<'_>>) -> Result<Option<(String, Range<usize>)>, TextError> {
    let Some(first) = pieces.first().copied() else { return Ok(None) };
    let Some((key, zone)) = first.split_once('=') else { return Ok(None) };
    if !matches!(key.text, "CRON_TZ" | "TZ") {
        return Err(key.error(
            format!("`{}=` is not a setting that an expression can begin with", key.text),
            "Only a zone can stand in front, as in `CRON_TZ=Europe/Berlin 0 9 * * *`.",
        ));
    }
    if zone.text.is_empty() {
        return Err(zone.error(
            format!("`{}=` names no zone", key.text),
            "Write for example `CRON_TZ=Europe/Berlin 0 9 * * *`.",
        ));
    }
    pieces.remove(0);
    Ok(Some((zone.text.to_owned(), zone.span())))
}

fn expand_macro(piece: Piece<'_>) -> Result<&'static str, TextError> {
    let lower = piece.text.to_ascii_lowercase();
    if let Some((_, expansion)) = MACROS.iter().find(|(name, _)| *name == lower) {
        return Ok(expansion);
    }
    let help = match lower.as_str() {
        "@reboot" => "A pipeline owes runs at instants, not at starts of a machine.".to_owned(),
        "@every" => "Write `every: 15m` as a schedule of its own.".to_owned(),
        _ => {
            let names: Vec<_> = MACROS.iter().map(|(name, _)| *name).collect();
            format!("There are {}.", names.join(", "))
        }
    };
    Err(piece.error(format!("`{}` is not a known shorthand", piece.text), help))
}

fn check_field_count(pieces: &[Piece<'_>], text: &str, seconds: Seconds) -> Result<(), TextError> {
    let (wanted, order) = match seconds {
        Seconds::Absent => (5, "minute, hour, day of month, month, day of week"),
        Seconds::Present => (6, "second, minute, hour, day of month, month, day of week"),
    };
    if let Some(piece) = pieces.first()
        && piece.text.starts_with('@')
    {
        return expand_macro(*piece).and_then(|_| {
            Err(TextError::new(
                piece.span().end..text.len(),
                format!("nothing can follow `{}`", piece.text),
                "",
            ))
        });
    }
    if pieces.len() < wanted {
        return Err(TextError::new(
            text.trim_end().len()..text.trim_end().len(),
            format!("{} of {wanted} fields given", pieces.len()),
            format!("The fields are {order}."),
        ));
    }
    let Some(extra) = pieces.get(wanted) else { return Ok(()) };
    let help = match seconds {
        Seconds::Absent => format!(
            "The fields are {order}. If the first one here is meant as seconds, say `seconds: true`."
        ),
        Seconds::Present => format!("The fields are {order}."),
    };
    Err(extra.error(format!("{} fields given where there are {wanted}", pieces.len()), help))
}

fn parse_fields(pieces: &[Piece<'_>], body: &str) -> Result<CronText, TextError> {
    let (second, rest) = match *pieces {
        [second, minute, hour, day, month, weekday] => {
            (Some(second), [minute, hour, day, month, weekday])
        }
        [minute, hour, day, month, weekday] => (None, [minute, hour, day, month, weekday]),
        _ => return Err(TextError::new(0..body.len(), "not a cron expression", "")),
    };
    let [minute, hour, day, month, weekday] = rest;
    let second = second.map(|piece| plain_field(SECOND, piece)).transpose()?;
    let second = second.unwrap_or(Set { bits: 1, has_star: false });
    let minute = plain_field(MINUTE, minute)?;
    let hour = plain_field(HOUR, hour)?;
    let (of_month, of_month_special) = day_of_month(day)?;
    let months = plain_field(MONTH, month)?;
    let (of_week, of_week_special) = day_of_week(weekday)?;
    let either = !of_month.has_star && !of_week.has_star;
    let cron = Cron {
        text: body.into(),
        times: Times { hours: hour.bits as u32, minutes: minute.bits, seconds: second.bits },
        days: Days {
            months: (months.bits >> 1) as u16,
            of_month: (of_month.bits >> 1) as u32,
            of_month_special,
            of_week: (of_week.bits | of_week.bits >> 7) as u8 & 0x7f,
            of_week_special,
            either,
        },
        is_fixed: !second.has_star && !minute.has_star && !hour.has_star,
        day_fields: day.start..weekday.span().end,
    };
    let both_days = TextError::new(
        cron.day_fields(),
        "day of month and day of week are both set, so a day matches when either does",
        "If both must match, set one of them to `*` and use a calendar for the other.",
    );
    Ok(CronText { cron, zone: None, warnings: if either { vec![both_days] } else { vec![] } })
}

/// The values that a field lists, and whether one of its items is a star.
#[derive(Debug, Clone, Copy, Default)]
struct Set {
    bits: u64,
    has_star: bool,
}

fn plain_field(field: Field, piece: Piece<'_>) -> Result<Set, TextError> {
    let mut set = Set::default();
    for item in items(field, piece)? {
        add_item(field, item, &mut set)?;
    }
    Ok(set)
}

fn items(field: Field, piece: Piece<'_>) -> Result<Vec<Piece<'_>>, TextError> {
    let items: Vec<_> = piece.split(',').collect();
    match items.iter().find(|item| item.text.is_empty()) {
        Some(empty) => Err(empty.error(
            format!("an item is missing in the {} field `{}`", field.name, piece.text),
            "Remove the comma or write a value next to it.",
        )),
        None => Ok(items),
    }
}

fn add_item(field: Field, item: Piece<'_>, set: &mut Set) -> Result<(), TextError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(step)),
        None => (item, None),
    };
    let is_day = field.name == DAY_OF_MONTH.name || field.name == DAY_OF_WEEK.name;
    let (first, last) = if base.text == "*" || (base.text == "?" && is_day && step.is_none()) {
        set.has_star = true;
        (field.min, field.max - u32::from(field.max == 7))
    } else if let Some((first, last)) = base.split_once('-') {
        range(field, base, first, last)?
    } else {
        let value = number(field, base)?;
        // `5/15` is what Quartz and others mean by "from 5 on, every 15".
        let last = if step.is_some() { field.max - u32::from(field.max == 7) } else { value };
        (value, last)
    };
    let step = step.map_or(Ok(1), |step| step_of(field, step))?;
    for value in (first..=last).step_by(step as usize) {
        set.bits |= 1 << value;
    }
    Ok(())
}

fn range(
    field: Field,
    whole: Piece<'_>,
    first: Piece<'_>,
    last: Piece<'_>,
) -> Result<(u32, u32), TextError> {
    let from = number(field, first)?;
    let mut to = number(field, last)?;
    // A range may end with Sunday although the week begins with it: `fri-sun`, `5-7`.
    if field.max == 7 && to == 0 && from > 0 {
        to = 7;
    }
    let from = if field.max == 7 && from == 7 { 0 } else { from };
    if from > to {
        return Err(whole.error(
            format!("the {} range `{}` runs backwards", field.name, whole.text),
            format!(
                "Write it as two ranges: `{}-{},{}-{}`.",
                first.text,
                field.max - u32::from(field.max == 7),
                field.min,
                last.text
            ),
        ));
    }
    Ok((from, to))
}

fn step_of(field: Field, piece: Piece<'_>) -> Result<u32, TextError> {
    let size = field.max - field.min + u32::from(field.max != 7);
    let step = digits(piece).ok_or_else(|| {
        piece.error(
            format!("`{}` is not a step", piece.text),
            format!("A step is a number from 1 to {}, as in `*/5`.", size - 1),
        )
    })?;
    if step == 0 || step >= size {
        return Err(piece.error(
            format!("a step of {step} does not fit the {} field", field.name),
            format!("A step there is a number from 1 to {}.", size - 1),
        ));
    }
    Ok(step)
}

fn number(field: Field, piece: Piece<'_>) -> Result<u32, TextError> {
    if let Some(value) = digits(piece) {
        return in_bounds(field, piece, value);
    }
    let lower = piece.text.to_ascii_lowercase();
    if let Some(index) = field.names.iter().position(|name| *name == lower) {
        return Ok(index as u32 + field.min);
    }
    let help = match field.names {
        [] => format!(
            "The {} field takes {} to {}, `*`, ranges `a-b`, steps `*/n` and lists `a,b`.",
            field.name, field.min, field.max
        ),
        [first, .., last] => format!(
            "The {} field takes {} to {} or names from `{first}` to `{last}`, `*`, ranges, steps and lists.",
            field.name, field.min, field.max
        ),
        [_] => String::new(),
    };
    if piece.text.is_empty() {
        return Err(piece.error(format!("a value is missing in the {} field", field.name), help));
    }
    Err(piece.error(format!("`{}` means nothing in the {} field", piece.text, field.name), help))
}

fn in_bounds(field: Field, piece: Piece<'_>, value: u32) -> Result<u32, TextError> {
    if (field.min..=field.max).contains(&value) {
        return Ok(value);
    }
    Err(piece.error(
        format!("{} is outside {}-{}, the {} field", piece.text, field.min, field.max, field.name),
        "",
    ))
}

/// A plain number; very long ones are as good as the largest, which no field takes.
fn digits(piece: Piece<'_>) -> Option<u32> {
    let all_digits = !piece.text.is_empty() && piece.text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| piece.text.parse().unwrap_or(u32::MAX))
}

fn day_of_month(piece: Piece<'_>) -> Result<(Set, Vec<OfMonth>), TextError> {
    let (mut set, mut special) = (Set::default(), Vec::new());
    for item in items(DAY_OF_MONTH, piece)? {
        match special_of_month(item)? {
            Some(found) => special.push(found),
            None => add_item(DAY_OF_MONTH, item, &mut set)?,
        }
    }
    Ok((set, special))
}

fn special_of_month(item: Piece<'_>) -> Result<Option<OfMonth>, TextError> {
    let upper = item.text.to_ascii_uppercase();
    if upper == "L" {
        return Ok(Some(OfMonth::BeforeLast(0)));
    }
    if upper == "LW" {
        return Ok(Some(OfMonth::LastWeekday));
    }
    if upper.starts_with("L-")
        && let Some((_, days)) = item.split_once('-')
    {
        return match digits(days) {
            Some(n @ 1..=30) => Ok(Some(OfMonth::BeforeLast(n as u8))),
            _ => Err(days.error(
                format!("`{}` is not a number of days before the last of the month", days.text),
                "`L-n` takes 1 to 30.",
            )),
        };
    }
    if !upper.ends_with('W') {
        return Ok(None);
    }
    let day = Piece { text: item.text.get(..item.text.len() - 1).unwrap_or(""), start: item.start };
    match digits(day) {
        Some(n) => {
            let n = in_bounds(DAY_OF_MONTH, day, n)?;
            Ok(Some(OfMonth::NearestWeekday(n as u8)))
        }
        None => Err(item.error(
            format!("`{}` does not say which day's nearest weekday is meant", item.text),
            "Write for example `15W`, or `LW` for the last weekday of the month.",
        )),
    }
}

fn day_of_week(piece: Piece<'_>) -> Result<(Set, Vec<OfWeek>), TextError> {
    let (mut set, mut special) = (Set::default(), Vec::new());
    for item in items(DAY_OF_WEEK, piece)? {
        match special_of_week(item)? {
            Some(found) => special.push(found),
            None => add_item(DAY_OF_WEEK, item, &mut set)?,
        }
    }
    Ok((set, special))
}

fn special_of_week(item: Piece<'_>) -> Result<Option<OfWeek>, TextError> {
    if let Some((day, n)) = item.split_once('#') {
        let weekday = number(DAY_OF_WEEK, day)? as u8 % 7;
        return match digits(n) {
            Some(n @ 1..=5) => Ok(Some(OfWeek::Nth { weekday, n: n as u8 })),
            _ => Err(n.error(
                format!("`{}` is not a position in the month", n.text),
                "`d#n` takes 1 to 5, as in `5#3` for the third Friday.",
            )),
        };
    }
    if !item.text.ends_with(['L', 'l']) {
        return Ok(None);
    }
    let day = Piece { text: item.text.get(..item.text.len() - 1).unwrap_or(""), start: item.start };
    if day.text.is_empty() {
        return Err(item.error(
            "`L` alone means nothing in the day of week field",
            "Write `6` for Saturday, or `5L` for the last Friday of the month.",
        ));
    }
    Ok(Some(OfWeek::Last { weekday: number(DAY_OF_WEEK, day)? as u8 % 7 }))
}
