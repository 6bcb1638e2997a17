//! The requests that come most, without a general server in between: over HTTP/1.1, without a body, with nothing
//! out of the ordinary in their heads, for upstreams that speak HTTP/1 as well. A request that is denied costs one
//! read and one write, and one that is forwarded two of each.
//!
//! Whatever is not of that kind, is not understood or is not complete goes to the general server, with all the
//! bytes from there on, and so does the rest of its connection. So nothing is decided here about what HTTP is, or
//! about who may pass: that is in `gateway` and `forward`, for both.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Method, Version};
use tidegate::Reads;
use tidegate_server::web::opening::Opened;
use tidegate_tower::{Standing, Undecided};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::FrontBounds;
use super::asked::{Asked, Begins, Head};
use super::end::{End, Over};
use super::own::Own;
use super::wire::Wire;
use crate::access_log::Entry;
use crate::forward::answer::{Answer, Reply, Tell, exchange};
use crate::forward::ended::Ended;
use crate::forward::head::put_headers;
use crate::forward::{Forward, problem};
use crate::gateway::{Client, Gateway, begin};
use crate::limit::{AtOnce, Refused, Ticket};
use crate::problem::Problem;
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::cause::Cause;
use crate::upstream::load::Busy;

/// The most bytes of the head of a request that is taken here.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most bytes of answers that wait for those of requests that came with theirs.
const UNSENT_BYTES_MAX: usize = 16 << 10;

/// Takes requests until one comes that is not for this place, or until `drain` is cancelled; the stream is then
/// given back, with what was read of it. `None` where the connection has ended.
pub(super) async fn serve<S>(
    gateway: &Arc<Gateway>,
    client: Client,
    stream: Opened<S>,
    bounds: &FrontBounds,
    drain: &CancellationToken,
) -> Option<Opened<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let wire = Wire::new(stream, bounds.head_bytes_max.min(HEAD_BYTES_MAX));
    let mut lane = Lane { gateway, client, wire, room: Room::default() };
    let mut asked = Asked::default();
    let drained = pin!(drain.cancelled());
    let idle = pin!(tokio::time::sleep(bounds.head_timeout));
    let mut end = End::new(drain, drained, idle, bounds.head_timeout);
    // Whether nothing has come since that time was set. It is set anew when it is over, and not for every
    // request.
    let mut is_quiet = true;
    loop {
        // What has arrived goes before the end: a request that is there is answered.
        let is_over = loop {
            let next = poll_fn(|context| match lane.wire.poll_read(context) {
                Poll::Ready(read) => Poll::Ready(Ok(read)),
                Poll::Pending => end.poll(context).map(Err),
            });
            match next.await {
                Ok(read) => break read.ok()? == 0,
                Err(Over::Drain) => break true,
                Err(Over::Idle) if is_quiet => return None,
                Err(Over::Idle) => is_quiet = true,
            }
        };
        if is_over && lane.wire.input.is_empty() {
            // Once the drain has begun, who has asked for nothing yet may be about to.
            return drain.is_cancelled().then_some(lane.wire.stream);
        }
        is_quiet = false;
        let is_next = loop {
            match lane.deny_all(&mut asked, &end) {
                Next::Read(is_next) => break is_next,
                Next::Send => lane.wire.send().await?,
                Next::GoOn(open) => lane.go_on(&mut asked, open).await?,
            }
        };
        poll_fn(|context| lane.wire.poll_send(context)).await?;
        // What was cut off because there was no more room is read on, and nothing else: who sends a part of a
        // request has a time for the rest, and the general server sees to it.
        if is_over || !is_next {
            let Wire { mut stream, input, .. } = lane.wire;
            stream.give_back(input);
            return Some(stream);
        }
    }
}

/// One connection of a client.
struct Lane<'g, S> {
    gateway: &'g Arc<Gateway>,
    client: Client,
    wire: Wire<S>,
    room: Room,
}

/// What the next answer uses again.
#[derive(Default)]
struct Room {
    /// What is sent to the upstream: it begins with the line of the request.
    request: Vec<u8>,
    /// What it answers.
    reply: Reply,
}

/// What became of a request at once.
enum Became<'g> {
    /// It was denied, and the next may come.
    Denied,
    /// It is not for this place, and nothing has happened.
    Foreign,
    /// More is to be done, and perhaps to be waited for.
    Open(Open<'g>),
}

/// A request that was not denied at once.
struct Open<'g> {
    route: &'g Route,
    admitted: Admitted,
    is_refused: bool,
    entry: Option<Box<Entry>>,
}

/// What the limiter says.
enum Admitted {
    /// It passes, after so long.
    Passes(Ticket, Duration),
    Undecided(Undecided),
    /// It is to be asked, and waited for.
    Later,
}

/// What is to be done next.
enum Next<'g> {
    /// Nothing with what has come; says whether the next request may be for this place.
    Read(bool),
    /// Too much was made that is not sent.
    Send,
    /// Something with the request that the rest begins with.
    GoOn(Open<'g>),
}

