//! When a request is due. As fast as answers come, or on a grid that no answer can shift.

use tidegate::{Span, Timestamp};

/// What decides that the next request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// An answer came (a closed loop): a slow server is asked less.
    Closed,
    /// Its time came (an open loop): a slow server is asked as much, and what waits has waited
    /// since its time.
    Open(Grid),
}

/// The times at which one of several connections is to send, so that all of them together send at
/// a steady rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) start: Timestamp,
    /// Of all connections together.
    pub(crate) per_second: u64,
    pub(crate) connections: u64,
    /// Which of the connections this is, from 0.
    pub(crate) connection: u64,
}

impl Grid {
    /// When the request of this number, from 0, is due. Reckoned from the start each time, so that
    /// no rounding adds up.
    pub(crate) fn due(&self, number: u64) -> Timestamp {
        let place = u128::from(number) * u128::from(self.connections) + u128::from(self.connection);
        let micros =
            place.saturating_mul(Span::SECOND.as_micros().into()) / u128::from(self.per_second);
        self.start.plus(Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(per_second: u64, connections: u64, connection: u64) -> Grid {
        Grid { start: Timestamp::from_secs(5), per_second, connections, connection }
    }

    #[test]
    fn connections_take_turns_on_one_grid() {
        let [even, odd] = [grid(1_000, 2, 0), grid(1_000, 2, 1)];
        let due = |grid: Grid, number| grid.due(number).since(grid.start).as_micros();
        assert_eq!(
            [due(even, 0), due(odd, 0), due(even, 1), due(odd, 1)],
            [0, 1_000, 2_000, 3_000]
        );
    }

    #[test]
    fn a_rate_without_a_whole_step_stays_true_over_an_hour() {
        let grid = grid(7, 1, 0);
        assert_eq!(grid.due(7 * 3_600), Timestamp::from_secs(5 + 3_600));
    }

    #[test]
    fn no_number_overflows() {
        assert!(grid(1, u64::MAX, 3).due(u64::MAX) > Timestamp::from_secs(5));
    }
}
