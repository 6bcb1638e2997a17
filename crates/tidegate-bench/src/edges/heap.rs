//! How often a request takes memory from the heap. What axum takes for any layer is told apart from what a
//! layer takes itself.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use hyper::Request;
use tower::ServiceExt as _;

use super::served::Around;
use super::{ALIKE, EMPTY, GOVERNOR, NONE, OURS};
use crate::allocations;
use crate::targets::{Figure, Target};

/// Enough for what happens once in twenty requests.
const REQUESTS: u32 = 10_000;

pub(super) fn figures() -> Result<Vec<Figure>, Box<dyn Error>> {
    let [none, empty, ours, few, governor] = Around::ALL.map(per_request);
    let (none, empty, ours, few, governor) = (none?, empty?, ours?, few?, governor?);
    let figure = |name: &str, value, peer| Figure {
        figure: format!("allocations of a request: {name}"),
        value,
        unit: "allocations",
        peer,
        target: None,
    };
    let ratio = |name: &str, ours: f64, beyond: f64, target| Figure {
        figure: name.to_owned(),
        value: (ours - beyond) / (governor - beyond),
        unit: "times the allocations",
        peer: Some(GOVERNOR),
        target,
    };
    let adds = "allocations that the layer adds, to those that tower_governor adds";
    let alike = format!("{adds}: X-RateLimit headers alone in both");
    let all = format!("{adds}: all headers of ours");
    let itself = "the same beyond a layer that does nothing";
    Ok(vec![
        figure(NONE, none, None),
        figure(EMPTY, empty, None),
        figure(OURS, ours, None),
        figure(ALIKE, few, None),
        figure(GOVERNOR, governor, Some(GOVERNOR)),
        ratio(&alike, few, none, Some(Target::AtMost(0.5))),
        ratio(&all, ours, none, None),
        ratio(itself, ours, empty, None),
    ])
}

fn per_request(around: Around) -> Result<f64, Box<dyn Error>> {
    // As it is served: an app without its state makes its routes anew for every request.
    let app: Router = around.app()?.with_state(());
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let ask = || {
        let mut request = Request::get("/limit/17").body(Body::empty())?;
        let peer = SocketAddr::from(([192, 0, 2, 7], 4711));
        request.extensions_mut().insert(ConnectInfo(peer));
        let status = runtime.block_on(app.clone().oneshot(request))?.status();
        if status.is_success() { Ok(()) } else { Err::<(), Box<dyn Error>>(status.as_str().into()) }
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