/// What an upstream has begun to answer, and what is held until the end of it.
struct Reached<'g> {
    answer: Answer,
    busy: Busy,
    server: &'g Arc<Server>,
}

impl<'g, S: AsyncRead + AsyncWrite + Unpin> Lane<'g, S> {
    /// Answers requests that are there and are for this place, for as long as they are denied at once. What came
    /// together is answered together: the answers are left to be sent.
    fn deny_all(&mut self, asked: &mut Asked, end: &End<'_, '_>) -> Next<'g> {
        while !self.wire.input.is_empty() {
            match asked.take(&self.wire.input, self.wire.head_bytes_max) {
                Begins::Request => {}
                Begins::Part => return Next::Read(self.wire.is_cut()),
                Begins::Foreign => return Next::Read(false),
            }
            if end.is_drain() {
                return Next::Read(false);
            }
            if self.wire.output.len() > UNSENT_BYTES_MAX {
                return Next::Send;
            }
            match self.decide(asked) {
                Became::Denied => {
                    self.wire.consume(asked.head.length());
                    asked.end();
                }
                Became::Foreign => return Next::Read(false),
                Became::Open(open) => return Next::GoOn(open),
            }
        }
        Next::Read(true)
    }

    /// Asks the limiter. A request that is denied is answered.
    fn decide(&mut self, asked: &mut Asked) -> Became<'g> {
        let (gateway, client) = (self.gateway, self.client);
        let limits = &gateway.limits;
        let now = limits.engine.limiter().now();
        let mut begun = limits.begin();
        let reads = limits.reads(&begun).and(gateway.reads);
        let whose = (limits.engine.identity(), client.peer);
        let (input, out) = (&self.wire.input[..], &mut self.wire.output);
        asked.describe(whose, reads, now, input);
        let found = gateway.find_route(client, asked.head.headers(), &asked.attributes);
        let Some(route) = found.ok().filter(|route| route.is_plain) else {
            return Became::Foreign;
        };
        let head = &asked.head;
        let mut entry = gateway
            .entry(client, (&head.method, head.headers()), || (head.uri(input), Version::HTTP_11));
        let mut is_refused = asked.authenticate(route, &mut entry);
        let head = &asked.head;
        let denied = |standing: &Standing<'_>| {
            let is_head = head.method == Method::HEAD;
            let own = Own { out, is_head, now, entry: entry.take() };
            own.deny(limits, standing, head.grpc_type());
        };
        let call = (route.domain.as_str(), &asked.attributes);
        let admitted = match limits.admit_at_once(&mut begun, call, now, denied) {
            Some(AtOnce::Denied(())) => return Became::Denied,
            Some(AtOnce::Passes(delay)) => Admitted::Passes(limits.ticket(begun), delay),
            Some(AtOnce::Undecided(why)) => Admitted::Undecided(why),
            None => {
                // By the time that it is asked, other rules may be in force, which read other attributes. They are made
                // anew, without what was found out about the sender, so that is looked up again.
                if reads != Reads::ALL {
                    asked.describe(whose, Reads::ALL, now, input);
                    is_refused = asked.authenticate(route, &mut entry);
                }
                Admitted::Later
            }
        };
        Became::Open(Open { route, admitted, is_refused, entry })
    }

    /// Waits where the limiter says so, and forwards what it lets pass.
    async fn go_on(&mut self, asked: &mut Asked, open: Open<'g>) -> Option<()> {
        let (gateway, limits) = (self.gateway, &self.gateway.limits);
        let Open { route, admitted, is_refused, entry } = open;
        self.room.request.clear();
        self.room.request.extend_from_slice(asked.head.line(&self.wire.input));
        self.wire.consume(asked.head.length());
        let admitted = match admitted {
            Admitted::Passes(ticket, delay) => {
                if !delay.is_zero() {
                    self.wait(Box::pin(tokio::time::sleep(delay))).await?;
                }
                Ok(ticket)
            }
            Admitted::Undecided(why) => Err(Refused::Undecided(why)),
            Admitted::Later => {
                self.wait(Box::pin(limits.admit(&route.domain, &asked.attributes))).await?
            }
        };
        match admitted.and_then(|ticket| begin(ticket, is_refused)) {
            Ok(ticket) => {
                let forward = gateway.forward(self.client, route, &asked.attributes);
                self.forward(&forward, &mut asked.head, ticket, entry).await?;
            }
            Err(refused) => self.refuse(&asked.head, refused, entry),
        }
        asked.end();
        Some(())
    }

    /// Waits for something for as long as the client is there, and not before it has what was made for it.
    async fn wait<T>(&mut self, mut future: BoxFuture<'_, T>) -> Option<T> {
        self.wire.send().await?;
        self.wire.while_there(future.as_mut()).await
    }

    async fn forward(
        &mut self,
        forward: &Forward<'_>,
        head: &mut Head,
        mut ticket: Ticket,
        entry: Option<Box<Entry>>,
    ) -> Option<()> {
        // What comes before it need not wait for an upstream.
        self.wire.send().await?;
        let reached = {
            let reaching = pin!(reach(forward, head, &mut self.room));
            self.wire.while_there(reaching).await?
        };
        match reached {
            Ok(reached) => self.relay(forward, reached, ticket, entry).await,
            Err(problem) => {
                ticket.answered(problem.status().as_u16());
                drop(ticket);
                self.refuse(head, Refused::By(problem), entry);
                Some(())
            }
        }
    }

    /// Hands a response on, as it comes.
    async fn relay(
        &mut self,
        forward: &Forward<'_>,
        reached: Reached<'_>,
        mut ticket: Ticket,
        mut entry: Option<Box<Entry>>,
    ) -> Option<()> {
        let Reached { mut answer, busy, server } = reached;
        ticket.answered(answer.status.as_u16());
        if let Some(entry) = &mut entry {
            entry.answered(answer.status);
        }
        self.put_head(&answer, &ticket);
        let mut ended = Ended { lent: None, busy: Some(busy), ticket: Some(ticket), entry };
        let idle_timeout = forward.route.bounds.idle_timeout;
        if self.wire.carry(&mut answer, &mut ended, idle_timeout).await.is_none() {
            ended.broke();
            return None;
        }
        // What it held goes back before the client can know that it has everything.
        drop(ended);
        if let Some(lines) = server.lines.as_ref().filter(|_| answer.can_stay) {
            lines.put_back(answer.line);
        }
        self.wire.send().await
    }

    /// Makes the head of a response.
    fn put_head(&mut self, answer: &Answer, ticket: &Ticket) {
        let limits = &self.gateway.limits;
        let begun = (answer.status, &answer.reason[..], answer.framing);
        let tell = |to: Tell<'_>| match to {
            Tell::Headers(headers) => limits.tell(ticket, headers),
            Tell::Lines(out) => limits.put_standing(ticket, out),
        };
        let now = || limits.engine.limiter().now();
        self.room.reply.put_head(&mut self.wire.output, begun, tell, now);
    }

    /// Makes an answer of the gateway's own.
    fn refuse(&mut self, head: &Head, refused: Refused, entry: Option<Box<Entry>>) {
        let limits = &self.gateway.limits;
        let grpc_type = head.grpc_type();
        let own = Own {
            out: &mut self.wire.output,
            is_head: head.method == Method::HEAD,
            now: limits.engine.limiter().now(),
            entry,
        };
        match refused {
            Refused::Denied(answer) => own.deny(limits, &answer.standing(), grpc_type),
            refused => own.respond(limits.response(refused, grpc_type.cloned())),
        }
    }
}

