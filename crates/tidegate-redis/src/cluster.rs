//! A cluster: one lane for each primary, and a map of who has which slot.
//!
//! The map is a guess that servers correct. One that does not have a slot says who does (`MOVED`), or that
//! it is on its way (`ASK`); it has then done nothing, so the call is sent there. That is all that
//! is ever sent twice: where an answer is missing, the call may have been run. The map is read again
//! after such a word and after failures, by one task, with pauses.
//!
//! Requests whose keys are in several slots, or in one that is on its way, are taken apart; see
//! [`split`](crate::split).

mod refresh;
mod routes;
mod slots;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

use parking_lot::{Mutex, RwLock};
use tidegate_core::{Decision, Key, Timestamp};
use tidegate_store::{Request, Source, StoreError};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

pub(crate) use refresh::read_map;
pub(crate) use slots::{slot_of, slot_of_name};

use crate::Settled;
use crate::config::{Address, Deployment, RedisConfig, parse_address};
use crate::lane::{Call, Failure, Redirect, Reply, check};
use crate::lease::{Told, book};
use crate::split::{GiveBacks, Part, Places, Split};
use crate::stats::Stats;
use refresh::Pace;
use routes::{Routes, Server};

/// The most servers that a call is sent to, one after the other, because each says that it is
/// another's.
const HOPS_MAX: usize = 5;

/// A cluster. All clones are the same.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    config: Arc<RedisConfig>,
    routes: RwLock<Routes>,
    /// Whether the map is being read, or was a moment ago.
    refreshing: AtomicBool,
    refreshed: Notify,
    pace: Mutex<Pace>,
    give_backs: Arc<GiveBacks>,
    redirects: AtomicU64,
    /// How often keys that were asked for together were found in several places.
    parted: AtomicU64,
}

/// When a request was decided and how, or why it was not.
pub(crate) type Verdict = Result<(Timestamp, Vec<Decision>), StoreError>;

/// A request that is to be sent.
struct Pending {
    /// Its number in the batch.
    index: usize,
    slot: u16,
    /// Where to, where it is not the one that the map says: the slot is on its way there.
    asking: Option<Address>,
}

/// What goes to one server in one go.
struct Group {
    server: Arc<Server>,
    asking: bool,
    pending: Vec<Pending>,
}

impl Cluster {
    /// A cluster of which only the servers are known that the settings name.
    pub(crate) fn new(config: Arc<RedisConfig>) -> Self {
        Self(Arc::new(Inner {
            routes: RwLock::new(Routes::new(Arc::clone(&config))),
            config,
            refreshing: AtomicBool::new(false),
            refreshed: Notify::new(),
            pace: Mutex::new(Pace::default()),
            give_backs: Arc::default(),
            redirects: AtomicU64::new(0),
            parted: AtomicU64::new(0),
        }))
    }

