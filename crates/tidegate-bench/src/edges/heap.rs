//! How often a request takes memory from the heap: behind a layer around the app, and behind one that axum boxes.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use tower::{Service, ServiceExt as _};

use super::served::{Around, Use};
use crate::allocations;
use crate::targets::{Figure, Target};

/// Enough for what happens once in twenty requests.
const REQUESTS: u32 = 10_000;

pub(super) fn figures() -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut counts = Vec::new();
    for around in Around::ALL {
        counts.push((around, around.used(Counting)??));
    }
    let added = |around: Around| {
        let of = |around| counts.iter().find(|(is, _)| *is == around).map_or(f64::NAN, |of| of.1);
        of(around) - of(Around::Nothing)
    };
    // Like with like: in the same place, and with the same headers where there is a target.
    let ratios = [
        (Around::TidegateFewHeaders, Around::Governor, Some(Target::AtMost(0.5))),
        (Around::Tidegate, Around::Governor, None),
        (Around::TidegateFewHeadersInside, Around::GovernorInside, None),
        (Around::TidegateInside, Around::GovernorInside, None),
    ];
    let ratios = ratios.into_iter().map(|(ours, governor, target)| Figure {
        figure: format!("allocations added: {}, to {}", ours.name(), governor.name()),
        value: added(ours) / added(governor),
        unit: "times the allocations",
        peer: governor.peer(),
        target,
    });
    let figures = counts.iter().map(|&(around, value)| Figure {
        figure: format!("allocations of a request: {}", around.name()),
        value,
        unit: "allocations",
        peer: around.peer(),
        target: None,
    });
    Ok(figures.chain(ratios).collect())
}

/// The allocations of one request, on average.
struct Counting;

impl Use for Counting {
    type Outcome = Result<f64, Box<dyn Error>>;

    fn of<S>(self, app: S) -> Self::Outcome
    where
        S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let ask = || {
            let mut request = Request::get("/limit/17").body(Body::empty())?;
            let peer = SocketAddr::from(([192, 0, 2, 7], 4711));
            request.extensions_mut().insert(ConnectInfo(peer));
            let status = runtime.block_on(app.clone().oneshot(request))?.status();
            if status.is_success() {
                Ok(())
            } else {
                Err::<(), Box<dyn Error>>(status.as_str().into())
            }
        };
        for _ in 0..100 {
            ask()?;
        }
        let mut failed = None;
        let taken = allocations::during(|| {
            for _ in 0..REQUESTS {
                if let Err(error) = ask() {
                    failed = Some(error);
                }
            }
        });
        #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
        failed.map_or(Ok(taken as f64 / f64::from(REQUESTS)), Err)
    }
}
