//! Every decision in the server: ours beside `redis-benchmark` running the bare script.

use std::error::Error;

use super::callers::{Calling, Sample};
use super::{CALLERS, Effort, bare, ratio, redis, told};
use crate::targets::{Figure, Target};
use crate::wire::server::Cores;

/// Among how many keys a caller draws, so that hardly two ask for the same at once.
pub(super) const KEYS: u32 = 100_000;

const PEER: &str = "redis-benchmark EVALSHA";

/// What is to be known about these figures.
pub(super) fn note() -> String {
    format!(
        "{PEER} runs the script that our calls run, {CALLERS} in a pipeline on one connection; both \
         draw from {KEYS} keys"
    )
}

/// Everything, by the best rounds.
pub(super) fn figures(cores: &Cores, effort: Effort) -> Result<Vec<Figure>, Box<dyn Error>> {
    let server = redis(cores.server)?;
    let (call, least) = (bare::capture(server.port)?, bare::least(server.port)?);
    let calling = |limits, keys| Calling {
        port: server.port,
        limits,
        keys,
        callers: CALLERS,
        seconds: effort.seconds,
    };
    let (mut one, mut three, mut hot, mut peer) = (Best::new(), Best::new(), Best::new(), 0_f64);
    let (mut expected, mut leasts) = (20_000.0, [0_f64; 2]);
    // The first round makes the keys, and is not kept.
    for round in 0..=effort.rounds {
        eprintln!("  round {round} of {}", effort.rounds);
        let samples = [(1, KEYS), (3, KEYS), (1, 1)]
            .map(|(limits, keys)| calling(limits, keys).in_own_process(cores.load));
        let calls = expected * effort.seconds;
        let bare = call.run(cores.load, 1, CALLERS, calls)?;
        let few = [(1, calls / 2.0), (3, calls / 4.0)]
            .map(|(keys, calls)| least.run(cores.load, keys, CALLERS, calls));
        expected = bare;
        if round > 0 {
            peer = peer.max(bare);
            for (most, rate) in leasts.iter_mut().zip(few) {
                *most = most.max(rate?);
            }
            for (best, sample) in [&mut one, &mut three, &mut hot].into_iter().zip(samples) {
                best.add(sample?);
            }
        }
    }
    let (one, three, hot) = (one.0, three.0, hot.0);
    let rate =
        |figure: &str, value| told(format!("{figure}, {CALLERS} callers"), value, "decisions/s");
    let against_bare = one.per_second / peer;
    let against_one = three.per_second / one.per_second;
    Ok(vec![
        rate("strict, 1 limit", one.per_second),
        rate("strict, 3 limits in one request", three.per_second),
        rate("strict, 1 limit, one hot key", hot.per_second),
        rate(PEER, peer),
        ratio("strict, 1 limit", against_bare, PEER, Target::AtLeast(0.9)),
        ratio("strict, 3 limits", against_one, "1 limit", Target::AtLeast(0.6)),
        told(
            "a script that only reads and writes its keys, 3 keys to 1".to_owned(),
            leasts[1] / leasts[0],
            "times",
        ),
        told(
            "strict, one hot key, script calls".to_owned(),
            hot.script_calls_per_decision,
            "a decision",
        ),
    ])
}

/// The best of several rounds.
struct Best(Sample);

impl Best {
    fn new() -> Self {
        Self(Sample { per_second: 0.0, script_calls_per_decision: 0.0 })
    }

    fn add(&mut self, sample: Sample) {
        if sample.per_second > self.0.per_second {
            self.0 = sample;
        }
    }
}
