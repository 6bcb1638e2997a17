//! A time zone as data: its offset from UTC, and when that changes.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

/// A change of a zone's offset: from this Unix second on, local time is UTC plus so many seconds.
pub type Transition = (i64, i32);

/// A time zone. Cloning is cheap: the list of its changes is shared.
///
/// The zone keeps the offset of the last change for ever, so whoever builds it lists the changes up
/// to a time that will not be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Zone {
    name: Arc<str>,
    first_offset: i32,
    transitions: Arc<[Transition]>,
}

impl Zone {
    /// The largest offset from UTC in seconds, in either direction: a second less than 26 hours, which
    /// is what the time zone database's own format allows.
    pub const OFFSET_MAX: i32 = 26 * 3_600 - 1;

    /// Universal time, which never changes.
    pub fn utc() -> Self {
        Self { name: Arc::from("UTC"), first_offset: 0, transitions: Arc::from([]) }
    }

    /// A zone that starts with `first_offset` and changes at each of `transitions`, which come in
    /// order of time.
    pub fn from_transitions(
        name: &str,
        first_offset: i32,
        transitions: impl IntoIterator<Item = Transition>,
    ) -> Result<Self, ZoneError> {
        let transitions: Vec<Transition> = transitions.into_iter().collect();
        let offsets = transitions.iter().map(|&(_, offset)| offset);
        for offset in core::iter::once(first_offset).chain(offsets) {
            if offset.unsigned_abs() > Self::OFFSET_MAX.unsigned_abs() {
                return Err(ZoneError::OffsetTooLarge { offset });
            }
        }
        if let Some(pair) = transitions.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(ZoneError::OutOfOrder { from: pair[1].0 });
        }
        Ok(Self { name: Arc::from(name), first_offset, transitions: transitions.into() })
    }

    /// The zone's name, such as `Europe/Berlin`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What local clocks show at a Unix second, as seconds since their own 1970-01-01.
    pub(super) fn local(&self, seconds: i64) -> i64 {
        seconds.saturating_add(i64::from(self.offset(self.changes_until(seconds))))
    }

    /// The first Unix second at which local clocks show `local` or more.
    ///
    /// It cannot be before every clock in the world could show it, so the search starts at the
    /// offset that holds then.
    pub(super) fn first_at(&self, local: i64) -> i64 {
        let mut changes = self.changes_until(local.saturating_sub(i64::from(Self::OFFSET_MAX)));
        loop {
            let from = changes.checked_sub(1).map_or(i64::MIN, |last| self.transitions[last].0);
            let reached = local.saturating_sub(i64::from(self.offset(changes))).max(from);
            match self.transitions.get(changes) {
                Some(&(until, _)) if reached >= until => changes += 1,
                Some(_) | None => return reached,
            }
        }
    }

    /// How many changes have happened by a Unix second.
    fn changes_until(&self, seconds: i64) -> usize {
        self.transitions.partition_point(|&(from, _)| from <= seconds)
    }

    /// The offset after so many changes.
    fn offset(&self, changes: usize) -> i32 {
        changes.checked_sub(1).map_or(self.first_offset, |last| self.transitions[last].1)
    }
}

/// Why data do not make a zone. Nothing was made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZoneError {
    /// An offset is further from UTC than [`Zone::OFFSET_MAX`].
    OffsetTooLarge {
        /// The offset in seconds.
        offset: i32,
    },
    /// A change is listed after one of the same time or later.
    OutOfOrder {
        /// The Unix second of that change.
        from: i64,
    },
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OffsetTooLarge { offset } => write!(
                f,
                "the offset of {offset} s is too far from UTC; at most {} s",
                Zone::OFFSET_MAX
            ),
            Self::OutOfOrder { from } => {
                write!(f, "the change at Unix second {from} is not later than the one before it")
            }
        }
    }
}

impl core::error::Error for ZoneError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_out_of_order_or_out_of_this_world() {
        let zone = |changes: &[Transition]| {
            Zone::from_transitions("Test", 0, changes.iter().copied()).err()
        };
        assert_eq!(zone(&[(1, 60), (2, 0)]), None);
        assert_eq!(zone(&[(2, 60), (2, 0)]), Some(ZoneError::OutOfOrder { from: 2 }));
        let offset = Zone::OFFSET_MAX + 1;
        assert_eq!(zone(&[(1, offset)]), Some(ZoneError::OffsetTooLarge { offset }));
        assert_eq!(zone(&[(1, -offset)]), Some(ZoneError::OffsetTooLarge { offset: -offset }));
    }

    #[test]
    fn clocks_reach_a_time_that_they_skip_at_the_end_of_the_gap() {
        let zone = Zone::from_transitions("Test/Gap", 0, [(1_000, 600)]).unwrap();
        assert_eq!(
            [999, 1_000, 1_300, 1_600, 1_601].map(|local| zone.first_at(local)),
            [999, 1_000, 1_000, 1_000, 1_001]
        );
    }
}
