//! Did you mean: the closest of some words.

const WORD_MAX: usize = 60;

/// The candidate that somebody probably meant, if one is close enough.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Comparing takes time for each letter, and nobody mistypes a word that long.
    if word.len() > WORD_MAX {
        return None;
    }
    let wanted = plain(word);
    let outline = Outline::of(&wanted);
    // One slip per three letters, so that short words do not match each other.
    let slips_max = (outline.length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .filter(|candidate| outline.may_be_within(slips_max, &Outline::of(candidate)))
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < candidate.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// How long a word is and which letters it has: enough to see that two words are far apart without
/// comparing them. A file of nothing but unknown keys must not take longer than a good one.
struct Outline {
    length: usize,
    letters: u32,
}

impl Outline {
    fn of(word: &str) -> Self {
        let mut outline = Self { length: 0, letters: 0 };
        for c in word.chars().filter(|c| !is_separator(*c)) {
            outline.length += 1;
            outline.letters |= 1 << (u32::from(c.to_ascii_lowercase()) % 32);
        }
        outline
    }

    /// A slip changes the length by one at most, and adds or removes one letter or both.
    fn may_be_within(&self, slips: usize, other: &Self) -> bool {
        self.length.abs_diff(other.length) <= slips
            && (self.letters ^ other.letters).count_ones() as usize <= 2 * slips
    }
}

/// A help sentence with the closest word; empty when none is close.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    closest(word, candidates).map_or_else(String::new, |found| format!("Did you mean `{found}`?"))
}

/// A help sentence with the closest word, else with all of them.
pub(crate) fn did_you_mean_or_list(word: &str, what: &str, candidates: &[&str]) -> String {
    if let Some(found) = closest(word, candidates.iter().copied()) {
        return format!("Did you mean `{found}`?");
    }
    if candidates.is_empty() { String::new() } else { format!("{what}: {}.", listed(candidates)) }
}

/// Words in a row, a long row cut.
pub(crate) fn listed(words: &[&str]) -> String {
    const SHOWN_MAX: usize = 20;
    let mut text = words.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if words.len() > SHOWN_MAX {
        text.push_str(" and more");
    }
    text
}

/// Spellings that differ only in case and separators are the same word.
fn plain(word: &str) -> String {
    word.chars().filter(|c| !is_separator(*c)).flat_map(char::to_lowercase).collect()
}

fn is_separator(c: char) -> bool {
    matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_word_is_found_and_far_ones_are_not() {
        let keys = ["schedule", "schedules", "steps", "sla", "retry", "catchupWindow"];
        assert_eq!(closest("shedule", keys), Some("schedule"));
        assert_eq!(closest("catchup_window", keys), Some("catchupWindow"));
        assert_eq!(closest("CatchUpWindow", keys), Some("catchupWindow"));
        assert_eq!(closest("rety", keys), Some("retry"));
        assert_eq!(closest("xyz", keys), None);
        assert_eq!(closest("slo", keys), Some("sla"));
        assert_eq!(closest("", keys), None);
    }
}
