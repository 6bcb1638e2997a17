//! `cargo xtask bench edges`: what stands in front of a service or beside it. The middleware around an axum
//! app, beside the app alone and beside `tower_governor` around it; what each of them takes from the heap;
//! and the client of the daemon, with and without batches.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`served`] | the app as a process, with one layer or none |
//! | [`heap`] | allocations of a request, in this process |
//! | [`batches`] | decisions of a thousand callers that share a client |
//!
//! Whatever else is an edge adds its figures in [`figures`].

mod batches;
mod heap;
pub(crate) mod served;

use std::error::Error;
use std::path::Path;

use self::served::Around;
use crate::targets::Figure;
use crate::wire::load::Driver;
use crate::wire::scenario::Scenario;
use crate::wire::server::{Cores, Server, free_port};
use crate::wire::{Effort, entrant};

const OURS: &str = "tidegate layer";
const NONE: &str = "no layer";
const GOVERNOR: &str = "tower_governor";

/// Runs everything: the figures, and what is to be known about them.
pub(crate) fn figures(
    tidegate: &Path,
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let effort = Effort::of(quick);
    let cores = Cores::two()?;
    let (mut figures, mut notes) = middleware(tidegate, cores, effort)?;
    figures.extend(heap::figures()?);
    figures.extend(batches::figures(tidegate, cores.server, effort)?);
    if quick {
        notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((figures, notes))
}

/// One app three times, each with the core of the servers to itself while it is asked.
fn middleware(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let own_path = std::env::current_exe()?;
    let start = |name: &str, around: Around| {
        let port = free_port()?;
        let words = [served::SUBCOMMAND.to_owned(), around.word().to_owned(), port.to_string()];
        Server::start(name, &own_path, &words, port, cores.server, &[])
    };
    let (ours, none) = (start(OURS, Around::Tidegate)?, start(NONE, Around::Nothing)?);
    let governor = start(GOVERNOR, Around::Governor)?;
    let entrants = vec![
        entrant(OURS, &ours, &["http"], None),
        entrant(NONE, &none, &["http"], Some(0.93)),
        entrant(GOVERNOR, &governor, &["http"], Some(1.0)),
    ];
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load };
    let tried = Scenario::closed("an axum app", 16, 1, entrants).run(&driver, effort)?;
    Ok((tried.throughput(), tried.idle_servers()))
}
