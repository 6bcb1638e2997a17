//! Which upstream is next: in turn, the less busy of two, or always the same for one value. Those that are
//! not fit are passed over, unless none is.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;

use super::Server;

/// How the upstreams of a route share its requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other, by their weights.
    #[default]
    RoundRobin,
    /// The less busy of two that are drawn.
    LeastLoaded,
    /// Always the same one for the same value of this attribute.
    Hash(String),
}

/// How much more than its share one upstream gets under [`Balance::Hash`] before others help out, in percent.
const SHARE_PERCENT_MAX: usize = 125;

/// How many requests are under way at an upstream before others help out. A share of next to nothing is one
/// request, and two at a time would be enough to send a value elsewhere; so few swamp nobody.
const HELPED_FROM: usize = 8;

/// Upstreams in the order in which they take their turns.
#[derive(Debug)]
pub(crate) struct Balancer {
    servers: Box<[Arc<Server>]>,
    balance: Balance,
    /// Numbers of servers, each as often as its weight, spread out.
    turns: Box<[usize]>,
    turn: AtomicUsize,
}

impl Balancer {
    pub(crate) fn new(servers: Vec<Arc<Server>>, balance: Balance) -> Self {
        let weights: Vec<i64> = servers.iter().map(|server| i64::from(server.weight)).collect();
        let turns = turns(&weights);
        let turn = AtomicUsize::new(0);
        Self { servers: servers.into(), balance, turns, turn }
    }

    pub(crate) fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// The attribute whose value decides, where one does.
    pub(crate) fn attribute(&self) -> Option<&str> {
        match &self.balance {
            Balance::Hash(attribute) => Some(attribute),
            Balance::RoundRobin | Balance::LeastLoaded => None,
        }
    }

    /// The next upstream, none of those that were tried already. `value` is that of the attribute; without one
    /// the turns decide.
    pub(crate) fn next(
        &self,
        value: Option<&[u8]>,
        tried: &[usize],
        now: Instant,
    ) -> Option<(usize, &Arc<Server>)> {
        let untried = |index: &usize| !tried.contains(index);
        let fit = |index: &usize| untried(index) && self.servers[*index].health.is_fit(now);
        // Where no upstream is fit, one of them is still more likely to answer than nobody.
        let turn = self.draw();
        let index = self.pick(turn, value, fit).or_else(|| self.pick(turn, value, untried))?;
        Some((index, &self.servers[index]))
    }

    fn pick(
        &self,
        turn: usize,
        value: Option<&[u8]>,
        may: impl Fn(&usize) -> bool,
    ) -> Option<usize> {
        match (&self.balance, value) {
            (Balance::Hash(_), Some(value)) => self.same_for(value, may),
            (Balance::LeastLoaded, _) => {
                let first = self.in_turn(mixed(turn), &may)?;
                let other = self.in_turn(mixed(!turn), |index| may(index) && *index != first);
                let load = |index: usize| {
                    let server = &self.servers[index];
                    // The busier for its weight, without a division.
                    (server.load.under_way() as u64 + 1, u64::from(server.weight))
                };
                let is_less = |one: usize, two: usize| {
                    let ((one, one_weight), (two, two_weight)) = (load(one), load(two));
                    // Where both have nothing to do the draw stands, which goes by weight: the heavier
                    // one would get all otherwise.
                    one.max(two) > 1 && one * two_weight < two * one_weight
                };
                Some(other.filter(|other| is_less(*other, first)).unwrap_or(first))
            }
            (Balance::RoundRobin | Balance::Hash(_), _) => self.in_turn(turn, may),
        }
    }

