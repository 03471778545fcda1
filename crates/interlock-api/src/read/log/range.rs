//! `Range: bytes=…`, as RFC 9110 has it.

use std::ops::Range;

/// One range of bytes. Several at once are not served: such a header is passed over, as it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeRequest {
    /// From a byte to another, or to the end.
    From(u64, Option<u64>),
    /// The last ones.
    Last(u64),
}

impl RangeRequest {
    /// Reads the header; `None` for what is no single range of bytes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let number = |text: &str| -> Option<u64> {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (first, last) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// Which bytes of so many; `None` if there are none of them.
    pub(super) fn of(self, length: u64) -> Option<Range<u64>> {
        let bytes = match self {
            Self::From(first, last) => {
                first..last.map_or(length, |last| last.saturating_add(1).min(length))
            }
            Self::Last(count) => length.saturating_sub(count)..length,
        };
        (bytes.start < bytes.end).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_to_what_is_there() {
        let check = |text: &str, expected: Option<Range<u64>>| {
            let found = RangeRequest::parse(text).and_then(|range| range.of(10));
            assert_eq!(found, expected, "{text}");
        };
        check("bytes=0-0", Some(0..1));
        check("bytes=2-4", Some(2..5));
        check("Bytes= 2-99", Some(2..10));
        check("bytes=9-", Some(9..10));
        check("bytes=-3", Some(7..10));
        check("bytes=-99", Some(0..10));
        check("bytes=10-", None);
        check("bytes=-0", None);
        check("bytes=0-18446744073709551615", Some(0..10));
    }

    #[test]
    fn what_is_no_single_range_of_bytes_is_passed_over() {
        for odd in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=4-2",
            "lines=1-2",
            "bytes=0-1,3-4",
        ] {
            assert_eq!(RangeRequest::parse(odd), None, "{odd}");
        }
        assert_eq!(RangeRequest::parse("bytes=+1-2"), None);
        assert_eq!(RangeRequest::parse("bytes=99999999999999999999-"), None);
    }
}
