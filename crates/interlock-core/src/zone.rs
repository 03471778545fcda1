//! A time zone, prepared for fast and repeatable arithmetic.
//!
//! A zone is a list of segments with a constant offset from UTC. Inside a segment the wall clock is
//! plain integer arithmetic; everything that is hard about local time happens at the borders, and
//! there it is two explicit cases: a gap (the clock jumps forward, wall times are missing) and an
//! overlap (it jumps back, wall times occur twice).
//!
//! The segments are copied out of `jiff` once per zone, so that evaluating a schedule never asks the
//! zone database again, and so that the data a slot was computed from has a [`Zone::fingerprint`].
//! Core does no lookup by name: whoever owns the zone database hands the zone in.

use std::{fmt, ops::Range, sync::Arc};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::{
    civil::{SECONDS_PER_DAY, day_of_date},
    id::fnv1a,
};

/// The first instant that schedules know: 1900-01-01T00:00:00Z.
pub const EARLIEST: i64 = -2_208_988_800;
/// The end of time for schedules: 2200-01-01T00:00:00Z. Work is bounded by it (S17).
pub const LATEST: i64 = 7_258_118_400;

/// A named time zone. Cheap to clone.
#[derive(Clone)]
pub struct Zone(Arc<ZoneData>);

struct ZoneData {
    name: Box<str>,
    time_zone: TimeZone,
    /// Invariant: never empty, without gaps, from [`EARLIEST`] to [`LATEST`].
    segments: Box<[Segment]>,
    /// For each stretch of 2^[`STRETCH_BITS`] seconds, the segment at its beginning: finding the
    /// segment of an instant is then one lookup and a step or two, instead of a binary search.
    first_in_stretch: Box<[u16]>,
    fingerprint: u64,
}

/// No zone is further from UTC than this.
const OFFSET_MAX: i64 = 26 * 3600;

/// About 194 days: most zones change twice a year.
const STRETCH_BITS: u32 = 24;

/// When a wall-clock time occurs: at one instant; at two in an overlap; never in a gap, for which the
/// first instant after it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instants {
    /// The first one.
    pub first: Timestamp,
    /// The last one; the same as the first on all but one night of the year.
    pub last: Timestamp,
}

/// A stretch of time during which a zone's offset does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    index: u16,
    /// First instant, in seconds since the epoch.
    pub(crate) start: i64,
    /// First instant after it.
    pub(crate) end: i64,
    /// Seconds to add to UTC to get the wall clock.
    pub(crate) offset: i64,
    /// The offset of the segment before; the same as `offset` for the first one.
    pub(crate) offset_before: i64,
    /// The offset of the segment after; the same as `offset` for the last one.
    pub(crate) offset_after: i64,
}

impl Zone {
    /// Prepares a zone under the name it was asked for.
    pub fn new(name: &str, time_zone: TimeZone) -> Self {
        let segments = segments_of(&time_zone);
        let stretches = ((LATEST - EARLIEST) >> STRETCH_BITS) + 1;
        let first_in_stretch = (0..stretches)
            .map(|stretch| {
                let begins = EARLIEST + (stretch << STRETCH_BITS);
                segments.partition_point(|segment| segment.end <= begins) as u16
            })
            .collect();
        let fingerprint = fingerprint(&segments);
        let name = name.into();
        Self(Arc::new(ZoneData { name, time_zone, segments, first_in_stretch, fingerprint }))
    }

    /// Coordinated Universal Time.
    pub fn utc() -> Self {
        Self::new("UTC", TimeZone::UTC)
    }

    /// The name it was asked for.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The zone as `jiff` knows it, for rendering.
    pub fn time_zone(&self) -> &TimeZone {
        &self.0.time_zone
    }

    /// A hash of the zone's data, part of a pipeline's version: when a government changes the rules
    /// and the database follows, the version changes too.
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }

    /// When a wall-clock time occurs. Beyond the years that schedules know, their edge is the answer.
    ///
    /// This walks the segments instead of asking `jiff`, which for some zones takes a change of the
    /// standard offset for an overlap (Nuuk, October 2023).
    pub fn instants_of(&self, civil: DateTime) -> Instants {
        let civil = day_of_date(civil.date()) * SECONDS_PER_DAY
            + i64::from(civil.hour()) * 3600
            + i64::from(civil.minute()) * 60
            + i64::from(civil.second());
        let (first, segment) = self.first_instant(civil);
        let (mut last, mut later) = (first, self.segment_after(segment));
        while let Some(segment) = later.filter(|next| next.start + next.offset <= civil) {
            if civil - segment.offset < segment.end {
                last = civil - segment.offset;
            }
            later = self.segment_after(segment);
        }
        Instants { first: timestamp(first), last: timestamp(last) }
    }

    /// The first instant at which the wall clock shows a civil second or a later one, and its segment.
    pub(crate) fn first_instant(&self, civil: i64) -> (i64, Segment) {
        let mut segment = self.segment_at(civil - OFFSET_MAX);
        loop {
            let instant = (civil - segment.offset).max(segment.start);
            match self.segment_after(segment) {
                Some(next) if instant >= segment.end => segment = next,
                _ => return (instant, segment),
            }
        }
    }

    /// The local date at an instant, as a day number.
    pub(crate) fn day_at(&self, second: i64) -> i64 {
        (second + self.segment_at(second).offset).div_euclid(SECONDS_PER_DAY)
    }

    /// The segment that contains an instant; the first or last one for instants out of range.
    #[inline]
    pub(crate) fn segment_at(&self, second: i64) -> Segment {
        let second = second.clamp(EARLIEST, LATEST - 1);
        let stretch = (second - EARLIEST) >> STRETCH_BITS;
        let mut index = self.0.first_in_stretch.get(stretch as usize).copied().unwrap_or(0);
        while self.segment(index).end <= second {
            index += 1;
        }
        self.segment(index)
    }

    pub(crate) fn segment_after(&self, segment: Segment) -> Option<Segment> {
        (segment.end < LATEST).then(|| self.segment(segment.index + 1))
    }

    pub(crate) fn segment_before(&self, segment: Segment) -> Option<Segment> {
        segment.index.checked_sub(1).map(|index| self.segment(index))
    }

    #[inline]
    fn segment(&self, index: u16) -> Segment {
        self.0.segments.get(usize::from(index)).copied().unwrap_or(Segment::WHOLE)
    }
}

