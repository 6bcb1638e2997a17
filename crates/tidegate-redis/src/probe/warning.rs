//! What follows from what was found out.

use std::fmt;
use std::time::Duration;

use super::{Mode, Probe, ProbedServer, Role, ServerKind};

/// The oldest versions that the tests ran on: they may do, and nobody has tried.
const OLDEST_REDIS: (u32, u32) = (7, 0);
const OLDEST_VALKEY: (u32, u32) = (9, 0);

/// From so much on a difference of clocks is told.
const CLOCK_DIFFERENCE_MAX_MICROS: u64 = 1_000_000;

const SLOTS: usize = 16_384;

/// Something that a person should know of. Its text says what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A primary of a cluster tells nothing.
    ServerMissing,
    /// The server may not write.
    ReadOnly,
    /// The server does not run scripts.
    NoScripts,
    /// The server may forget states that count.
    MayEvict(String),
    /// The server keeps nothing over a restart.
    Forgetful,
    /// Nobody takes over from the server.
    NoReplica,
    /// The server's clock is so many microseconds ahead.
    ClockAhead(i64),
    /// Asking for nothing takes so long, which is more than half of what a decision may.
    Slow(Duration),
    /// The server is older than any that was tried.
    Old(String),
    /// The server is neither Redis nor Valkey.
    Unknown,
    /// So many slots of the cluster have no server.
    SlotsMissing(usize),
    /// So many of the Sentinels do not answer.
    SentinelsMissing(usize),
}

impl Probe {
    /// What follows from it: each with the address of the server that it is about, or an empty one.
    pub fn warnings(&self) -> Vec<(&str, Warning)> {
        let mut warnings = Vec::new();
        match self.mode {
            Mode::Sentinel { sentinels, answering } if answering < sentinels => {
                warnings.push(("", Warning::SentinelsMissing(sentinels - answering)));
            }
            Mode::Cluster { slots } if slots < SLOTS => {
                warnings.push(("", Warning::SlotsMissing(SLOTS - slots)));
            }
            Mode::Standalone | Mode::Sentinel { .. } | Mode::Cluster { .. } => {}
        }
        let replicated = self.mode != Mode::Standalone;
        for (address, found) in &self.servers {
            let found = match found {
                Ok(server) => about(server, replicated, self.deadline),
                Err(_) => vec![Warning::ServerMissing],
            };
            warnings.extend(found.into_iter().map(|warning| (address.as_str(), warning)));
        }
        warnings
    }
}

fn about(server: &ProbedServer, replicated: bool, deadline: Duration) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |applies: bool, warning: Warning| {
        if applies {
            warnings.push(warning);
        }
    };
    warn(server.kind == ServerKind::Other, Warning::Unknown);
    warn(is_old(server), Warning::Old(server.version.clone()));
    warn(server.role == Role::Replica, Warning::ReadOnly);
    warn(!server.runs_scripts, Warning::NoScripts);
    warn(server.may_evict(), Warning::MayEvict(server.eviction_policy.clone()));
    warn(replicated && server.role == Role::Primary && server.replicas == 0, Warning::NoReplica);
    let kept = server.appends || server.saves != Some(false) || server.replicas > 0;
    warn(!kept, Warning::Forgetful);
    let ahead = server.clock_ahead_micros.unwrap_or(0);
    warn(ahead.unsigned_abs() > CLOCK_DIFFERENCE_MAX_MICROS, Warning::ClockAhead(ahead));
    warn(server.latency.median > deadline / 2, Warning::Slow(server.latency.median));
    warnings
}

