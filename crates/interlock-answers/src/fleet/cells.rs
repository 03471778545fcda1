//! How many slots are in each place at which time, in few bytes: what repeats is kept once.

use jiff::Timestamp;

use crate::model::fleet::{FleetCountsAnswer, FleetPlace};

/// How many seconds a cell of the last days is wide. Every zone's midnight is at the border of one.
pub(super) const QUARTER: i64 = 900;

/// A quarter of an hour, counted from the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Quarter(pub(super) i64);

impl Quarter {
    /// The one that an instant is in.
    pub(super) fn of(at: Timestamp) -> Self {
        // Before a whole second is before it, also before the epoch.
        let second = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
        Self(second.div_euclid(QUARTER))
    }

    /// The first at or after an instant.
    pub(super) fn at_or_after(at: Timestamp) -> Self {
        let within = Self::of(at);
        if within.start() == at { within } else { within.after(1) }
    }

    /// Its first instant.
    pub(super) fn start(self) -> Timestamp {
        Timestamp::from_second(self.0.saturating_mul(QUARTER)).unwrap_or(Timestamp::MAX)
    }

    /// So many later.
    pub(super) fn after(self, quarters: i64) -> Self {
        Self(self.0 + quarters)
    }
}

/// So many slots in a place at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CountedCell {
    pub(super) at: Quarter,
    pub(super) place: FleetPlace,
    pub(super) count: u64,
}

/// Cells of some days, packed: 12 bits say when a stretch of equal cells begins, 6 how long it is, 4 the place and 10 how many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PackedCells {
    base: i64,
    stretches: Box<[u32]>,
}

const OFFSETS: i64 = 1 << 12;
const LENGTH_MAX: u32 = 1 << 6;
const COUNT_MAX: u64 = (1 << 10) - 1;

impl PackedCells {
    /// Packs counts, which may be in any order. Those before the base, or forty days and more behind it, are left out.
    pub(super) fn pack(base: Quarter, mut counted: Vec<CountedCell>) -> Self {
        counted.retain(|cell| (0..OFFSETS).contains(&(cell.at.0 - base.0)) && cell.count > 0);
        counted.sort_unstable_by_key(|cell| (cell.place, cell.at));
        let mut merged: Vec<CountedCell> = Vec::with_capacity(counted.len());
        for cell in counted {
            match merged.last_mut() {
                Some(last) if (last.at, last.place) == (cell.at, cell.place) => {
                    last.count += cell.count;
                }
                _ => merged.push(cell),
            }
        }
        let mut stretches: Vec<Stretch> = Vec::new();
        for cell in merged {
            let mut left = cell.count;
            while left > 0 {
                let count = left.min(COUNT_MAX);
                left -= count;
                let next = Stretch {
                    offset: (cell.at.0 - base.0) as u32,
                    length: 1,
                    place: cell.place,
                    count: count as u32,
                };
                match stretches.last_mut() {
                    Some(last) if last.goes_on_with(next) => last.length += 1,
                    _ => stretches.push(next),
                }
            }
        }
        Self { base: base.0, stretches: stretches.into_iter().map(Stretch::packed).collect() }
    }

    /// The counts, by place and then by time.
    pub(super) fn counted(&self) -> impl Iterator<Item = CountedCell> {
        let base = Quarter(self.base);
        self.stretches().flat_map(move |stretch| {
            (0..stretch.length).map(move |step| CountedCell {
                at: base.after(i64::from(stretch.offset + step)),
                place: stretch.place,
                count: u64::from(stretch.count),
            })
        })
    }

    fn stretches(&self) -> impl Iterator<Item = Stretch> {
        self.stretches.iter().map(|packed| Stretch::unpacked(*packed))
    }

    /// Whether any quarter from one on and before another has a slot in it.
    pub(super) fn touches(&self, from: Quarter, until: Quarter) -> bool {
        self.stretches().any(|stretch| stretch.within(self.base, from, until) > 0)
    }

    /// How many slots are in each place from a quarter on and before another.
    pub(super) fn counts(&self, from: Quarter, until: Quarter) -> FleetCountsAnswer {
        let mut counts = FleetCountsAnswer::default();
        for stretch in self.stretches() {
            let quarters = stretch.within(self.base, from, until);
            counts.add(stretch.place, quarters * u64::from(stretch.count));
        }
        counts
    }

    /// The first quarter behind one that has a slot in it.
    pub(super) fn first_after(&self, quarter: Quarter) -> Option<Quarter> {
        let first = |stretch: Stretch| {
            let from = self.base + i64::from(stretch.offset);
            let found = from.max(quarter.0 + 1);
            (found < from + i64::from(stretch.length)).then_some(Quarter(found))
        };
        self.stretches().filter_map(first).min()
    }

    /// The same with other counts between two quarters, and none before a new base.
    pub(super) fn replaced(
        &self,
        base: Quarter,
        (from, until): (Quarter, Quarter),
        with: Vec<CountedCell>,
    ) -> Self {
        let kept = self.counted().filter(|cell| cell.at < from || cell.at >= until);
        Self::pack(base, kept.chain(with).collect())
    }

