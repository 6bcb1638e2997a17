//! The requests that come most, without a general server in between: over HTTP/1.1, without a body, with nothing
//! out of the ordinary in their heads, for upstreams that speak HTTP/1 as well. A request that is denied costs one
//! read and one write, and one that is forwarded two of each.
//!
//! Whatever is not of that kind, is not understood or is not complete goes to the general server, with all the
//! bytes from there on, and so does the rest of its connection. So nothing is decided here about what HTTP is, or
//! about who may pass: that is in `gateway` and `forward`, for both.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::header::CONNECTION;
use http::{Method, Request, Uri, Version};
use tidegate::Timestamp;
use tidegate_identity::Attributes;
use tidegate_server::metrics::UpstreamFailure;
use tidegate_server::web::opening::Opened;
use tidegate_tower::{Standing, grpc};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::end::{End, Over};
use super::own::Own;
use super::{FrontBounds, strict};
use crate::access_log::Entry;
use crate::forward::answer::{Answer, NoAnswer, Reply, exchange};
use crate::forward::ended::Ended;
use crate::forward::{BROKEN, Forward, UNREACHABLE, head, hop};
use crate::gateway::{Client, Gateway, authenticate, begin};
use crate::limit::{AtOnce, Refused, Ticket};
use crate::problem::Problem;
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::load::Busy;

