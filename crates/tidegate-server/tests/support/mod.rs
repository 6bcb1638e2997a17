//! An engine on a clock that the test moves, and its protocols on free ports of the loopback address.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::{ParseOptions, Source};
use tidegate_server::controls::Controls;
use tidegate_server::listen::{Listener, Peer, Stream};
use tidegate_server::{Engine, EngineClock};
use tokio_util::sync::CancellationToken;

/// An engine, and the clock that it runs on.
pub(crate) struct Daemon {
    pub(crate) engine: Arc<Engine>,
    pub(crate) clock: ManualClock,
    pub(crate) drain: CancellationToken,
}

impl Daemon {
    /// An engine with these rules, which must be free of mistakes.
    pub(crate) fn new(rules: &str) -> Self {
        Self::with_identity(rules, IdentityConfig::new(*b"sixteen  secrets"))
    }

    pub(crate) fn with_identity(rules: &str, identity: IdentityConfig) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_700_000_000));
        let parsed = RuleSet::parse(&[Source::new("rules.yaml", rules)], &ParseOptions::default());
        let rules = parsed.unwrap_or_else(|report| panic!("{report}")).rules;
        let limiter = RuleLimiter::builder(rules).clock(EngineClock::Manual(clock.clone())).build();
        let limiter = limiter.expect("limits that fit");
        let identity = Identity::new(identity).expect("an identity");
        let engine = Arc::new(Engine::new(limiter, identity, Controls::default()));
        Self { engine, clock, drain: CancellationToken::new() }
    }

    /// Serves a protocol on a free port, until the test ends.
    pub(crate) async fn listen<F>(
        &self,
        serve: impl Fn(Arc<Engine>, Stream, Peer, CancellationToken) -> F + Send + 'static,
    ) -> SocketAddr
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (engine, drain) = (Arc::clone(&self.engine), self.drain.clone());
        tokio::spawn(async move {
            let listener = Listener::Tcp(listener);
            while let Ok((stream, peer)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&engine), stream, peer, drain.clone()));
            }
        });
        address
    }
}

/// What an engine on memory says: nothing is waited for.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(said) => said,
        Poll::Pending => panic!("memory answers at once"),
    }
}
