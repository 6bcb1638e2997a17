//! From the head of a request to what becomes of it: its attributes, the decision, and what follows by
//! the settings. It waits for nobody.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response};
use tidegate::rules::Foreseen;
use tidegate::{Attribute, Call, Clock as _, Reads, SystemClock, Timestamp};
use tidegate_identity::{Attributes, Identity, RequestParts};

use crate::decide::{Asked, Decide, Decided, Undecided};
use crate::grpc;
use crate::head::{Connection, Head, Tongue, names_peer};
use crate::layer::{FindPeer, OnUndecided, Settings};
use crate::passage::Passage;
use crate::refusal;
use crate::standing::Standing;

/// What becomes of a request.
pub(crate) enum Verdict<D: Decide> {
    Pass(Passage<D>),
    /// It passes after so long.
    Wait(Passage<D>, Duration),
    Refuse(Response<Bytes>),
}

/// The same, or what has to be waited for.
pub(crate) enum First<D: Decide> {
    Known(Verdict<D>),
    /// Whoever is asked later has to know the tongue then.
    Ask(Asked, Tongue),
}

thread_local! {
    /// The attributes of the request at hand, in memory that the next one uses again.
    static ATTRIBUTES: RefCell<Attributes> = RefCell::default();
}

/// All attributes but one, without which a request is described by the text of an address and nothing else.
const NOT_IP: Reads = Reads::ADDRESS.and(Reads::COUNTRY).and(Reads::ASN).and(Reads::OF_REQUEST);

const DOUBTFUL: &str = "the request names more than one host or key, or one that is none";

impl<D: Decide> Settings<D> {
    /// Decides a request at once where that is possible, and says with what it passes in the place for that. All but what
    /// most requests do is in a box, so that little is moved about for these.
    #[inline]
    pub(crate) fn judge<B>(
        &self,
        request: &Request<B>,
        connection: Option<&Connection>,
        passage: &mut Passage<D>,
    ) -> Result<(), Box<First<D>>> {
        let mut begun = self.decider.begin();
        let other_end = connection.map(|connection| &connection.peer);
        let decided = if let Some(Connection { foreseen: Some(foreseen), .. }) = connection
            && !names_peer(request.extensions())
            && self.decider.decide_foreseen(&mut begun, foreseen)
        {
            Ok(())
        } else {
            self.decide(request, other_end, &mut begun)?
        };
        if decided.is_ok() && begun.as_ref().is_some_and(D::Decided::passes_at_once) {
            passage.pass_at_once(&mut begun, &self.decider, self.headers);
            return Ok(());
        }
        Err(self.weighed(&Head::of(request, other_end), decided, begun))
    }

    /// What follows from each request of a connection to this peer, where rules and settings depend on nothing else of them.
    pub(crate) fn foresee(&self, peer: &SocketAddr) -> Option<Foreseen> {
        let begun = self.decider.begin()?;
        let FindPeer::Noted = self.peer else { return None };
        let identity = self.by_ip(self.reads(Some(&begun)))?;
        if identity.is_proxy(Some(peer.ip())) {
            return None;
        }
        identity.with_ip_of(peer, &HeaderMap::new(), |list| {
            self.decider.foresee(&begun, &Call::new(&self.domain, list))
        })
    }

    /// Who knows clients by their address, where that is all that is read of a request.
    #[inline]
    fn by_ip(&self, reads: Reads) -> Option<&Identity> {
        let identity = self.identity.as_ref()?;
        (!reads.any_of(NOT_IP) && self.cost.is_none()).then_some(identity)
    }

    /// Decides by what is read of a request.
    #[inline]
    fn decide<B>(
        &self,
        request: &Request<B>,
        other_end: Option<&SocketAddr>,
        begun: &mut Option<D::Decided>,
    ) -> Result<Result<(), Undecided>, Box<First<D>>> {
        let reads = self.reads(begun.as_ref());
        match self.by_ip(reads) {
            Some(identity) => {
                self.decide_by_ip(identity, request, other_end, reads, begun).ok_or_else(|| {
                    self.asked(&Head::of(request, other_end), reads, Attributes::new(), 1)
                })
            }
            None => self.decide_described(&Head::of(request, other_end), reads, begun),
        }
    }