fn is_old(server: &ProbedServer) -> bool {
    let mut numbers = server.version.split('.').map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    match server.kind {
        ServerKind::Redis => version < OLDEST_REDIS,
        ServerKind::Valkey => version < OLDEST_VALKEY,
        ServerKind::Other => false,
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerMissing => {
                f.write_str("it cannot be asked; its keys are decided by each rule's failure policy")
            }
            Self::ReadOnly => f.write_str("it is a replica, and cannot decide"),
            Self::NoScripts => f.write_str("it does not run scripts, and cannot decide"),
            Self::MayEvict(policy) => write!(
                f,
                "its maxmemory-policy is {policy}: with full memory it forgets states, and those \
                 limits start anew; noeviction refuses instead, which the failure policies cover"
            ),
            Self::Forgetful => f.write_str(
                "it writes nothing to disk and has no replica: after a restart all limits start anew",
            ),
            Self::NoReplica => f.write_str("it has no replica: nobody takes over from it"),
            Self::ClockAhead(micros) => {
                let (way, millis) =
                    (if *micros > 0 { "ahead" } else { "behind" }, micros.unsigned_abs() / 1_000);
                write!(
                    f,
                    "its clock is {millis} ms {way}; windows of the clock and the calendar follow it"
                )
            }
            Self::Slow(median) => write!(
                f,
                "a PING takes {median:?}, which is more than half of the deadline of a decision"
            ),
            Self::Old(version) => {
                write!(f, "its version {version} is older than those that are tested")
            }
            Self::Unknown => f.write_str("it is neither Redis nor Valkey; only those are tested"),
            Self::SlotsMissing(slots) => {
                write!(f, "{slots} slots of the cluster have no server, and their keys none either")
            }
            Self::SentinelsMissing(sentinels) => {
                write!(f, "{sentinels} of the Sentinels do not answer, or do not know the service")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Latency;
    use super::*;

    fn good() -> ProbedServer {
        ProbedServer {
            kind: ServerKind::Redis,
            version: "7.0.15".to_owned(),
            role: Role::Primary,
            replicas: 1,
            runs_scripts: true,
            clock_ahead_micros: Some(900_000),
            latency: Latency::default(),
            memory_max_bytes: Some(1 << 30),
            memory_used_bytes: 1 << 20,
            eviction_policy: "noeviction".to_owned(),
            appends: false,
            saves: Some(false),
        }
    }

    fn warnings(server: &ProbedServer) -> Vec<Warning> {
        about(server, true, Duration::from_millis(10))
    }

    #[test]
    fn a_good_server_gives_no_reason_to_warn() {
        assert_eq!(warnings(&good()), []);
        assert_eq!(about(&good(), false, Duration::from_millis(10)), []);
        let unlimited = ProbedServer {
            memory_max_bytes: None,
            eviction_policy: "allkeys-lru".to_owned(),
            ..good()
        };
        assert_eq!(warnings(&unlimited), []);
    }

    #[test]
    fn each_weakness_has_its_warning() {
        let policy = "volatile-ttl".to_owned();
        let evicting = ProbedServer { eviction_policy: policy.clone(), ..good() };
        assert_eq!(warnings(&evicting), [Warning::MayEvict(policy)]);
        let alone = ProbedServer { replicas: 0, ..good() };
        assert_eq!(warnings(&alone), [Warning::NoReplica, Warning::Forgetful]);
        assert_eq!(about(&alone, false, Duration::from_millis(10)), [Warning::Forgetful]);
        let late = ProbedServer { clock_ahead_micros: Some(-2_000_000), ..good() };
        assert_eq!(warnings(&late), [Warning::ClockAhead(-2_000_000)]);
        let median = Duration::from_millis(6);
        let slow = ProbedServer { latency: Latency { median, ..Latency::default() }, ..good() };
        assert_eq!(warnings(&slow), [Warning::Slow(median)]);
        let old = ProbedServer { version: "6.2.14".to_owned(), ..good() };
        assert_eq!(warnings(&old), [Warning::Old("6.2.14".to_owned())]);
        let replica = ProbedServer { role: Role::Replica, runs_scripts: false, ..good() };
        assert_eq!(warnings(&replica), [Warning::ReadOnly, Warning::NoScripts]);
    }
}
