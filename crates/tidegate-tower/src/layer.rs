//! The layer and its settings.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Extensions;
use tidegate_identity::{Attributes, Identity, IdentityConfig};
use tower_layer::Layer;

use crate::body::Enclosed;
use crate::decide::Decide;
use crate::head::{self, Head};
use crate::headers::HeaderSet;
use crate::service::RateLimit;

/// Limits the requests that come to a service.
///
/// The limiter and all that it counts are shared by every service that the layer makes, however often
/// they are cloned.
///
/// ```
/// use tidegate::RuleLimiter;
/// use tidegate_tower::RateLimitLayer;
///
/// let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, per: [ip], limit: 10/s } ] }")?;
/// let layer = RateLimitLayer::new(limiter).domain("api");
/// # let _ = layer;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RateLimitLayer<D, W = Enclosed> {
    pub(crate) settings: Arc<Settings<D>>,
    enclosed_by: PhantomData<fn() -> W>,
}

/// What happens to a request that could not be decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUndecided {
    /// It is answered with 503, or over gRPC with `UNAVAILABLE`.
    #[default]
    Refuse,
    /// It passes.
    LetPass,
}

/// More attributes of a request, from who knows it better.
type Describe = dyn Fn(&Head<'_>, &mut Attributes) + Send + Sync;
/// What a request costs.
type Cost = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
/// Who is at the other end of the connection.
type TellPeer = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// Where the address of the other end of a connection is found.
#[derive(Clone)]
pub(crate) enum FindPeer {
    /// Where servers note it. It is told apart from what programs say because a call that is known costs less.
    Noted,
    Told(Arc<TellPeer>),
}

impl FindPeer {
    /// What the program says goes before what the connection says, and that before what servers note.
    pub(crate) fn of(
        &self,
        other_end: Option<&SocketAddr>,
        extensions: &Extensions,
    ) -> Option<IpAddr> {
        match (self, self.noted(other_end, extensions)) {
            (_, Some(noted)) => Some(noted.ip()),
            (Self::Noted, None) => head::made_peer(extensions),
            (Self::Told(find), None) => find(extensions).or_else(|| Some(other_end?.ip())),
        }
    }

    /// The same where it can be pointed at, as for most requests.
    #[inline]
    pub(crate) fn noted<'r>(
        &self,
        other_end: Option<&'r SocketAddr>,
        extensions: &'r Extensions,
    ) -> Option<&'r SocketAddr> {
        match self {
            Self::Noted => head::noted_peer(other_end, extensions),
            Self::Told(_) => None,
        }
    }
}

/// All of it, behind one pointer.
pub(crate) struct Settings<D> {
    pub(crate) decider: Arc<D>,
    pub(crate) domain: Arc<str>,
    pub(crate) identity: Option<Arc<Identity>>,
    pub(crate) describe: Option<Arc<Describe>>,
    pub(crate) cost: Option<Arc<Cost>>,
    pub(crate) peer: FindPeer,
    pub(crate) headers: HeaderSet,
    pub(crate) delay_max: Duration,
    pub(crate) on_undecided: OnUndecided,
    pub(crate) refuse_doubtful: bool,
    /// Whether it was said that no rule is of the domain.
    is_domain_told: Arc<AtomicBool>,
}

impl RateLimitLayer<()> {
    /// The domain whose rules apply unless another is named.
    pub const DOMAIN_DEFAULT: &'static str = "default";
    /// How long a request is held back at most, unless said: as long as most clients wait.
    pub const DELAY_MAX_DEFAULT: Duration = Duration::from_secs(10);
    /// What the identity hashes with where no other is given. It then looks for no API keys, and nothing
    /// but a method of more than 256 bytes is hashed.
    const SECRET: [u8; 16] = *b"no keys to hide.";
}

impl<D: Decide> RateLimitLayer<D> {
    /// A layer that asks this limiter, and knows requests by their address, method, host and path.
    pub fn new(decider: D) -> Self {
        Self::sharing(Arc::new(decider))
    }

    /// The same with a limiter that others ask too.
    pub fn sharing(decider: Arc<D>) -> Self {
        let identity = Identity::new(IdentityConfig::new(RateLimitLayer::SECRET)).ok();
        let settings = Settings {
            decider,
            domain: RateLimitLayer::DOMAIN_DEFAULT.into(),
            identity: identity.map(Arc::new),
            describe: None,
            cost: None,
            peer: FindPeer::Noted,
            headers: HeaderSet::default(),
            delay_max: RateLimitLayer::DELAY_MAX_DEFAULT,
            on_undecided: OnUndecided::default(),
            refuse_doubtful: false,
            is_domain_told: Arc::default(),
        };
        Self { settings: Arc::new(settings), enclosed_by: PhantomData }
    }

    /// The same for services whose bodies are axum's, as those of its routers are. Responses come out with that
    /// type again, which spares axum a box for each of them.
    #[cfg(feature = "axum")]
    #[must_use]
    pub fn in_axum(self) -> RateLimitLayer<D, crate::body::InAxum> {
        RateLimitLayer { settings: self.settings, enclosed_by: PhantomData }
    }
}

impl<D: Decide, W> RateLimitLayer<D, W> {
    /// Whose rules apply; [`RateLimitLayer::DOMAIN_DEFAULT`] unless said.
    #[must_use]
    pub fn domain(self, domain: impl Into<Arc<str>>) -> Self {
        self.with(|settings| {
            settings.domain = domain.into();
            settings.is_domain_told = Arc::default();
        })
    }