    /// Decides by the address of the client, of which no more than a text is made.
    #[inline]
    fn decide_by_ip<B>(
        &self,
        identity: &Identity,
        request: &Request<B>,
        other_end: Option<&SocketAddr>,
        reads: Reads,
        begun: &mut Option<D::Decided>,
    ) -> Option<Result<(), Undecided>> {
        let mut decide = |list: &[Attribute<'_>]| {
            self.decider.decide_begun(begun, &Call::new(&self.domain, list))
        };
        if !reads.any_of(Reads::IP) {
            return decide(&[]);
        }
        if let Some(peer) = self.peer.noted(other_end, request.extensions()) {
            return identity.with_ip_of(peer, request.headers(), decide);
        }
        let peer = self.find_peer(other_end, request.extensions());
        identity.with_ip(&RequestParts::of_client(peer, request.headers()), decide)
    }

    /// Decides by all that is read of a request, in the buffer of this thread.
    #[inline(never)]
    fn decide_described(
        &self,
        head: &Head<'_>,
        reads: Reads,
        begun: &mut Option<D::Decided>,
    ) -> Result<Result<(), Undecided>, Box<First<D>>> {
        let mut attributes = ATTRIBUTES.take();
        self.describe_to(head, reads, &mut attributes);
        if self.refuse_doubtful && attributes.doubts().any() {
            ATTRIBUTES.replace(attributes);
            return Err(doubtful(head));
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        let decided = attributes.with_list(|list| {
            self.decider.decide_begun(begun, &Call::new(&self.domain, list).with_cost(cost))
        });
        let Some(decided) = decided else {
            return Err(self.asked(head, reads, attributes, cost));
        };
        ATTRIBUTES.replace(attributes);
        Ok(decided)
    }

    /// Which attributes are made. Who describes requests may look at all of them, and a doubt may be about each.
    #[inline]
    fn reads(&self, begun: Option<&D::Decided>) -> Reads {
        if self.refuse_doubtful || self.describe.is_some() {
            Reads::ALL
        } else {
            self.decider.reads(begun)
        }
    }

    /// What has to be waited for. By then other rules may be in force, which read other attributes.
    #[cold]
    fn asked(
        &self,
        head: &Head<'_>,
        reads: Reads,
        mut attributes: Attributes,
        cost: u64,
    ) -> Box<First<D>> {
        if reads != Reads::ALL {
            self.describe_to(head, Reads::ALL, &mut attributes);
        }
        let asked = Asked { domain: Arc::clone(&self.domain), attributes, cost };
        Box::new(First::Ask(asked, Tongue::of(head.headers)))
    }

    #[cold]
    fn weighed(
        &self,
        head: &Head<'_>,
        decided: Result<(), Undecided>,
        begun: Option<D::Decided>,
    ) -> Box<First<D>> {
        // Who has decided left a decision there.
        let decided = decided.and_then(|()| begun.ok_or(Undecided::Unavailable));
        Box::new(First::Known(self.weigh(decided, || Tongue::of(head.headers))))
    }

    /// What follows from a decision. In what tongue a refusal is told is asked where there is one.
    pub(crate) fn weigh(
        &self,
        decided: Result<D::Decided, Undecided>,
        tongue: impl FnOnce() -> Tongue,
    ) -> Verdict<D> {
        let decided = match decided {
            Ok(decided) => decided,
            Err(Undecided::Unavailable) if self.on_undecided == OnUndecided::LetPass => {
                return Verdict::Pass(Passage::undecided());
            }
            Err(why) => {
                return Verdict::Refuse(match tongue() {
                    Tongue::Http => refusal::undecided(why),
                    Tongue::Grpc(content_type) => grpc::undecided(why, content_type),
                });
            }
        };
        if !decided.is_allowed() {
            return Verdict::Refuse(self.refusal(&decided.standing(), tongue()));
        }
        let delay = decided.delay();
        if delay.is_zero() {
            return Verdict::Pass(Passage::at_once(decided, &self.decider, self.headers));
        }
        if delay <= self.delay_max {
            let passage = Passage::waiting(decided, &self.decider, self.headers);
            return Verdict::Wait(passage, delay);
        }
        let until_taken = delay.saturating_sub(self.delay_max);
        let response = self.refusal(&decided.turned_away(until_taken), tongue());
        self.decider.withdrawn(decided);
        Verdict::Refuse(response)
    }

    #[inline]
    fn describe_to(&self, head: &Head<'_>, reads: Reads, attributes: &mut Attributes) {
        match &self.identity {
            Some(identity) => {
                let is_read = reads.any_of(Reads::OF_CLIENT);
                let peer =
                    is_read.then(|| self.find_peer(head.other_end, head.extensions)).flatten();
                let Head { method, uri, headers, .. } = *head;
                let parts = if reads.any_of(Reads::OF_REQUEST) {
                    RequestParts::of_http(peer, method, uri, headers)
                } else {
                    RequestParts::of_client(peer, headers)
                };
                // Only tokens have times in them.
                let now = if identity.reads_time() { SystemClock.now() } else { Timestamp::ZERO };
                identity.attributes_read(&parts, reads, now, attributes);
            }
            None => attributes.clear(),
        }
        if let Some(describe) = &self.describe {
            describe(head, attributes);
        }
    }

    fn find_peer(&self, other_end: Option<&SocketAddr>, extensions: &Extensions) -> Option<IpAddr> {
        let peer = self.peer.of(other_end, extensions);
        if peer.is_none() {
            warn_of_no_peer();
        }
        peer
    }

    fn refusal(&self, standing: &Standing<'_>, tongue: Tongue) -> Response<Bytes> {
        match tongue {
            Tongue::Http => refusal(standing, self.headers),
            Tongue::Grpc(content_type) => grpc::refusal(standing, self.headers, content_type),
        }
    }
}

#[cold]
fn doubtful<D: Decide>(head: &Head<'_>) -> Box<First<D>> {
    Box::new(First::Known(Verdict::Refuse(match Tongue::of(head.headers) {
        Tongue::Http => refusal::doubtful(DOUBTFUL),
        Tongue::Grpc(content_type) => grpc::doubtful(DOUBTFUL, content_type),
    })))
}

/// Rules that count by address do not apply to requests that have none, and nobody would notice. It is
/// said once: a server that forgets the address forgets it always, and one on a Unix socket means it.
#[cold]
fn warn_of_no_peer() {
    static SAID: AtomicBool = AtomicBool::new(false);
    // ORDERING: it guards nothing but the line itself.
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "requests come without the address of their peer, so they have no attribute `ip`; with axum \
             serve with `into_make_service_with_connect_info::<SocketAddr>()`"
        );
    }
}