    /// How many bytes it takes beside itself.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.stretches)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    offset: u32,
    length: u32,
    place: FleetPlace,
    count: u32,
}

impl Stretch {
    /// How many of its quarters are from one on and before another.
    fn within(self, base: i64, from: Quarter, until: Quarter) -> u64 {
        let first = base + i64::from(self.offset);
        let end = first + i64::from(self.length);
        (end.min(until.0) - first.max(from.0)).max(0) as u64
    }

    fn goes_on_with(self, next: Self) -> bool {
        self.place == next.place
            && self.count == next.count
            && self.offset + self.length == next.offset
            && self.length < LENGTH_MAX
    }

    fn packed(self) -> u32 {
        let place = FleetPlace::ALL.iter().position(|place| *place == self.place);
        let place = place.unwrap_or_default() as u32;
        self.offset << 20 | (self.length - 1) << 14 | place << 10 | self.count
    }

    fn unpacked(packed: u32) -> Self {
        let place = FleetPlace::ALL.get((packed >> 10 & 0xF) as usize).copied();
        Self {
            offset: packed >> 20,
            length: (packed >> 14 & 0x3F) + 1,
            place: place.unwrap_or(FleetPlace::Unknown),
            count: packed & 0x3FF,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(at: i64, place: FleetPlace, count: u64) -> CountedCell {
        CountedCell { at: Quarter(at), place, count }
    }

    #[test]
    fn what_is_packed_comes_back_and_what_repeats_takes_four_bytes() {
        let base = 2_000_000;
        let many = (0..192).map(|step| cell(base + step, FleetPlace::OnTime, 15));
        let packed = PackedCells::pack(Quarter(base), many.clone().collect());
        assert_eq!(packed.bytes(), 3 * 4, "192 equal cells are three stretches of 64");
        assert_eq!(packed.counted().collect::<Vec<_>>(), many.collect::<Vec<_>>());
        let odd = vec![
            cell(base + 5, FleetPlace::Failed, 1),
            cell(base + 4_095, FleetPlace::Planned, 5_000),
            cell(base + 5, FleetPlace::Failed, 2),
            cell(base - 1, FleetPlace::Failed, 1),
            cell(base + 4_096, FleetPlace::Failed, 1),
        ];
        let packed = PackedCells::pack(Quarter(base), odd);
        let sum = |place| {
            let of = packed.counted().filter(|cell| cell.place == place);
            of.map(|cell| cell.count).sum::<u64>()
        };
        assert_eq!((sum(FleetPlace::Failed), sum(FleetPlace::Planned)), (3, 5_000));
    }

    #[test]
    fn a_part_is_replaced_and_what_is_before_the_base_goes() {
        let counted = vec![cell(100, FleetPlace::Running, 1), cell(101, FleetPlace::OnTime, 2)];
        let packed = PackedCells::pack(Quarter(90), counted);
        let with = vec![cell(100, FleetPlace::OnTime, 1)];
        let replaced = packed.replaced(Quarter(100), (Quarter(100), Quarter(101)), with);
        let expected = [cell(100, FleetPlace::OnTime, 1), cell(101, FleetPlace::OnTime, 2)];
        assert_eq!(replaced.counted().collect::<Vec<_>>(), expected);
        let none = replaced.replaced(Quarter(101), (Quarter(101), Quarter(102)), vec![]);
        assert_eq!(none.counted().count(), 0);
    }

    #[test]
    fn sums_and_the_next_quarter_are_what_the_single_cells_say() {
        let odd = (0..300).filter(|at| at % 7 != 3).map(|at| {
            let places = [FleetPlace::OnTime, FleetPlace::Failed, FleetPlace::Skipped];
            cell(at, places[(at / 50 % 3) as usize], 1 + (at / 9 % 2) as u64)
        });
        let packed = PackedCells::pack(Quarter(0), odd.collect());
        for (from, until) in [(0, 300), (17, 18), (10, 213), (3, 4), (299, 400), (400, 500)] {
            let (from, until) = (Quarter(from), Quarter(until));
            let mut counts = FleetCountsAnswer::default();
            let within = packed.counted().filter(|it| from <= it.at && it.at < until);
            within.for_each(|it| counts.add(it.place, it.count));
            assert_eq!(packed.counts(from, until), counts, "{from:?} {until:?}");
            assert_eq!(packed.touches(from, until), counts.sum() > 0, "{from:?} {until:?}");
            let next = packed.counted().map(|it| it.at).filter(|at| *at > from).min();
            assert_eq!(packed.first_after(from), next, "{from:?}");
        }
    }

    #[test]
    fn an_instant_before_the_epoch_is_in_the_quarter_that_began_before_it() {
        let at = |nanosecond: i128| Timestamp::from_nanosecond(nanosecond).unwrap();
        assert_eq!(Quarter::of(at(-1)), Quarter(-1));
        assert_eq!(Quarter::of(at(0)), Quarter(0));
        assert_eq!(Quarter::at_or_after(at(1)), Quarter(1));
        assert_eq!(Quarter::at_or_after(at(0)), Quarter(0));
    }
}
