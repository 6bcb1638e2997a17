//! Bytes per key by resident memory. Each measurement is a fresh process, since an allocator gives
//! back less than it took: the program calls itself with a subcommand that help does not show.

use std::env;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::contenders::governor::Governor;
use crate::contenders::limitador::Limitador;
use crate::contenders::throttlecrab::Throttlecrab;
use crate::contenders::tidegate::Algorithm;
use crate::contenders::{Contender, Quota};
use crate::harness::{Recruit, fill};

/// What the program says to itself.
pub(crate) const SUBCOMMAND: &str = "footprint-of";

/// The most memory that a stage may take; a contender that would need more sits it out.
const MEMORY_MAX_BYTES: f64 = 12.0 * GIB;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// What one limiter took in memory.
pub(crate) struct Footprint {
    pub(crate) subject: &'static str,
    pub(crate) keys: u32,
    pub(crate) bytes_per_key: f64,
    /// Live keys that it forgot, as a fraction of all.
    pub(crate) dropped: f64,
}

/// A limiter whose memory is measured.
struct Subject {
    name: &'static str,
    /// Key counts of a full run; a quick one takes the first.
    key_counts: &'static [u32],
    /// Builds and fills a limiter of so many keys, and measures what that added.
    measure: Measure,
}

type Measure = Box<dyn Fn(u32) -> Result<Measured, Box<dyn Error>>>;

/// What one process found.
struct Measured {
    bytes: f64,
    dropped: u64,
}

const MILLION: u32 = 1_000_000;

fn subjects() -> Vec<Subject> {
    let ours = Algorithm::ALL.map(|algorithm| Subject {
        name: algorithm.name(),
        key_counts: algorithm.key_counts(),
        measure: Box::new(move |keys| measure_ours(algorithm, keys)),
    });
    let peers = [
        peer::<Governor<String>>(),
        peer::<Governor<[u8; 16]>>(),
        peer::<Throttlecrab>(),
        peer::<Limitador>(),
    ];
    ours.into_iter().chain(peers).collect()
}

fn peer<C: Contender + 'static>() -> Subject {
    Subject { name: C::NAME, key_counts: &[MILLION], measure: Box::new(measure_peer::<C>) }
}

/// Measures every subject, each in its own process.
pub(crate) fn measure_all(quick: bool) -> Result<Vec<Footprint>, Box<dyn Error>> {
    let program = env::current_exe()?;
    let mut footprints = Vec::new();
    for subject in subjects() {
        let counts = if quick { &subject.key_counts[..1] } else { subject.key_counts };
        for &keys in counts {
            eprintln!("  memory of {} with {keys} keys", subject.name);
            let output = Command::new(&program)
                .args([SUBCOMMAND, subject.name, &keys.to_string()])
                .stderr(Stdio::inherit())
                .output()?;
            let answer: Value = serde_json::from_slice(&output.stdout)
                .map_err(|_| format!("measuring the memory of {} failed", subject.name))?;
            let number = |name: &str| answer[name].as_f64().ok_or("an answer without a number");
            footprints.push(Footprint {
                subject: subject.name,
                keys,
                bytes_per_key: number("bytes")? / f64::from(keys),
                dropped: number("dropped")? / f64::from(keys),
            });
        }
    }
    Ok(footprints)
}

/// The other side of [`measure_all`]: measures one subject in this process and prints the answer.
pub(crate) fn measure_here(name: &str, keys: &str) -> Result<(), Box<dyn Error>> {
    let subjects = subjects();
    let subject = subjects.iter().find(|subject| subject.name == name).ok_or("no such subject")?;
    let Measured { bytes, dropped } = (subject.measure)(keys.parse()?)?;
    println!("{}", json!({ "bytes": bytes, "dropped": dropped }));
    Ok(())
}

/// Keys that a limiter is filled with before the measurement, so that code, clocks and buffers are
/// there.
const KEYS_BEFORE: u32 = 1000;

fn measure_ours(algorithm: Algorithm, keys: u32) -> Result<Measured, Box<dyn Error>> {
    algorithm.filled(KEYS_BEFORE)?;
    let before = resident_bytes()?;
    let filled = algorithm.filled(keys)?;
    let bytes = resident_bytes()? - before;
    Ok(Measured { bytes, dropped: black_box(filled).dropped })
}

/// Peers forget nothing.
fn measure_peer<C: Contender>(keys: u32) -> Result<Measured, Box<dyn Error>> {
    let quota = Quota { token_secs: 3600, burst: 100 };
    fill(&mut C::new(quota, KEYS_BEFORE)?, KEYS_BEFORE);
    let before = resident_bytes()?;
    let mut limiter = C::new(quota, keys)?;
    fill(&mut limiter, keys);
    let bytes = resident_bytes()? - before;
    black_box(limiter);
    Ok(Measured { bytes, dropped: 0 })
}

/// What this process has in memory, counted page by page: `VmRSS` is kept by each processor for itself and
/// added up now and then, which is off by a fifth of a byte per key at a million keys.
fn resident_bytes() -> Result<f64, Box<dyn Error>> {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no Rss")?;
    Ok(kibibytes.trim().parse::<f64>()? * 1024.0)
}

/// The contenders that take part with `keys` keys: all, or where that would be too much memory all
/// but the largest; and why one is left out.
pub(crate) fn without_too_large(
    recruits: &[Recruit],
    footprints: &[Footprint],
    keys: u32,
) -> (Vec<Recruit>, Option<String>) {
    let needs = |recruit: &Recruit| {
        let known = footprints.iter().find(|footprint| footprint.subject == recruit.name);
        known.map_or(0.0, |known| known.bytes_per_key) * f64::from(keys)
    };
    let total: f64 = recruits.iter().map(needs).sum();
    let largest = recruits.iter().max_by(|one, other| needs(one).total_cmp(&needs(other)));
    match largest {
        Some(largest) if total > MEMORY_MAX_BYTES => {
            let rest = recruits.iter().filter(|recruit| recruit.name != largest.name).copied();
            let note = format!(
                "{} sat out {keys} keys: it would need {:.1} GiB, and all together {:.1}",
                largest.name,
                needs(largest) / GIB,
                total / GIB
            );
            (rest.collect(), Some(note))
        }
        _ => (recruits.to_vec(), None),
    }
}