#[cfg(test)]
mod tests {
    use tidegate::RuleLimiter;
    use tidegate_identity::{IdentityConfig, Trust};

    use super::*;
    use crate::layer::RateLimitLayer;

    type Layer = RateLimitLayer<RuleLimiter>;

    const BY_IP: &str = "{ name: all, per: [ip], limit: 10/s }";

    fn is_foreseen(rule: &str, set: impl FnOnce(Layer) -> Layer) -> bool {
        let limiter = RuleLimiter::new(&format!("{{ domain: default, rules: [ {rule} ] }}"));
        let layer = set(RateLimitLayer::new(limiter.unwrap()));
        layer.settings.foresee(&SocketAddr::from(([192, 0, 2, 7], 80))).is_some()
    }

    fn trusting(network: &str) -> Identity {
        let mut config = IdentityConfig::new([7; 16]);
        config.proxies.trust = Trust::Networks(vec![network.parse().unwrap()]);
        Identity::new(config).unwrap()
    }

    #[test]
    fn a_limit_is_foreseen_where_rules_and_settings_read_nothing_but_the_peer() {
        assert!(is_foreseen(BY_IP, |layer| layer));
        assert!(is_foreseen(BY_IP, |layer| layer.identity(trusting("10.0.0.0/8"))));
        assert!(is_foreseen(
            "{ name: all, match: { ip: 192.0.2.0/24 }, per: [ip], limit: 1/s }",
            |layer| layer
        ));
        for rule in [
            "{ name: all, per: [path], limit: 10/s }",
            "{ name: all, match: { method: GET }, per: [ip], limit: 10/s }",
            "{ name: all, per: [ip], limits: [ 10/s, 100/minute ] }",
            "{ name: all, per: [ip], limit: 10/s, soft: 10% }",
        ] {
            assert!(!is_foreseen(rule, |layer| layer), "{rule}");
        }
        assert!(!is_foreseen(BY_IP, |layer| layer.identity(trusting("192.0.2.0/24"))));
        assert!(!is_foreseen(BY_IP, RateLimitLayer::without_identity));
        assert!(!is_foreseen(BY_IP, RateLimitLayer::refuse_doubtful));
        assert!(!is_foreseen(BY_IP, |layer| layer.cost(|_| 1)));
        assert!(!is_foreseen(BY_IP, |layer| layer.describe(|_, _| {})));
        assert!(!is_foreseen(BY_IP, |layer| layer.peer(|_| None)));
    }
}
