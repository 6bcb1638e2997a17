//! `cargo xtask bench edges`: what stands in front of a service or beside it. The middleware around an axum
//! app, beside the app alone and beside `tower_governor` around it; what each of them takes in time and from the heap;
//! the client of the daemon, with and without batches; and the gateway beside nginx.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`served`] | the app as a process, with one layer or none, around it or inside |
//! | [`in_process`] | allocations and time of a request, without sockets |
//! | [`batches`] | decisions of a thousand callers that share a client |
//! | [`gateway`] | the gateway beside nginx, and what a denial costs |
//! | [`behind`] | the server behind both of these; and, in their place, one that only answers |
//! | [`between`] | in their place, one that only forwards |
//! | [`polled`] | what the last two have in common |
//! | [`places`] | the wait that each place for the limiter adds |
//!
//! Whatever else is an edge adds its figures in [`figures`].

pub(crate) mod batches;
pub(crate) mod behind;
pub(crate) mod between;
mod gateway;
mod in_process;
mod places;
mod polled;
pub(crate) mod served;

use std::error::Error;
use std::path::Path;

use self::served::Around;
use crate::parts;
use crate::targets::{Figure, Target};
use crate::wire::load::{self, Driver};
use crate::wire::scenario::{Scenario, Tried};
use crate::wire::server::Cores;
use crate::wire::{Effort, entrant};

#[derive(Clone, Copy)]
enum Part {
    Layer,
    Client,
    Gateway,
    Places,
}

impl parts::Part for Part {
    const ALL: &'static [(&'static str, Self)] = &[
        ("layer", Self::Layer),
        ("client", Self::Client),
        ("gateway", Self::Gateway),
        ("places", Self::Places),
    ];
}

/// Runs everything, or some parts of it: the figures, and what is to be known about them.
pub(crate) fn figures(
    tidegate: &Path,
    only: &[String],
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let effort = Effort::of(quick);
    let cores = Cores::two()?;
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for (_, part) in parts::chosen(only)? {
        let (more_figures, more_notes) = match part {
            Part::Layer => {
                let (mut figures, notes) = middleware(tidegate, cores, effort)?;
                figures.extend(in_process::figures()?);
                (figures, notes)
            }
            Part::Client => (batches::figures(tidegate, cores, effort)?, Vec::new()),
            Part::Gateway => gateway::figures(tidegate, cores, effort)?,
            Part::Places => (places::figures(tidegate, cores, effort)?, Vec::new()),
        };
        figures.extend(more_figures);
        notes.extend(more_notes);
    }
    if quick {
        notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((figures, notes))
}

/// What is compared, and what has to come of it.
type Compared = (Around, Around, Option<Target>);

/// One app several times, each with the core of the servers to itself while it is asked. All are started several times,
/// and those more often that are held to a target.
fn middleware(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    // Beside tower_governor in the same place; with few headers ours has one more, and without headers none.
    let held = [
        (Around::Tidegate, Around::Nothing, Some(Target::AtLeast(0.93))),
        (Around::TidegateFewHeaders, Around::Governor, Some(Target::AtLeast(1.0))),
        (Around::TidegateNoHeaders, Around::GovernorNoHeaders, Some(Target::AtLeast(1.0))),
        // The same where requests carry no addresses, as our documents have it. tower_governor needs them there.
        (Around::TidegateByConnection, Around::NothingByConnection, Some(Target::AtLeast(0.93))),
        (Around::TidegateFewHeadersByConnection, Around::Governor, Some(Target::AtLeast(1.0))),
        (
            Around::TidegateNoHeadersByConnection,
            Around::GovernorNoHeaders,
            Some(Target::AtLeast(1.0)),
        ),
        (Around::NothingByConnection, Around::Nothing, None),
        (Around::TidegateByConnection, Around::Nothing, None),
        (Around::Tidegate, Around::Governor, None),
        (Around::TidegateFewHeaders, Around::Nothing, None),
        (Around::TidegateNoHeaders, Around::Nothing, None),
        (Around::Governor, Around::Nothing, None),
    ];
    let beside = [
        (Around::TidegateInside, Around::Nothing, None),
        (Around::TidegateFewHeadersInside, Around::GovernorInside, None),
        (Around::TidegateInside, Around::GovernorInside, None),
        (Around::EmptyInside, Around::Nothing, None),
        (Around::HeadersAlone, Around::Nothing, None),
        (Around::FewHeadersAlone, Around::Nothing, None),
        (Around::TidegateHolding, Around::Nothing, None),
    ];
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for (name, compared, starts) in [
        ("an axum app", &held[..], effort.restarts),
        ("an axum app, beside", &beside[..], effort.restarts.div_ceil(4)),
    ] {
        let apps = compared_apps(compared);
        let mut tried = started(tidegate, cores, effort, (name, &apps, 0))?;
        for start in 1..starts {
            eprintln!("  {name}: start {start} of {starts}");
            tried = tried.and(started(tidegate, cores, effort, (name, &apps, start))?);
        }
        figures.extend(tried.rates());
        for &(ours, other, target) in compared {
            let name = format!("{}, to {}", ours.name(), other.name());
            figures.extend(tried.ratio_of_starts(&name, (ours.name(), other.name()), target));
        }
        notes.extend(tried.idle_servers());
    }
    Ok((figures, notes))
}

/// Each of them once. Those that are compared stand side by side where that can be, since the machine changes meanwhile.
fn compared_apps(compared: &[Compared]) -> Vec<Around> {
    let mut apps = Vec::new();
    for app in compared.iter().flat_map(|&(ours, other, _)| [ours, other]) {
        if !apps.contains(&app) {
            apps.push(app);
        }
    }
    apps
}

/// These apps, started for the n-th time.
fn started(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
    (name, apps, start_number): (&str, &[Around], usize),
) -> Result<Tried, Box<dyn Error>> {
    let start = |around: &Around| served::start(*around, around.name(), cores.server);
    let servers = apps.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let entrants = apps
        .iter()
        .zip(&servers)
        .map(|(around, server)| entrant(around.name(), server, &["http"], None));
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load, keys: load::KEYS };
    let scenario = Scenario::closed(name, 16, 1, entrants.collect());
    scenario.turned_by(start_number).run(&driver, effort.of_a_start())
}