fn fingerprint(segments: &[Segment]) -> u64 {
    let mut bytes = Vec::with_capacity(segments.len() * 16);
    for segment in segments {
        bytes.extend_from_slice(&segment.start.to_le_bytes());
        bytes.extend_from_slice(&segment.offset.to_le_bytes());
    }
    fnv1a(&bytes)
}

/// Copies a zone's changes of offset out of the database.
fn segments_of(time_zone: &TimeZone) -> Box<[Segment]> {
    let earliest = timestamp(EARLIEST);
    let offset = i64::from(time_zone.to_offset(earliest).seconds());
    let mut segments =
        vec![Segment { offset, offset_before: offset, offset_after: offset, ..Segment::WHOLE }];
    for transition in time_zone.following(earliest) {
        let start = transition.timestamp().as_second();
        let offset = i64::from(transition.offset().seconds());
        // A change of abbreviation alone is no border.
        let Some(last) = segments.last_mut().filter(|last| last.offset != offset) else { continue };
        if start >= LATEST {
            break;
        }
        last.end = start;
        last.offset_after = offset;
        let (index, offset_before) = (last.index + 1, last.offset);
        segments.push(Segment {
            index,
            start,
            end: LATEST,
            offset,
            offset_before,
            offset_after: offset,
        });
    }
    segments.into()
}

impl Segment {
    /// All of time, on UTC.
    const WHOLE: Self = Self {
        index: 0,
        start: EARLIEST,
        end: LATEST,
        offset: 0,
        offset_before: 0,
        offset_after: 0,
    };

    /// The wall-clock times that are missing before this segment begins, if the clock jumped forward.
    pub(crate) fn gap_before(&self) -> Option<Range<i64>> {
        (self.offset_before < self.offset)
            .then(|| self.start + self.offset_before..self.start + self.offset)
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
            || (self.0.name == other.0.name && self.0.segments == other.0.segments)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.0.name)
    }
}

/// A whole second as a timestamp; callers stay within [`EARLIEST`] and [`LATEST`].
pub(crate) fn timestamp(second: i64) -> Timestamp {
    Timestamp::constant(second.clamp(EARLIEST, LATEST), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_agree_with_jiff_around_every_border() {
        for name in ["Europe/Riga", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"] {
            let zone = Zone::new(name, TimeZone::get(name).unwrap());
            assert!(zone.0.segments.len() > 5, "{name}");
            for start in zone.0.segments.iter().map(|segment| segment.start) {
                for second in [(start - 1).max(EARLIEST), start] {
                    let offset = zone.time_zone().to_offset(timestamp(second)).seconds();
                    assert_eq!(
                        zone.segment_at(second).offset,
                        i64::from(offset),
                        "{name} {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_instant_is_found_again_by_its_wall_clock() {
        for name in ["Europe/Riga", "Australia/Lord_Howe", "Pacific/Apia", "America/Nuuk", "UTC"] {
            let zone = Zone::new(name, TimeZone::get(name).unwrap());
            for segment in &zone.0.segments {
                for second in (segment.start.max(0)..segment.start.max(0) + 90_000).step_by(900) {
                    let at = timestamp(second);
                    let found = zone.instants_of(zone.time_zone().to_datetime(at));
                    assert!(found.first == at || found.last == at, "{name} {at} {found:?}");
                    assert!(found.first <= found.last);
                }
            }
        }
    }

    #[test]
    fn a_missing_time_stands_at_the_end_of_its_gap() {
        let riga = Zone::new("Europe/Riga", TimeZone::get("Europe/Riga").unwrap());
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let found = |civil: &str| riga.instants_of(civil.parse().unwrap());
        let end = at("2021-03-28T04:00:00+03:00");
        assert_eq!(found("2021-03-28T03:30"), Instants { first: end, last: end });
        let both = Instants {
            first: at("2021-10-31T03:30:00+03:00"),
            last: at("2021-10-31T03:30:00+02:00"),
        };
        assert_eq!(found("2021-10-31T03:30"), both);
    }

    #[test]
    fn utc_is_one_segment() {
        let segment = Zone::utc().segment_at(0);
        assert_eq!((segment.start, segment.end, segment.offset), (EARLIEST, LATEST, 0));
    }
}
