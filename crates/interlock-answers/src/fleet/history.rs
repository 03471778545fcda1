//! What is known of a pipeline's time before the last 48 hours, kept for a while after a page asked about it.

use jiff::Timestamp;

use super::{
    cells::{CountedCell, PackedCells, Quarter},
    seen::QuarterRange,
};

/// Quarters of an hour: so wide a cell of the past is.
const QUARTERS: i64 = 4;

/// Slots of a pipeline from one quarter on, before another, by the hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PipelineHistory {
    /// Nothing is known of the time before this.
    pub(super) from: Quarter,
    /// Nothing is kept from this on.
    pub(super) until: Quarter,
    /// When it was read. What was changed since is known by events, and is read again after a while in any case.
    pub(super) read_at: Timestamp,
    hours: PackedCells,
}

impl PipelineHistory {
    /// Nothing, up to a quarter.
    pub(super) fn empty(until: Quarter, read_at: Timestamp) -> Self {
        Self { from: until, until, read_at, hours: PackedCells::default() }
    }

    /// The same with what was read of another time, before or after it.
    pub(super) fn extended(&self, range: QuarterRange, counted: Vec<CountedCell>) -> Self {
        let hour = |cell: CountedCell| {
            let hour = Quarter(cell.at.0.div_euclid(QUARTERS));
            CountedCell { at: hour, ..cell }
        };
        let counted = self.hours.counted().chain(counted.into_iter().map(hour)).collect();
        let (from, until) = (self.from.min(range.from), self.until.max(range.until));
        let hours = PackedCells::pack(Quarter(from.0.div_euclid(QUARTERS)), counted);
        Self { from, until, read_at: self.read_at, hours }
    }

    /// The counts; each stands at the first quarter of its hour.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedCell> {
        let first = |cell: CountedCell| CountedCell { at: Quarter(cell.at.0 * QUARTERS), ..cell };
        self.hours.counted().map(first)
    }

    /// How many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.hours.bytes()
    }
}