    /// How attributes are made of requests: trusted proxies, API keys, tokens, headers.
    #[must_use]
    pub fn identity(self, identity: impl Into<Arc<Identity>>) -> Self {
        self.with(|settings| settings.identity = Some(identity.into()))
    }

    /// Adds attributes that the program knows: the user of its session, the matched route.
    #[must_use]
    pub fn describe(
        self,
        describe: impl Fn(&Head<'_>, &mut Attributes) + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.describe = Some(Arc::new(describe)))
    }

    /// Leaves out the attributes of the [identity](Self::identity), so that there are those of
    /// [`describe`](Self::describe) alone.
    #[must_use]
    pub fn without_identity(self) -> Self {
        self.with(|settings| settings.identity = None)
    }

    /// What a request costs, where that is not 1.
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|settings| settings.cost = Some(Arc::new(cost)))
    }

    /// Where the address of the other end is found, before what the [connection](RateLimit::of_peer) says.
    /// Unless said, it is the first of these: [`Peer`](crate::Peer), what the connection says, what axum notes as
    /// `ConnectInfo<SocketAddr>` (feature `axum`), what tonic notes (feature `tonic`).
    #[must_use]
    pub fn peer(
        self,
        peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        self.with(|settings| settings.peer = FindPeer::Told(Arc::new(peer)))
    }

    /// Which headers responses have; all unless said.
    #[must_use]
    pub fn headers(self, headers: HeaderSet) -> Self {
        self.with(|settings| settings.headers = headers)
    }

    /// How long a request is held back at most by a leaky bucket;
    /// [`RateLimitLayer::DELAY_MAX_DEFAULT`] unless said. One whose turn is further off is refused, and
    /// what it took is given back.
    #[must_use]
    pub fn delay_max(self, delay_max: Duration) -> Self {
        self.with(|settings| settings.delay_max = delay_max)
    }

    /// What happens to a request that could not be decided; it is refused with 503 unless said.
    #[must_use]
    pub fn on_undecided(self, on_undecided: OnUndecided) -> Self {
        self.with(|settings| settings.on_undecided = on_undecided)
    }

    /// Answers 400 to requests that two servers might read in two ways: more than one host or API key.
    /// Whoever sends one may hope to be counted as somebody else.
    #[must_use]
    pub fn refuse_doubtful(self) -> Self {
        self.with(|settings| settings.refuse_doubtful = true)
    }

    /// The limiter.
    pub fn decider(&self) -> &Arc<D> {
        &self.settings.decider
    }

    fn with(mut self, change: impl FnOnce(&mut Settings<D>)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}

impl<D: Decide> Settings<D> {
    /// A domain that was not set, or misspelt, has no rules: all requests pass, and nobody would notice. It is said once for
    /// all services of a layer, since routers make one for each route.
    pub(crate) fn warn_of_no_rules(&self) {
        // ORDERING: it guards nothing but the line itself.
        if !self.decider.has_domain(&self.domain)
            && !self.is_domain_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "no rule is of the domain `{}`, so its requests pass unlimited: name the domain of your rules with \
                 `RateLimitLayer::domain`, unless they come with a reload",
                self.domain
            );
        }
    }
}

impl<S, D: Decide, W> Layer<S> for RateLimitLayer<D, W> {
    type Service = RateLimit<S, D, W>;

    fn layer(&self, inner: S) -> RateLimit<S, D, W> {
        self.settings.warn_of_no_rules();
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

impl<D, W> Clone for RateLimitLayer<D, W> {
    fn clone(&self) -> Self {
        Self { settings: Arc::clone(&self.settings), enclosed_by: PhantomData }
    }
}

impl<D> Clone for Settings<D> {
    fn clone(&self) -> Self {
        Self {
            decider: Arc::clone(&self.decider),
            domain: Arc::clone(&self.domain),
            identity: self.identity.clone(),
            describe: self.describe.clone(),
            cost: self.cost.clone(),
            peer: self.peer.clone(),
            headers: self.headers,
            delay_max: self.delay_max,
            on_undecided: self.on_undecided,
            refuse_doubtful: self.refuse_doubtful,
            is_domain_told: Arc::clone(&self.is_domain_told),
        }
    }
}

impl<D, W> fmt::Debug for RateLimitLayer<D, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

impl<D> fmt::Debug for Settings<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("domain", &self.domain)
            .field("headers", &self.headers)
            .field("delay_max", &self.delay_max)
            .field("on_undecided", &self.on_undecided)
            .field("refuse_doubtful", &self.refuse_doubtful)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use tidegate::RuleLimiter;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    /// The lines that are logged while a layer for a domain makes services.
    fn lines_of(
        set: impl FnOnce(RateLimitLayer<RuleLimiter>) -> RateLimitLayer<RuleLimiter>,
    ) -> Vec<String> {
        const RULES: &str = "{ domain: web, rules: [ { name: all, limit: 10/s } ] }";
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let layer = set(RateLimitLayer::new(RuleLimiter::new(RULES).unwrap()));
            for _ in 0..3 {
                let _ = layer.clone().layer(());
            }
        });
        let log = log.0.lock().unwrap();
        String::from_utf8_lossy(&log).lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_layer_for_a_domain_without_rules_says_so_once() {
        for lines in [lines_of(|layer| layer), lines_of(|layer| layer.domain("wbe"))] {
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains("WARN") && lines[0].contains("RateLimitLayer::domain"));
        }
        assert_eq!(lines_of(|layer| layer.domain("web")), [""; 0]);
    }
}
