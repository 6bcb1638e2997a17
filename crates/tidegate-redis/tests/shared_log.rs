//! What the log says while a store is away, however much is asked: one line when its group is decided without
//! it, one why there is no connection, and the same when it is back. It is a test by itself, since the
//! log is one for the whole process.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

#[path = "all/support/mod.rs"]
mod support;

use std::fmt::Write;
use std::sync::Mutex;

use support::nodes::{ask_one, bucket, key, on_failure, open, take, wait_until};
use support::{Kind, Server, block_on};
use tidegate_core::OnStoreFailure::Local;
use tidegate_redis::{Shared, SharedConfig};
use tidegate_store::Source;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps the lines that an operator sees.
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("tidegate")
    }

    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                write!(self.0, " {}={value:?}", field.name()).unwrap();
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        LINES.lock().unwrap().push(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn lines() -> Vec<String> {
    std::mem::take(&mut *LINES.lock().unwrap())
}

/// Asks many times, and gives how often it was the store that decided.
async fn ask_often(node: &Shared, times: usize) -> usize {
    let (limit, mut by_store) = (bucket(1 << 30), 0);
    for _ in 0..times {
        let answer = ask_one(node, take(&limit, key(0)), on_failure(Local)).await.unwrap();
        by_store += usize::from(answer.source == Source::Store);
    }
    by_store
}

#[test]
fn a_store_that_goes_and_comes_back_is_a_line_for_its_group_and_one_for_its_connection() {
    tracing::subscriber::set_global_default(Log).unwrap();
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let [first, second] = servers;
    let socket = second.socket().to_owned();
    let config = SharedConfig::new([first.config(), second.config()]);
    // All keys are in the second group.
    let node = open(config.weights(&[0, 1]));
    block_on(ask_often(&node, 100));
    assert_eq!(lines(), Vec::<String>::new(), "nothing to tell");
    drop(second);
    block_on(async {
        wait_until("it is noticed", async || !node.stats().groups[1].is_well).await;
        assert_eq!(ask_often(&node, 2_000).await, 0);
    });
    one_line_for_each(&lines(), "WARN");
    let _again = Server::start_at(Kind::Redis, &socket, &[]);
    block_on(async {
        wait_until("it is noticed", async || node.stats().groups[1].is_well).await;
        wait_until("it decides", async || ask_often(&node, 1).await == 1).await;
        assert_eq!(ask_often(&node, 200).await, 200);
    });
    one_line_for_each(&lines(), "INFO");
}

fn one_line_for_each(lines: &[String], level: &str) {
    let (groups, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.contains("group="));
    assert_eq!((groups.len(), others.len()), (1, 1), "{lines:#?}");
    assert!(groups[0].contains("group=1") && others[0].contains("connect"), "{lines:#?}");
    assert!(lines.iter().all(|line| line.starts_with(level)), "{lines:#?}");
}
