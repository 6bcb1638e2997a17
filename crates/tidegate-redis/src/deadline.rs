//! By when a decision has to be there: one moment for all that it is made of, however many places are
//! asked, one after the other or at once. What each server is given is what is left of it.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

/// The time that one decision has, with what belongs to it. It begins when somebody is first asked, so what is
/// decided without asking reads no clock.
#[derive(Debug, Default)]
pub struct Deadline {
    end: OnceLock<Instant>,
}

impl Deadline {
    /// One that is over after this, counted from now: the rest of one that has begun elsewhere.
    pub fn lasting(left: Duration) -> Self {
        Self { end: OnceLock::from(Instant::now() + left) }
    }

    /// When it is over, where it lasts for as long as the first who asks says.
    pub(crate) fn end(&self, lasts: Duration) -> Instant {
        *self.end.get_or_init(|| Instant::now() + lasts)
    }
}

/// The middle between now and then.
pub(crate) fn half_way_to(end: Instant) -> Instant {
    let now = Instant::now();
    now + end.saturating_duration_since(now) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_the_first_who_asks_and_ends_once_for_all() {
        let (deadline, before) = (Deadline::default(), Instant::now());
        let end = deadline.end(Duration::from_hours(1));
        assert!(end >= before + Duration::from_hours(1));
        assert_eq!(deadline.end(Duration::from_hours(2)), end);
        let half = half_way_to(end);
        assert!(half > before + Duration::from_mins(29) && half < before + Duration::from_mins(31));
    }

    #[test]
    fn half_of_nothing_is_nothing() {
        let past = Instant::now();
        let half = half_way_to(past);
        assert!(half >= past && half <= Instant::now());
    }
}
