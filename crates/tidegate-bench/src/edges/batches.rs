//! A thousand callers that share a client: decisions per second with batches, and with a message for each
//! call. They run in a process of their own, on the core of the load: the program calls itself with a
//! subcommand that help does not show.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::error::Error;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::Call;
use tidegate_client::{Client, ClientBuilder};
use tokio::task::JoinSet;

use crate::targets::{Figure, Target};
use crate::wire::Effort;
use crate::wire::server::{Cores, Server, pinned};

/// What the program says to itself: with this word, an address, a window and a time.
pub(crate) const SUBCOMMAND: &str = "edge-callers";

const CALLERS: usize = 1_000;

/// Nobody gives up: a call that waits long is slow, and not lost.
const DEADLINE: Duration = Duration::from_secs(30);

pub(super) fn figures(
    tidegate: &Path,
    cores: Cores,
    effort: Effort,
) -> Result<Vec<Figure>, Box<dyn Error>> {
    let daemon = Server::tidegate(tidegate, "grpc", cores.server)?;
    let windows = [ClientBuilder::WINDOW_DEFAULT, Duration::ZERO];
    let mut best = [0.0_f64; 2];
    // The first round warms up.
    for round in 0..=effort.rounds {
        eprintln!("  a client with {CALLERS} callers: round {round} of {}", effort.rounds);
        for (window, best) in windows.into_iter().zip(&mut best) {
            let rate = in_own_process(&daemon, window, effort.seconds, cores.load)?;
            if round > 0 {
                *best = best.max(rate);
            }
        }
    }
    let [batched, single] = best;
    let figure = |name: &str, value, unit, target| Figure {
        figure: format!("a client with {CALLERS} callers: {name}"),
        value,
        unit,
        peer: None,
        target,
    };
    Ok(vec![
        figure("with batches", batched, "decisions per second", None),
        figure("a message for each call", single, "decisions per second", None),
        figure("batches", batched / single, "times the decisions", Some(Target::AtLeast(10.0))),
    ])
}

/// Has the callers call from another process, on this core alone.
fn in_own_process(
    daemon: &Server,
    window: Duration,
    seconds: f64,
    core: usize,
) -> Result<f64, Box<dyn Error>> {
    let mut command = pinned(core, &std::env::current_exe()?);
    command.args([SUBCOMMAND, &format!("http://{}", daemon.address())]);
    command.args([window.as_micros().to_string(), seconds.to_string()]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.trim().parse().map_err(|_| "the callers failed".into())
}

/// The other side of it: says how many decisions there were in a second.
pub(crate) fn call_here(
    address: &str,
    window_us: &str,
    seconds: &str,
) -> Result<(), Box<dyn Error>> {
    let window = Duration::from_micros(window_us.parse()?);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    println!("{}", runtime.block_on(per_second(address, window, seconds.parse()?))?);
    Ok(())
}

async fn per_second(address: &str, window: Duration, seconds: f64) -> Result<f64, Box<dyn Error>> {
    let client = Client::builder(address).window(window).deadline(DEADLINE).build()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    let start = Instant::now();
    for number in 0..CALLERS {
        let (client, is_over) = (client.clone(), Arc::clone(&is_over));
        callers.spawn(async move {
            let key = number.to_string();
            let attributes = [("key", key.as_str()).into()];
            let mut decisions = 0_u32;
            // ORDERING: it guards nothing, and a moment more or less does not matter.
            while !is_over.load(Ordering::Relaxed) {
                let answer = client.check(&Call::new("default", &attributes)).await?;
                // What was not decided by the daemon is not what is measured.
                decisions += u32::from(!answer.is_fallback());
            }
            Ok::<_, tidegate_client::ClientError>(decisions)
        });
    }
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    // ORDERING: as above.
    is_over.store(true, Ordering::Relaxed);
    let mut decisions = 0.0;
    while let Some(caller) = callers.join_next().await {
        decisions += f64::from(caller??);
    }
    Ok(decisions / start.elapsed().as_secs_f64())
}