/// Room for the bytes that are read at a time: little at first, which is what a connection keeps while it waits, and
/// more where more comes.
const READ_BYTES: usize = 2 << 10;
const READ_BYTES_LEAST: usize = 512;
const READ_BYTES_MAX: usize = 16 << 10;
/// The most bytes and the most headers of a request that is taken here.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// The most bytes of requests that are kept while one is under way.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// The most bytes of answers that wait for those of requests that came with theirs.
const UNSENT_BYTES_MAX: usize = 16 << 10;
/// The most room for what is sent that a connection keeps while it waits.
const KEPT_BYTES: usize = 4 << 10;

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
            let next = poll_fn(|context| match pin!(lane.wire.read()).poll(context) {
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
        let is_next = lane.answer_all(&mut asked, drain).await?;
        lane.wire.send().await?;
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

/// A request, in room that the next one uses again. It is large, so it stays where it is.
#[derive(Default)]
struct Asked {
    request: Request<()>,
    attributes: Attributes,
}

impl Asked {
    /// Lets go of the bytes that the request is made of: they are read into again. Nothing of it is seen with the next.
    fn clear(&mut self) {
        *self.request.method_mut() = Method::default();
        *self.request.uri_mut() = Uri::default();
        self.request.headers_mut().clear();
        self.request.extensions_mut().clear();
    }
}

/// What the next answer uses again.
#[derive(Default)]
struct Room {
    /// What is sent to the upstream.
    request: Vec<u8>,
    /// What it answers.
    reply: Reply,
    /// The body of an answer of the gateway's own.
    body: Vec<u8>,
}

/// What became of a request.
enum Became {
    /// It was answered, and the next may come.
    Answered,
    /// It is not for this place, and nothing has happened.
    Foreign,
}

/// What an upstream has begun to answer, and what is held until the end of it.
struct Reached<'g> {
    answer: Answer,
    busy: Busy,
    server: &'g Arc<Server>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lane<'_, S> {
    /// Answers all requests that are there and are for this place, and says whether the next one may be; `None`
    /// where the connection has ended. What came together is answered together: the last answers are left to be
    /// sent.
    async fn answer_all(&mut self, asked: &mut Asked, drain: &CancellationToken) -> Option<bool> {
        while !self.wire.input.is_empty() {
            let Some(length) = head::end(&self.wire.input) else {
                return Some(self.wire.is_cut());
            };
            if drain.is_cancelled() || length > self.wire.head_bytes_max {
                return Some(false);
            }
            if self.wire.output.len() > UNSENT_BYTES_MAX {
                self.wire.send().await?;
            }
            let head = self.wire.input.split_to(length).freeze();
            let became = match take_plain(&head, &mut asked.request) {
                Some(()) => self.answer(asked).await?,
                None => Became::Foreign,
            };
            asked.clear();
            if let Became::Foreign = became {
                self.wire.put_back(&head);
                return Some(false);
            }
        }
        Some(true)
    }

    async fn answer(&mut self, Asked { request, attributes }: &mut Asked) -> Option<Became> {
        let (gateway, client) = (self.gateway, self.client);
        let now = gateway.limits.engine.limiter().now();
        let looked = gateway.look(client, request, now, attributes);
        let Some(route) = looked.ok().filter(|route| is_plain_route(route)) else {
            return Some(Became::Foreign);
        };
        match self.admit(route, request, now, attributes).await? {
            ControlFlow::Continue((ticket, entry)) => {
                let forward = gateway.forward(client, route, attributes);
                self.forward(&forward, request, ticket, entry).await?;
            }
            ControlFlow::Break(()) => {}
        }
        Some(Became::Answered)
    }

    /// Asks the limiter, and waits where it says so. A request that does not pass is answered.
    #[inline]
    async fn admit(
        &mut self,
        route: &Route,
        request: &Request<()>,
        now: Timestamp,
        attributes: &mut Attributes,
    ) -> Option<ControlFlow<(), (Ticket, Option<Box<Entry>>)>> {
        let (gateway, limits) = (self.gateway, &self.gateway.limits);
        let mut entry = gateway.entry(self.client, request);
        let is_refused = authenticate(route, request.headers(), attributes, &mut entry);
        let at_once = {
            let (out, body) = (&mut self.wire.output, &mut self.room.body);
            let denied = |standing: &Standing<'_>| {
                let is_head = request.method() == Method::HEAD;
                let own = Own { out, body, is_head, now, entry: entry.take() };
                own.deny(limits, standing, grpc::content_type(request.headers()));
            };
            limits.admit_at_once(&route.domain, attributes, now, denied)
        };
        let admitted = match at_once {
            Some(AtOnce::Denied(())) => return Some(ControlFlow::Break(())),
            Some(AtOnce::Passes(ticket, delay)) => {
                if !delay.is_zero() {
                    self.wait(Box::pin(tokio::time::sleep(delay))).await?;
                }
                Ok(ticket)
            }
            Some(AtOnce::Undecided(why)) => Err(Refused::Undecided(why)),
            None => self.wait(Box::pin(limits.admit(&route.domain, attributes))).await?,
        };
        match admitted.and_then(|ticket| begin(ticket, is_refused)) {
            Ok(ticket) => Some(ControlFlow::Continue((ticket, entry))),
            Err(refused) => {
                self.refuse(request, refused, entry);
                Some(ControlFlow::Break(()))
            }
        }
    }

    /// Waits for something for as long as the client is there, and not before it has what was made for it.
    async fn wait<T>(&mut self, mut future: BoxFuture<'_, T>) -> Option<T> {
        self.wire.send().await?;
        self.wire.while_there(future.as_mut()).await
    }

    async fn forward(
        &mut self,
        forward: &Forward<'_>,
        request: &mut Request<()>,
        mut ticket: Ticket,
        entry: Option<Box<Entry>>,
    ) -> Option<()> {
        // What comes before it need not wait for an upstream.
        self.wire.send().await?;
        let reached = {
            let reaching = pin!(reach(forward, request, &mut self.room));
            self.wire.while_there(reaching).await?
        };
        match reached {
            Ok(reached) => self.relay(forward, reached, ticket, entry).await,
            Err(problem) => {
                ticket.answered(problem.status().as_u16());
                drop(ticket);
                self.refuse(request, Refused::By(problem), entry);
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
        let (out, reply) = (&mut self.wire.output, &mut self.room.reply);
        head::put_status(out, answer.status, &answer.reason);
        if reply.lines.is_empty() {
            hop::strip(&mut reply.headers);
            limits.tell(ticket, &mut reply.headers);
            head::put_headers(out, &reply.headers);
            // The bytes that they are parts of are read into again.
            reply.headers.clear();
        } else {
            out.extend_from_slice(&reply.lines);
            limits.put_standing(ticket, out);
        }
        answer.framing.put_header(out);
        if !reply.has_date {
            head::put_date_line(out, limits.engine.limiter().now());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Makes an answer of the gateway's own.
    fn refuse(&mut self, request: &Request<()>, refused: Refused, entry: Option<Box<Entry>>) {
        let limits = &self.gateway.limits;
        let grpc_type = grpc::content_type(request.headers());
        let own = Own {
            out: &mut self.wire.output,
            body: &mut self.room.body,
            is_head: request.method() == Method::HEAD,
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
    request: &mut Request<()>,
    room: &mut Room,
) -> Result<Reached<'f>, Problem> {
    let (upstreams, bounds) = (&forward.route.upstreams, &forward.route.bounds);
    upstreams.budget.deposit();
    let is_put = forward.can_put(request.headers());
    if !is_put {
        forward.fit(request.headers_mut(), Version::HTTP_11);
    }
    let mut tried = Vec::new();
    let mut sent = 0;
    loop {
        let (busy, server) = forward.place(&mut tried, sent > 0)?;
        let Room { request: out, reply, .. } = &mut *room;
        out.clear();
        put_target(request, out);
        if is_put {
            forward.put(server, request.headers(), out);
        } else {
            forward.name_host(server, request.headers_mut());
            head::put_headers(out, request.headers());
        }
        out.extend_from_slice(b"\r\n");
        sent += 1;
        if sent > 1 {
            server.counts.retried();
        }
        let connect_timeout = upstreams.settings.connect_timeout;
        let asking = exchange(server, connect_timeout, (request.method(), out), reply);
        let (problem, failure, can_replay) = match timeout(bounds.response_timeout, asking).await {
            Ok(Ok(answer)) => {
                server.answered(&busy, answer.status);
                return Ok(Reached { answer, busy, server });
            }
            Ok(Err(NoAnswer::Unsent)) => (UNREACHABLE, UpstreamFailure::Connect, true),
            Ok(Err(NoAnswer::Broken)) => {
                (BROKEN, UpstreamFailure::Broken, request.method().is_idempotent())
            }
            Err(_) => (Problem::GatewayTimeout, UpstreamFailure::Timeout, false),
        };
        server.failed(failure);
        if !can_replay || !forward.may_send_again(sent) {
            return Err(problem);
        }
    }
}

/// Whether requests of a route go to upstreams, all of which are reached by connections that this place has.
fn is_plain_route(route: &Route) -> bool {
    let servers = route.upstreams.balancer.servers();
    route.folder.is_none() && servers.iter().all(|server| server.lines.is_some())
}

/// Appends the first line of a request.
fn put_target(request: &Request<()>, out: &mut Vec<u8>) {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    for part in [request.method().as_str(), " ", target, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Makes `request` the one that a head is, where it is of the kind that is taken here.
fn take_plain(head: &Bytes, request: &mut Request<()>) -> Option<()> {
    if !strict::is_whole(head) {
        return None;
    }
    let mut found = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    match parsed.parse_with_uninit_headers(head, &mut found) {
        Ok(httparse::Status::Complete(length)) if length == head.len() => {}
        _ => return None,
    }
    let target = parsed.path.filter(|target| target.starts_with('/'))?;
    if parsed.version != Some(1) || !parsed.headers.iter().all(is_plain_header) {
        return None;
    }
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.uri_mut() = Uri::from_maybe_shared(head.slice_ref(target.as_bytes())).ok()?;
    head::take_headers(head, parsed.headers, request.headers_mut()).ok()
}

/// Whether a header says nothing about the connection but what holds anyway, and asks for nothing that the
/// general server does.
fn is_plain_header(header: &httparse::Header<'_>) -> bool {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    match header.name.len() {
        2 => !is("te"),
        6 => !is("expect"),
        7 => !is("upgrade") && !is("trailer"),
        10 => !is(CONNECTION.as_str()) || header.value.eq_ignore_ascii_case(b"keep-alive"),
        14 => !is("http2-settings"),
        _ => true,
    }
}

/// A client's stream, with what has come and was not taken, and what was made and not sent.
struct Wire<S> {
    stream: Opened<S>,
    input: BytesMut,
    output: Vec<u8>,
    /// The longest head that is taken here.
    head_bytes_max: usize,
    /// Room for what is read next.
    room: usize,
    /// Whether the last read filled all of the room.
    is_full: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    fn new(stream: Opened<S>, head_bytes_max: usize) -> Self {
        Self {
            stream,
            head_bytes_max,
            input: BytesMut::new(),
            output: Vec::new(),
            room: READ_BYTES,
            is_full: false,
        }
    }

    /// Reads on, and says how many bytes came; none is the end.
    async fn read(&mut self) -> io::Result<usize> {
        if self.input.is_empty() && self.input.capacity() > self.room {
            self.input = BytesMut::new();
        }
        // What is there already will do for now: while a request is under way, its bytes cannot be written over.
        if self.input.capacity() - self.input.len() < READ_BYTES_LEAST {
            self.input.reserve(self.room);
        }
        let read = self.stream.read_buf(&mut self.input).await?;
        self.is_full = self.input.len() == self.input.capacity();
        self.room = if self.is_full { (2 * self.room).min(READ_BYTES_MAX) } else { READ_BYTES };
        Ok(read)
    }

    /// Whether there is a part of a request because there was no room for more.
    fn is_cut(&self) -> bool {
        self.is_full && self.input.len() < self.head_bytes_max
    }

    /// Has what is read next begin with these bytes.
    fn put_back(&mut self, head: &[u8]) {
        let mut input = BytesMut::with_capacity(head.len() + self.input.len());
        input.extend_from_slice(head);
        input.extend_from_slice(&self.input);
        self.input = input;
    }

    /// Runs something for as long as the client is there. What it sends meanwhile is kept.
    async fn while_there<F: Future + ?Sized>(
        &mut self,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_gone(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn is_gone(&mut self, context: &mut Context<'_>) -> bool {
        while self.input.len() < AHEAD_BYTES_MAX {
            match pin!(self.read()).poll(context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return true,
            }
        }
        false
    }

    /// Moves a body from the upstream to the client, all but what comes last, which is left to be sent.
    /// `None` where it breaks off.
    async fn carry(
        &mut self,
        answer: &mut Answer,
        ended: &mut Ended,
        idle_timeout: Duration,
    ) -> Option<()> {
        loop {
            let taken = answer.framing.take(&mut answer.line.input, &mut self.output).ok()?;
            ended.sent(taken.bytes as u64);
            if taken.is_whole {
                return Some(());
            }
            self.send().await?;
            let read = {
                let reading = pin!(timeout(idle_timeout, answer.line.read()));
                self.while_there(reading).await?.ok()?.ok()?
            };
            if read == 0 {
                return answer.framing.close(&mut self.output).ok();
            }
        }
    }

    /// Sends what was made.
    async fn send(&mut self) -> Option<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await.ok()?;
            self.output.clear();
            self.output.shrink_to(KEPT_BYTES);
        }
        Some(())
    }
}
