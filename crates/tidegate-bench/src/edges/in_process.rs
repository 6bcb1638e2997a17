//! What a request takes without sockets, in this process: memory from the heap, and time. Behind a layer around the app,
//! and behind one that axum boxes.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use tower::{Service, ServiceExt as _};

use super::served::{Around, Limited, Use};
use crate::allocations;
use crate::targets::{Figure, Target};

/// Enough for what happens once in twenty requests.
const REQUESTS: u32 = 10_000;
/// How often each of them is timed, in turns. The best of them counts, as nothing makes a request faster than it is.
const ROUNDS: u32 = 60;

pub(super) fn figures() -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut apps = Vec::new();
    for around in Around::ALL {
        apps.push(App { around, ask: around.used(Asking)??, allocations: 0.0, nanos: f64::MAX });
    }
    for app in &mut apps {
        app.ask_often()?;
        let mut outcome = Ok(Duration::ZERO);
        let taken = allocations::during(|| outcome = app.ask_often());
        outcome?;
        #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
        let taken = taken as f64;
        app.allocations = taken / f64::from(REQUESTS);
    }
    for _ in 0..ROUNDS {
        for app in &mut apps {
            let took = app.ask_often()?.as_secs_f64() * 1e9;
            app.nanos = app.nanos.min(took / f64::from(REQUESTS));
        }
    }
    let mut figures = told(&apps, "allocations", |app| app.allocations);
    figures.extend(told(&apps, "ns", |app| app.nanos));
    Ok(figures)
}

/// What each takes in a unit, and what a layer adds beside what `tower_governor` does.
fn told(apps: &[App], unit: &'static str, of: impl Fn(&App) -> f64) -> Vec<Figure> {
    let added = |around: Around| {
        let of = |around| apps.iter().find(|app| app.around == around).map_or(f64::NAN, &of);
        of(around) - of(Around::Nothing)
    };
    // Like with like: in the same place, and with the same headers where there is a target.
    let half = (unit == "allocations").then_some(Target::AtMost(0.5));
    let ratios = [
        (Around::TidegateFewHeaders, Around::Governor, half),
        (Around::Tidegate, Around::Governor, None),
        (Around::TidegateNoHeaders, Around::GovernorNoHeaders, None),
        (Around::TidegateFewHeadersInside, Around::GovernorInside, None),
        (Around::TidegateInside, Around::GovernorInside, None),
    ];
    // Where the other adds nothing there is no ratio.
    let ratios = ratios.into_iter().filter(|(_, governor, _)| added(*governor) > 0.0);
    let ratios = ratios.map(|(ours, governor, target)| Figure {
        figure: format!("{unit} added: {}, to {}", ours.name(), governor.name()),
        value: added(ours) / added(governor),
        unit: "times",
        peer: governor.peer(),
        target,
    });
    let figures = apps.iter().map(|app| Figure {
        figure: format!("{unit} of a request: {}", app.around.name()),
        value: of(app),
        unit,
        peer: app.around.peer(),
        target: None,
    });
    figures.chain(ratios).collect()
}

/// An app, and what a request of it takes.
struct App {
    around: Around,
    ask: Ask,
    allocations: f64,
    nanos: f64,
}

/// Asks once.
type Ask = Box<dyn FnMut() -> Result<(), Box<dyn Error>>>;

impl App {
    fn ask_often(&mut self) -> Result<Duration, Box<dyn Error>> {
        let began = Instant::now();
        for _ in 0..REQUESTS {
            (self.ask)()?;
        }
        Ok(began.elapsed())
    }
}

struct Asking;

impl Use for Asking {
    type Outcome = Result<Ask, Box<dyn Error>>;

    fn of<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        asking(app, true)
    }

    fn without_addresses<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        asking(app, false)
    }

    fn limited(self, app: Limited, carries_addresses: bool) -> Self::Outcome {
        asking(app.of_peer(PEER), carries_addresses)
    }
}

const PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 4711);

/// Asks an app, with the address of the peer in the request or without.
fn asking<S>(app: S, carries_peer: bool) -> Result<Ask, Box<dyn Error>>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    Ok(Box::new(move || {
        let mut request = Request::get("/limit/17").body(Body::empty())?;
        if carries_peer {
            request.extensions_mut().insert(ConnectInfo(PEER));
        }
        let status = runtime.block_on(app.clone().oneshot(request))?.status();
        if status.is_success() { Ok(()) } else { Err(status.as_str().into()) }
    }))
}