    fn draw(&self) -> usize {
        // ORDERING: the number stands for itself.
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Whose turn it is. The turns of those that are passed over go to the others in turn: if each went to
    /// whoever comes next, a neighbour would do the work of two.
    fn in_turn(&self, from: usize, may: impl Fn(&usize) -> bool) -> Option<usize> {
        let count = self.turns.len();
        let (round, at) = (from / count, from % count);
        if may(&self.turns[at]) {
            return Some(self.turns[at]);
        }
        let allowed: Vec<bool> = (0..self.servers.len()).map(|index| may(&index)).collect();
        let passed = |turns: &[usize]| turns.iter().filter(|index| !allowed[**index]).count();
        let all_passed = passed(&self.turns);
        let left = count - all_passed;
        // How many turns were passed over before this one, over all rounds.
        let before = round.wrapping_mul(all_passed).wrapping_add(passed(&self.turns[..at]));
        let mut others = self.turns.iter().filter(|index| allowed[**index]);
        others.nth(before.checked_rem(left)?).copied()
    }

    /// The one that scores highest for this value. When an upstream comes or goes, only the values that were
    /// its own move. One that has much more to do than the others is passed over.
    fn same_for(&self, value: &[u8], may: impl Fn(&usize) -> bool) -> Option<usize> {
        let mut scored: Vec<(f64, usize)> = (0..self.servers.len())
            .filter(|index| may(index))
            .map(|index| (score(value, &self.servers[index]), index))
            .collect();
        scored.sort_by(|one, two| two.0.total_cmp(&one.0));
        let busy: usize =
            scored.iter().map(|(_, index)| self.servers[*index].load.under_way()).sum();
        let share = (busy + 1) * SHARE_PERCENT_MAX / 100 / scored.len().max(1) + 1;
        let share = share.max(HELPED_FROM);
        let roomy = scored.iter().find(|(_, index)| self.servers[*index].load.under_way() < share);
        roomy.or(scored.first()).map(|(_, index)| *index)
    }
}

/// Weighted rendezvous hashing: the same on every gateway, whatever the order of the upstreams.
fn score(value: &[u8], server: &Server) -> f64 {
    let mut hasher = DefaultHasher::new();
    server.name().hash(&mut hasher);
    value.hash(&mut hasher);
    // A number between 0 and 1, neither of them.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(server.weight) / unit.ln()
}

/// Each number as often as its weight, as far apart as can be.
fn turns(weights: &[i64]) -> Box<[usize]> {
    let total: i64 = weights.iter().sum();
    let mut current = vec![0; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..total {
        for (current, weight) in current.iter_mut().zip(weights) {
            *current += weight;
        }
        let best = (0..weights.len()).rev().max_by_key(|index| current[*index]).unwrap_or(0);
        current[best] -= total;
        turns.push(best);
    }
    turns.into()
}

/// A number that looks drawn by chance, from one that counts up (splitmix64).
fn mixed(number: usize) -> usize {
    let mut z = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::upstream::load::Priority;
    use crate::upstream::{ServerSettings, UpstreamSettings};

    fn balancer(weights: &[u32], balance: Balance) -> Balancer {
        let servers = weights.iter().enumerate().map(|(index, weight)| {
            let url = format!("http://127.0.0.1:{}", 1000 + index).parse().unwrap();
            Arc::new(Server::new(
                ServerSettings { url, weight: *weight },
                &UpstreamSettings::default(),
                None,
            ))
        });
        Balancer::new(servers.collect(), balance)
    }

    fn picked(balancer: &Balancer, value: Option<&[u8]>, times: usize) -> Vec<usize> {
        let now = Instant::now();
        (0..times).map(|_| balancer.next(value, &[], now).unwrap().0).collect()
    }

    #[tokio::test]
    async fn turns_follow_the_weights_and_are_spread_out() {
        let balancer = balancer(&[3, 1], Balance::RoundRobin);
        assert_eq!(picked(&balancer, None, 8), [0, 0, 1, 0, 0, 0, 1, 0]);
    }

    #[tokio::test]
    async fn what_is_not_fit_is_passed_over_unless_none_is() {
        let balancer = balancer(&[1, 1], Balance::RoundRobin);
        let put_out = |index: usize| {
            let health = &balancer.servers()[index].health;
            let _ = (health.probed(false), health.probed(false));
        };
        put_out(0);
        assert_eq!(picked(&balancer, None, 3), [1, 1, 1]);
        put_out(1);
        let mut both = picked(&balancer, None, 2);
        both.sort_unstable();
        assert_eq!(both, [0, 1]);
        assert!(balancer.next(None, &[0, 1], Instant::now()).is_none(), "all were tried");
    }

    proptest! {
        #[test]
        fn turns_of_servers_that_are_left_out_are_shared_by_weight(
            servers in vec((1_u32..=9, any::<bool>()), 1..8),
            first in 0_usize..7,
        ) {
            let weights: Vec<u32> = servers.iter().map(|(weight, _)| *weight).collect();
            // One of them stays whatever is drawn.
            let stays = first % servers.len();
            let is_out = |index: &usize| servers[*index].1 && *index != stays;
            let out: Vec<usize> = (0..servers.len()).filter(is_out).collect();
            let balancer = balancer(&weights, Balance::RoundRobin);
            let all: usize = weights.iter().map(|weight| *weight as usize).sum();
            let out_weight: usize = out.iter().map(|index| weights[*index] as usize).sum();
            let mut counts = vec![0; servers.len()];
            for _ in 0..all * (all - out_weight) {
                counts[balancer.next(None, &out, Instant::now()).unwrap().0] += 1;
            }
            for (index, count) in counts.into_iter().enumerate() {
                let share = if out.contains(&index) { 0 } else { weights[index] as usize * all };
                prop_assert_eq!(count, share, "{} of {:?}", index, &weights);
            }
        }
    }

    #[tokio::test]
    async fn the_less_busy_of_two_is_taken() {
        let balancer = balancer(&[1, 1], Balance::LeastLoaded);
        let _busy = balancer.servers()[0].load.begin(Priority::Usual);
        assert_eq!(picked(&balancer, None, 20), [1; 20]);
    }

    #[tokio::test]
    async fn those_that_have_nothing_to_do_are_drawn_by_weight() {
        let balancer = balancer(&[1, 3], Balance::LeastLoaded);
        let light = picked(&balancer, None, 4_000).iter().filter(|index| **index == 0).count();
        assert!((900..1_100).contains(&light), "{light}");
    }

    #[tokio::test]
    async fn one_value_stays_at_one_upstream_and_few_move() {
        let three = balancer(&[1, 1, 1], Balance::Hash("user".into()));
        let four = balancer(&[1, 1, 1, 1], Balance::Hash("user".into()));
        let mut moved = 0;
        let mut counts = [0; 3];
        for user in 0..3_000_u32 {
            let value = user.to_string();
            let at = picked(&three, Some(value.as_bytes()), 1)[0];
            assert_eq!(picked(&three, Some(value.as_bytes()), 1)[0], at);
            counts[at] += 1;
            let then = picked(&four, Some(value.as_bytes()), 1)[0];
            moved += usize::from(then != at);
            assert!(then == at || then == 3, "it moves to the new one only");
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        assert!((600..900).contains(&moved), "{moved}");
    }

    #[tokio::test]
    async fn one_value_stays_at_its_upstream_while_there_is_little_to_do() {
        let balancer = balancer(&[1, 1, 1], Balance::Hash("user".into()));
        let now = Instant::now();
        let mut busy = Vec::new();
        let mut taken = Vec::new();
        for _ in 0..=HELPED_FROM {
            let (index, server) = balancer.next(Some(b"ann"), &[], now).unwrap();
            busy.extend(server.load.begin(Priority::Usual));
            taken.push(index);
        }
        let helper = taken.pop();
        assert_eq!(taken, [taken[0]; HELPED_FROM]);
        assert_ne!(helper, Some(taken[0]), "then others help out");
    }

    #[tokio::test]
    async fn one_value_cannot_swamp_its_upstream() {
        let balancer = balancer(&[1, 1], Balance::Hash("user".into()));
        let now = Instant::now();
        let mut busy = Vec::new();
        for _ in 0..20 {
            let (_, server) = balancer.next(Some(b"ann"), &[], now).unwrap();
            busy.extend(server.load.begin(Priority::Usual));
        }
        let loads: Vec<usize> =
            balancer.servers().iter().map(|server| server.load.under_way()).collect();
        assert!(loads.iter().all(|load| *load >= 6), "{loads:?}");
    }
}