/// Asks upstreams until one answers, none may be asked any more, or asking again might do twice what was to be
/// done once.
async fn reach<'f>(
    forward: &'f Forward<'_>,
    head: &mut Head,
    room: &mut Room,
) -> Result<Reached<'f>, Problem> {
    let (upstreams, bounds) = (&forward.route.upstreams, &forward.route.bounds);
    upstreams.budget.deposit();
    let is_put = forward.can_put(head.headers());
    if !is_put {
        forward.fit(head.headers_mut(), Version::HTTP_11);
    }
    let line_length = room.request.len();
    let mut tried = Vec::new();
    let mut sent = 0;
    let is_idempotent = head.method.is_idempotent();
    // An answer that is let go for that of another server, once that has a place.
    let mut failed = None;
    loop {
        let placed = forward.place(&mut tried, sent > 0);
        let (busy, server) = match failed.take() {
            Some(reached) if placed.is_err() => return Ok(reached),
            _ => placed?,
        };
        let Room { request: out, reply, .. } = &mut *room;
        out.truncate(line_length);
        if is_put {
            forward.put(server, head.headers(), out);
        } else {
            forward.name_host(server, head.headers_mut());
            put_headers(out, head.headers());
        }
        out.extend_from_slice(b"\r\n");
        sent += 1;
        if sent > 1 {
            server.counts.retried();
        }
        let connect_timeout = upstreams.settings.connect_timeout;
        let asking = exchange(server, connect_timeout, (&head.method, out), reply);
        let answered = timeout(bounds.response_timeout, asking).await;
        let cause = match answered.unwrap_or(Err(Cause::Late(bounds.response_timeout))) {
            Ok(answer) => {
                let has_failed = server.answered(&busy, answer.status);
                let reached = Reached { answer, busy, server };
                if has_failed && is_idempotent && forward.may_ask_another(sent, &tried) {
                    failed = Some(reached);
                    continue;
                }
                return Ok(reached);
            }
            Err(cause) => cause,
        };
        server.failed(&cause);
        if !cause.may_send_again(is_idempotent) || !forward.may_send_again(sent) {
            return Err(problem(&cause));
        }
    }
}
