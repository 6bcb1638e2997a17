//! Who else runs while we measure: on a shared machine others take a core in the middle of a round, and
//! two threads seldom have both cores at once. A process with real-time priority has its cores to
//! itself; what others do to caches and memory it still feels.

use std::fs;
use std::process::{self, Command, Stdio};

/// Puts this process before all others, with all threads and processes that it starts from here on. What the
/// reader of the figures has to know, where that is not allowed and others may have been in the way.
///
/// For work that waits for no other process, since that would not get to run. Threads of ours that want
/// the same core take turns.
pub(crate) fn before_all_others() -> Option<String> {
    let pid = process::id().to_string();
    let mut chrt = Command::new("chrt");
    chrt.args(["--rr", "--pid", "1", &pid]).stdout(Stdio::null()).stderr(Stdio::null());
    if chrt.status().is_ok_and(|status| status.success()) {
        eprintln!("runs with real-time priority (chrt), before everything else on this machine");
        return None;
    }
    eprintln!("runs among others: real-time priority (chrt) was refused or is not there");
    busy()
}

/// What the reader of the figures has to know where the machine is busy: two threads that share a processor
/// with others measure the others.
pub(crate) fn busy() -> Option<String> {
    const LOAD_MAX: f64 = 0.5;
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let load: f64 = text.split_whitespace().next()?.parse().ok()?;
    (load > LOAD_MAX).then(|| {
        format!("the machine was busy at the start (load {load}): trust no time of two threads")
    })
}