    /// Decides a batch as if its requests had come one after the other.
    pub(crate) async fn decide(&self, batch: &[Request<'_>], deadline: Instant) -> Vec<Verdict> {
        self.wait_for_map(deadline).await;
        let mut verdicts: Vec<Option<Verdict>> = vec![None; batch.len()];
        let mut run = Vec::new();
        for (index, request) in batch.iter().enumerate() {
            if let Some(slot) = one_slot(request) {
                run.push(Pending { index, slot, asking: None });
            } else {
                // Others may be about the same keys, and came before.
                self.decide_run(batch, std::mem::take(&mut run), deadline, &mut verdicts).await;
                verdicts[index] = Some(self.decide_apart(request, Apart::Slots, deadline).await);
            }
        }
        self.decide_run(batch, run, deadline, &mut verdicts).await;
        // Each has been answered above; one that has not, has not been sent.
        verdicts.into_iter().map(|one| one.unwrap_or(Err(StoreError::Refused))).collect()
    }

    /// Decides one request, with the instant of each limit by itself: servers have their own clocks.
    pub(crate) async fn settle(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        if one_slot(request).is_none() {
            self.wait_for_map(deadline).await;
            return self.take_apart(request, Apart::Slots, deadline, settled).await;
        }
        let mut verdicts = self.decide(std::slice::from_ref(request), deadline).await;
        let (at, decisions) = verdicts.pop().unwrap_or(Err(StoreError::Refused))?;
        settled.extend(decisions.into_iter().map(|decision| Settled {
            decision,
            at,
            source: Source::Store,
        }));
        Ok(())
    }

    /// Forgets the keys.
    pub(crate) async fn forget(&self, keys: &[Key], deadline: Instant) -> Result<(), StoreError> {
        self.wait_for_map(deadline).await;
        let mut groups: Vec<(Arc<Server>, Vec<Key>)> = Vec::new();
        for &key in keys {
            let Some(server) = self.0.routes.read().owner(slot_of(key)) else {
                self.refresh_soon();
                return Err(StoreError::Unreachable);
            };
            match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &server)) {
                Some((_, keys)) => keys.push(key),
                None => groups.push((server, vec![key])),
            }
        }
        let forgetting = groups.iter().map(|(server, keys)| async move {
            match server.lane.forget(keys, false, deadline).await {
                // Which of them is not told, and forgetting one twice does no harm.
                Err(Failure::Redirected(_) | Failure::Parted) => {
                    for &key in keys {
                        let forget = |server: Arc<Server>, asking: bool| async move {
                            server.lane.forget(&[key], asking, deadline).await
                        };
                        self.go(slot_of(key), forget).await?;
                    }
                    Ok(())
                }
                other => other.map_err(|failure| self.failed(&failure)),
            }
        });
        all(forgetting).await.into_iter().collect()
    }

    /// Makes a call of any kind on keys that are all in this slot.
    pub(crate) async fn call(
        &self,
        slot: u16,
        call: &Call,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        self.wait_for_map(deadline).await;
        let make = |server: Arc<Server>, asking: bool| async move {
            server.lane.call(call.clone(), asking, deadline).await
        };
        self.go(slot, make).await
    }

    /// What all servers have met.
    pub(crate) fn stats(&self) -> Stats {
        // ORDERING: a number for people.
        let redirects = self.0.redirects.load(Ordering::Relaxed);
        let of_servers = self.0.routes.read().stats();
        let give_backs_failed = of_servers.give_backs_failed + self.0.give_backs.failed();
        Stats { redirects, give_backs_failed, ..of_servers }
    }

    /// Decides requests of which each is in one slot, by as many servers at once as they need.
    async fn decide_run(
        &self,
        batch: &[Request<'_>],
        run: Vec<Pending>,
        deadline: Instant,
        verdicts: &mut [Option<Verdict>],
    ) {
        for (index, outcome) in self.follow(batch, run, deadline).await {
            verdicts[index] = Some(match outcome {
                Ok(decided) => Ok(decided),
                Err(Failure::Parted) => {
                    self.decide_apart(&batch[index], Apart::Keys, deadline).await
                }
                Err(failure) => Err(self.failed(&failure)),
            });
        }
    }

    /// Sends requests where they belong, and on to where they are sent from there.
    async fn follow(
        &self,
        batch: &[Request<'_>],
        mut pending: Vec<Pending>,
        deadline: Instant,
    ) -> Vec<(usize, Result<(Timestamp, Vec<Decision>), Failure>)> {
        let mut outcomes = Vec::with_capacity(pending.len());
        for _ in 0..HOPS_MAX {
            if pending.is_empty() {
                break;
            }
            let (groups, homeless) = self.group(std::mem::take(&mut pending));
            let unreachable = || Err(Failure::Store(StoreError::Unreachable));
            outcomes.extend(homeless.into_iter().map(|one| (one.index, unreachable())));
            let asked = groups.iter().map(|group| async move {
                let requests: Vec<_> = group.pending.iter().map(|one| batch[one.index]).collect();
                group.server.lane.decide(&requests, group.asking, deadline).await
            });
            let answered = all(asked).await;
            for (group, answers) in groups.into_iter().zip(answered) {
                for (number, one) in group.pending.into_iter().enumerate() {
                    let outcome = match answers.outcome(number) {
                        Ok((at, decisions)) => Ok((at, decisions.to_vec())),
                        Err(Failure::Redirected(redirect)) => {
                            if let Some(next) = self.redirected(&group.server, redirect, &one) {
                                pending.push(next);
                                continue;
                            }
                            Err(StoreError::Refused.into())
                        }
                        Err(failure) => Err(failure.clone()),
                    };
                    outcomes.push((one.index, outcome));
                }
            }
            // In the order in which they came, since some can be about the same key.
            pending.sort_by_key(|one| one.index);
        }
        let refused = || Err(Failure::Store(StoreError::Refused));
        outcomes.extend(pending.into_iter().map(|one| (one.index, refused())));
        outcomes
    }

    /// Who gets what, and what nobody is known for.
    fn group(&self, pending: Vec<Pending>) -> (Vec<Group>, Vec<Pending>) {
        let (mut groups, mut homeless): (Vec<Group>, _) = (Vec::new(), Vec::new());
        for one in pending {
            let Some(server) = self.server_of(&one) else {
                homeless.push(one);
                continue;
            };
            let asking = one.asking.is_some();
            let same =
                |group: &&mut Group| Arc::ptr_eq(&group.server, &server) && group.asking == asking;
            match groups.iter_mut().find(same) {
                Some(group) => group.pending.push(one),
                None => groups.push(Group { server, asking, pending: vec![one] }),
            }
        }
        (groups, homeless)
    }

    /// Takes note of a redirection. Gives what is to be sent next, if that is to be made out.
    fn redirected(&self, from: &Server, redirect: &Redirect, one: &Pending) -> Option<Pending> {
        // ORDERING: a number for people.
        self.0.redirects.fetch_add(1, Ordering::Relaxed);
        let address = match (redirect.address.strip_prefix(':'), &from.address) {
            // A server that does not know the other's host means its own.
            (Some(port), Address::Tcp { host, .. }) => {
                Address::Tcp { host: host.clone(), port: port.parse().ok()? }
            }
            _ => parse_redirect(&redirect.address)?,
        };
        let asking = if redirect.once {
            Some(address)
        } else {
            self.0.routes.write().moved(redirect.slot, &address);
            self.refresh_soon();
            None
        };
        Some(Pending { index: one.index, slot: redirect.slot, asking })
    }

    /// Decides a request by taking in several places and giving back where one refuses.
    async fn decide_apart(
        &self,
        request: &Request<'_>,
        apart: Apart,
        deadline: Instant,
    ) -> Verdict {
        let mut settled = Vec::with_capacity(request.charges.len());
        self.take_apart(request, apart, deadline, &mut settled).await?;
        // One instant stands for all. The first is none that a refund could be too late for.
        let at = settled.iter().map(|one| one.at).min().unwrap_or(request.now);
        Ok((at, settled.into_iter().map(|one| one.decision).collect()))
    }

    async fn take_apart(
        &self,
        request: &Request<'_>,
        apart: Apart,
        deadline: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        check(request)?;
        let split = |apart: Apart| {
            Split::new(self, request, |index| {
                let slot = slot_of(request.charges[index].key);
                match apart {
                    Apart::Slots => ((slot, 0), ()),
                    Apart::Keys => ((slot, index), ()),
                }
            })
        };
        // ORDERING: a number that stands for itself.
        let parted = self.0.parted.load(Ordering::Relaxed);
        let decided = split(apart).settle(deadline, settled).await;
        match (decided, apart) {
            // What refused was a slot on its way, of which several keys were asked for together. At worst it
            // was that of somebody else, and is asked once more for nothing.
            (Err(StoreError::Refused), Apart::Slots)
                if self.0.parted.load(Ordering::Relaxed) != parted =>
            {
                split(Apart::Keys).settle(deadline, settled).await
            }
            (decided, _) => decided,
        }
    }

    /// Sends each request for a lease to who has its slot, and gives the answers, in order.
    pub(crate) async fn lease(
        &self,
        leases: &[book::Call],
        now: Timestamp,
        deadline: Instant,
    ) -> Vec<Result<Told, StoreError>> {
        self.wait_for_map(deadline).await;
        let one = |call: &'_ book::Call| {
            let call = call.clone();
            async move {
                let call = &call;
                let lease = |server: Arc<Server>, asking| async move {
                    let calls = std::slice::from_ref(call);
                    let mut answers = server.lane.lease(calls, now, asking, deadline).await;
                    answers.pop().unwrap_or(Err(Failure::Store(StoreError::NoAnswer)))
                };
                self.go(slot_of(call.key), lease).await
            }
        };
        all(leases.iter().map(one)).await
    }

    /// Makes one call where a slot is, and again where it is sent from there.
    async fn go<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        slot: u16,
        make: impl Fn(Arc<Server>, bool) -> F,
    ) -> Result<T, StoreError> {
        let mut next = Pending { index: 0, slot, asking: None };
        for _ in 0..HOPS_MAX {
            let asking = next.asking.is_some();
            let server = self.server_of(&next).ok_or_else(|| {
                self.refresh_soon();
                StoreError::Unreachable
            })?;
            match make(Arc::clone(&server), asking).await {
                Err(Failure::Redirected(redirect)) => {
                    let hop = self.redirected(&server, &redirect, &next);
                    next = hop.ok_or(StoreError::Refused)?;
                }
                made => return made.map_err(|failure| self.failed(&failure)),
            }
        }
        Err(StoreError::Refused)
    }

    /// Whom it goes to, as far as is known.
    fn server_of(&self, one: &Pending) -> Option<Arc<Server>> {
        match &one.asking {
            None => self.0.routes.read().owner(one.slot),
            Some(address) => self.0.routes.write().server_at(address),
        }
    }

    /// What a failure means for whoever asked. Where it can be that somebody else has the slot now, that
    /// is looked up.
    fn failed(&self, failure: &Failure) -> StoreError {
        let error = StoreError::from(failure);
        if matches!(error, StoreError::Unreachable | StoreError::NoAnswer | StoreError::Refused) {
            self.refresh_soon();
        }
        error
    }

    /// Waits where nothing is known yet.
    async fn wait_for_map(&self, deadline: Instant) {
        if !self.0.routes.read().is_empty() {
            return;
        }
        let refreshed = self.0.refreshed.notified();
        self.refresh_soon();
        let _ = timeout_at(deadline, refreshed).await;
    }
}

