//! `tidegate bench`: load on a running server over one of its protocols, and what came of it.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`args`] | the flags, checked |
//! | [`lane`] | one connection's share: what is sent when, without sockets and clocks |
//! | [`pace`], [`keys`] | when a request is due, and which key it is about |
//! | [`wire`] | the protocols as bytes |
//! | [`drive`] | sockets and threads |
//! | [`tally`], [`report`], [`picture`] | what is counted, and how it is shown |

pub(crate) mod args;
mod drive;
mod keys;
mod lane;
mod pace;
mod picture;
mod report;
mod tally;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate::{Clock as _, Span, SystemClock, Timestamp};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use self::args::{BenchArgs, LoadArgs, Protocol, ServiceName};
use self::drive::Share;
use self::keys::Keys;
use self::lane::Lane;
use self::pace::{Grid, Pace};
use self::report::{Outcome, grouped};
use self::tally::Tally;
use self::wire::Wire;
use self::wire::grpc::{Grpc, Service};
use self::wire::http::Http;
use self::wire::http::streams::HttpStreams;
use self::wire::resp::Resp;
use crate::failure::Failure;
use crate::{Answer, output};

/// How often the progress is shown.
const TICK: Duration = Duration::from_millis(100);

/// Runs the load and prints what came of it.
pub(crate) fn run(args: &BenchArgs) -> Result<Answer, Failure> {
    let outcome = match &args.protocol {
        Protocol::Http(http) => {
            let verb = if http.body.is_some() { "POST" } else { "GET" };
            let (address, path, body) = (&http.address, &http.path, http.body.as_deref());
            if http.http2 {
                let request = format!("HTTP/2 {verb} {path}");
                let wire = HttpStreams::new(address, path, body).ok_or_else(too_long)?;
                measure("http2", address, request, args.load(), &wire)?
            } else {
                let request = format!("HTTP {verb} {path}");
                measure("http", address, request, args.load(), &Http::new(address, path, body))?
            }
        }
        Protocol::Grpc(grpc) => {
            let (service, request) = match grpc.service {
                ServiceName::Envoy => {
                    let (domain, attribute) = (grpc.domain.clone(), grpc.attribute.clone());
                    (Service::Envoy { domain, attribute }, "gRPC ShouldRateLimit")
                }
                ServiceName::Throttlecrab => (Service::Throttlecrab, "gRPC Throttle"),
            };
            let wire = Grpc::new(&grpc.address, service);
            measure("grpc", &grpc.address, request.to_owned(), args.load(), &wire)?
        }
        Protocol::Resp(resp) => {
            let request = format!("RESP {}", resp.command);
            measure("resp", &resp.address, request, args.load(), &Resp::new(&resp.command))?
        }
    };
    if args.load().json {
        output::json(&outcome.as_json())?;
    } else {
        output::data(&outcome.as_text())?;
    }
    let Tally { errors, unanswered, .. } = outcome.tally;
    Ok(if errors + unanswered == 0 { Answer::Yes } else { Answer::No })
}

fn too_long() -> Failure {
    let bytes = wire::FRAME_BYTES_MAX;
    Failure::Asked(format!("over HTTP/2, paths and bodies have at most about {bytes} bytes here"))
}

fn measure<W: Wire + Clone + Send + 'static>(
    protocol: &'static str,
    address: &str,
    request: String,
    load: &LoadArgs,
    wire: &W,
) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Asked(format!("no runtime: {error}")))?;
    let (start, tally, interrupted) = runtime.block_on(drive_all(address, load, wire))?;
    let (address, load) = (address.to_owned(), load.clone());
    Ok(Outcome { protocol, address, request, load, start, tally, interrupted })
}

