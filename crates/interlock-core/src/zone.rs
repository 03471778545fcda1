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

use jiff::{Timestamp, tz::TimeZone};

use crate::{civil::SECONDS_PER_DAY, id::fnv1a};

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
}

/// About 194 days: most zones change twice a year.
const STRETCH_BITS: u32 = 24;

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
        Self(Arc::new(ZoneData { name: name.into(), time_zone, segments, first_in_stretch }))
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
        let mut bytes = Vec::with_capacity(self.0.segments.len() * 16);
        for segment in &self.0.segments {
            bytes.extend_from_slice(&segment.start.to_le_bytes());
            bytes.extend_from_slice(&segment.offset.to_le_bytes());
        }
        fnv1a(&bytes)
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
    fn utc_is_one_segment() {
        let segment = Zone::utc().segment_at(0);
        assert_eq!((segment.start, segment.end, segment.offset), (EARLIEST, LATEST, 0));
    }
}