/// How a request is taken apart.
#[derive(Clone, Copy)]
enum Apart {
    /// What is in one slot stays together.
    Slots,
    /// Each key by itself, since its slot is on its way.
    Keys,
}

impl Places for Cluster {
    /// A slot, and a number that parts what is not to be asked for together.
    type Place = (u16, usize);
    type Tag = ();

    async fn decide(
        &self,
        (slot, _): (u16, usize),
        part: &Part<()>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let charges = part.charges();
        let request = Request { now: part.now, charges: &charges };
        let pending = vec![Pending { index: 0, slot, asking: None }];
        let outcome = self.follow(&[request], pending, end).await.pop();
        let refused = (0, Err(StoreError::Refused.into()));
        let (at, decisions) = outcome.unwrap_or(refused).1.map_err(|failure| {
            if failure == Failure::Parted {
                // ORDERING: a number that stands for itself.
                self.0.parted.fetch_add(1, Ordering::Relaxed);
            }
            self.failed(&failure)
        })?;
        settled.extend(decisions.into_iter().map(|decision| Settled {
            decision,
            at,
            source: Source::Store,
        }));
        Ok(())
    }

    fn is_at_hand(&self, _place: (u16, usize)) -> bool {
        false
    }

    fn give_backs(&self) -> &Arc<GiveBacks> {
        &self.0.give_backs
    }
}

/// The slot that all keys of a request are in; `None` where they are in several. One without keys can
/// go anywhere.
fn one_slot(request: &Request<'_>) -> Option<u16> {
    let mut slots = request.charges.iter().map(|charge| slot_of(charge.key));
    let first = slots.next().unwrap_or(0);
    slots.all(|slot| slot == first).then_some(first)
}

/// An address as servers write it, where hosts that are numbers have no brackets.
fn parse_redirect(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    if host.contains(':') {
        return Some(Address::Tcp { host: host.to_owned(), port: port.parse().ok()? });
    }
    parse_address(text, 0).ok()
}

/// Waits for all of them, which go on at the same time.
pub(crate) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in waiting.iter_mut().zip(&mut done) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The servers that the settings name.
fn seeds(config: &RedisConfig) -> &[Address] {
    match &config.deployment {
        Deployment::Cluster { seeds } => seeds,
        Deployment::Single(_) | Deployment::Sentinel { .. } => &[],
    }
}