/// Connects, runs all threads, shows the progress, and stops early where Ctrl-C says so.
async fn drive_all<W: Wire + Clone + Send + 'static>(
    address: &str,
    load: &LoadArgs,
    wire: &W,
) -> Result<(Timestamp, Tally, bool), Failure> {
    let (address, streams) = connect_all(address, load.connections).await?;
    let start = SystemClock.now();
    let end = start.plus(load.duration);
    let stop = CancellationToken::new();
    let answers = Arc::new(AtomicU64::new(0));
    let mut shares: Vec<Share<W>> = Vec::new();
    for _ in 0..load.threads.min(load.connections) {
        let (stop, answers) = (stop.clone(), Arc::clone(&answers));
        shares.push(Share { address, lanes: Vec::new(), end, awake: load.awake, stop, answers });
    }
    let threads = shares.len();
    for (number, stream) in streams.into_iter().enumerate() {
        let keys = Keys::new(load.keys, load.zipf, number as u64);
        let keys = keys.ok_or_else(|| Failure::Asked("there are no such keys".to_owned()))?;
        let pace = pace(load, start, number as u64);
        let lane = Lane::new(wire.clone(), pace, keys, load.pipeline as usize, end);
        shares[number % threads].lanes.push((lane, stream));
    }
    // Before anybody is asked: who waits for that may press Ctrl-C then.
    let interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Failure::Asked(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut results = Vec::new();
    for share in shares {
        let (done, result) = oneshot::channel();
        thread::spawn(move || _ = done.send(share.run()));
        results.push(result);
    }
    let progress = progress(load.duration);
    let all = async {
        let mut tally = Tally::new();
        for result in results {
            let one = result.await.map_err(|_| "a thread ended early".to_owned());
            tally.add(one.and_then(|one| one.map_err(|error| error.to_string()))?);
        }
        Ok::<_, String>(tally)
    };
    let watch = watch(&progress, start, &answers, &stop, interrupts);
    let (tally, interrupted) = tokio::join!(
        async {
            let all = all.await;
            stop.cancel();
            all
        },
        watch
    );
    progress.finish_and_clear();
    Ok((start, tally.map_err(Failure::Asked)?, interrupted))
}

fn pace(load: &LoadArgs, start: Timestamp, connection: u64) -> Pace {
    match load.rate {
        Some(per_second) => {
            let connections = u64::from(load.connections);
            Pace::Open(Grid { start, per_second, connections, connection })
        }
        None => Pace::Closed,
    }
}

/// Every connection, before the time starts.
async fn connect_all(
    address: &str,
    connections: u32,
) -> Result<(SocketAddr, Vec<std::net::TcpStream>), Failure> {
    let unreachable = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                "; is the server running? `tidegate serve` starts one"
            }
            _ => "",
        };
        Failure::Asked(format!("cannot connect to {address}: {error}{hint}"))
    };
    let mut found = tokio::net::lookup_host(address).await.map_err(unreachable)?;
    let found = found.next().ok_or_else(|| Failure::Asked(format!("{address} has no address")))?;
    let mut streams = Vec::with_capacity(connections as usize);
    for _ in 0..connections {
        let stream = drive::connect(found).await.map_err(unreachable)?;
        streams.push(stream.into_std().map_err(unreachable)?);
    }
    Ok((found, streams))
}

/// A bar on standard error, where that is a terminal.
fn progress(duration: Span) -> ProgressBar {
    let bar = ProgressBar::new(duration.as_micros());
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows the progress until `stop`, and stops where Ctrl-C is pressed. Whether it was.
async fn watch(
    progress: &ProgressBar,
    start: Timestamp,
    answers: &AtomicU64,
    stop: &CancellationToken,
    mut interrupts: Signal,
) -> bool {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before = (start, 0);
    loop {
        tokio::select! {
            () = stop.cancelled() => return false,
            pressed = interrupts.recv() => {
                stop.cancel();
                return pressed.is_some();
            }
            _ = tick.tick() => {}
        }
        let now = (SystemClock.now(), answers.load(Ordering::Relaxed));
        let micros = now.0.since(before.0).as_micros().max(1);
        let rate = (now.1 - before.1) * Span::SECOND.as_micros() / micros;
        progress.set_position(now.0.since(start).as_micros());
        progress.set_message(format!("{} answers, {} per second", grouped(now.1), grouped(rate)));
        before = now;
    }
}
