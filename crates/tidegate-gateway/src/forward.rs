//! A request on its way to an upstream and back: heads made fit for the next connection, another try where
//! that is safe, and the response handed on as it comes.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`hop`] | headers that are about one connection |
//! | [`origin`] | headers that say where a request came from |
//! | [`head`] | heads of HTTP/1 from bytes, and back |
//! | [`answer`] | one request over one connection, without a general client in between |
//! | [`framing`] | where a body of HTTP/1 ends |
//! | [`kept`] | bodies that can be taken back from a connection that did nothing with them |
//! | [`one_task`] | what belongs to one connection of HTTP/2, as one task |
//! | [`ended`] | what a response holds until its end |
//! | [`tunnel`] | connections that change their protocol |
//! | [`websocket`] | WebSockets over HTTP/2 |

pub(crate) mod answer;
pub(crate) mod ended;
pub(crate) mod framing;
pub(crate) mod head;
pub(crate) mod hop;
pub(crate) mod kept;
pub(crate) mod one_task;
pub(crate) mod origin;
pub(crate) mod tunnel;
pub(crate) mod websocket;

use std::pin::pin;
use std::sync::Arc;

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderValue, UPGRADE, VIA};
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use tidegate_tower::grpc;
use tokio::time::{Instant, timeout_at};

use crate::access_log::Entry;
use crate::body::{Progress, RequestBody, ResponseBody};
use crate::gateway::{Client, Gateway, upgrade};
use crate::limit::Ticket;
use crate::problem::Problem;
use crate::route::{HostHeader, Route};
use crate::upstream::Server;
use crate::upstream::cause::Cause;
use crate::upstream::load::{Busy, Priority};
use crate::upstream::pool::{Lent, SendError, copied};
use ended::Ended;
use kept::Kept;
use origin::{Origin, is_of_origin};

pub(crate) const UNREACHABLE: Problem = Problem::BadGateway("the service cannot be reached");
pub(crate) const BROKEN: Problem =
    Problem::BadGateway("the service gave no answer that can be read");

/// No fault of the service, which need not know the protocol.
pub(crate) const NO_TUNNEL: Problem =
    Problem::BadGateway("the service does not change to that protocol");

/// How often it is looked whether a body gets on, in the time that a response may take.
const LOOKS: u32 = 16;

/// One request that is to be forwarded.
pub(crate) struct Forward<'g> {
    pub(crate) gateway: &'g Arc<Gateway>,
    pub(crate) route: &'g Route,
    pub(crate) client: Client,
    /// Whether the client is a proxy whose word counts.
    pub(crate) is_trusted: bool,
    /// The value that decides which upstream it is, where one does.
    pub(crate) sticky: Option<&'g [u8]>,
    pub(crate) priority: Priority,
}

/// What an upstream answered, and what is held until the end of it.
struct Reached {
    response: Response<Incoming>,
    lent: Lent,
    busy: Busy,
}

/// Why one upstream did not answer, and the request where it was not sent.
struct Missed {
    cause: Cause,
    unsent: Option<Box<Request<Kept>>>,
}

/// What a client is told of it.
pub(crate) fn problem(cause: &Cause) -> Problem {
    match cause {
        Cause::Connect(_) => UNREACHABLE,
        Cause::Late(_) => Problem::GatewayTimeout,
        Cause::Cut(_) | Cause::Closed | Cause::NoHttp | Cause::Broken(_) | Cause::Status(_) => {
            BROKEN
        }
    }
}

impl Forward<'_> {
    /// Forwards it. What the gateway answers itself is an error, for which the entry is left where it is.
    pub(crate) async fn send(
        self,
        mut request: Request<Incoming>,
        mut ticket: Ticket,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<Response<ResponseBody>, Response<ResponseBody>> {
        let protocol = upgrade(&request);
        let is_http2 = request.version() == Version::HTTP_2;
        let on_client = protocol.as_ref().map(|_| hyper::upgrade::on(&mut request));
        let reached = match self.outgoing(request, protocol.as_ref()) {
            Ok(outgoing) => self.reach(outgoing).await,
            Err(problem) => Err(problem),
        };
        let says_open = |reached: &Reached| reached.response.status().is_success();
        let mut reached = match reached {
            // Over HTTP/2 the client would take it for a tunnel that is open (RFC 8441, section 5).
            Ok(reached) if is_http2 && protocol.is_some() && says_open(&reached) => {
                drop(reached);
                ticket.answered(NO_TUNNEL.status().as_u16());
                return Err(NO_TUNNEL.response());
            }
            Ok(reached) => reached,
            Err(problem) => {
                ticket.answered(problem.status().as_u16());
                return Err(problem.response());
            }
        };
        let status = reached.response.status();
        ticket.answered(grpc::http_status(&reached.response));
        let mut entry = entry.take();
        if let Some(entry) = &mut entry {
            entry.answered(status);
        }
        let on_server = on_client.filter(|_| status == StatusCode::SWITCHING_PROTOCOLS);
        let on_server = on_server.map(|on| (on, hyper::upgrade::on(&mut reached.response)));
        let Reached { response, lent, busy } = reached;
        let (mut parts, body) = response.into_parts();
        let version = parts.version;
        let protocols = on_server.as_ref().and_then(|_| hop::protocols(&parts.headers));
        hop::strip(&mut parts.headers);
        self.gateway.limits.tell(&ticket, &mut parts.headers);
        parts.version = Version::HTTP_11;
        let ended = Ended { lent: Some(lent), busy: Some(busy), ticket: Some(ticket), entry };
        let idle_timeout = self.route.bounds.idle_timeout;
        if let (Some(ends), Some(protocols)) = (on_server, protocols) {
            let closed = tunnel::open(&self.gateway.shutdown, ends, ended, idle_timeout);
            if is_http2 {
                websocket::rewrite_switched(&mut parts);
                closed.note();
            } else {
                parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                parts.headers.insert(UPGRADE, protocols);
            }
            return Ok(Response::from_parts(parts, ResponseBody::full(bytes::Bytes::new())));
        }
        let body = ResponseBody::relayed(body, version, idle_timeout).until_ended(ended);
        Ok(Response::from_parts(parts, body))
    }

    /// The request as it is forwarded, but for the host, which may be the upstream's.
    fn outgoing(
        &self,
        request: Request<Incoming>,
        protocol: Option<&HeaderValue>,
    ) -> Result<Request<Kept>, Problem> {
        let bounds = &self.route.bounds;
        let (Parts { method, uri, version, mut headers, .. }, body) = request.into_parts();
        if length(&headers)?.is_some_and(|length| length > bounds.body_bytes_max) {
            return Err(Problem::BodyTooLarge);
        }
        self.fit(&mut headers, version);
        let body = RequestBody::bounded(body, version, bounds, &self.gateway.whose);
        if let Some(protocol) = protocol {
            if !body.is_empty() {
                return Err(Problem::Malformed("a request for another protocol has a body"));
            }
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
        let mut request = Request::new(Kept::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Makes the headers of a request fit for the next connection.
    pub(crate) fn fit(&self, headers: &mut HeaderMap, version: Version) {
        hop::strip_request(headers);
        let host = headers.get(HOST).cloned();
        self.origin(host.as_ref(), version).write(headers);
        join_cookies(headers);
    }

    fn origin<'h>(&self, host: Option<&'h HeaderValue>, version: Version) -> Origin<'h> {
        Origin {
            peer: self.client.peer,
            is_trusted: self.is_trusted,
            is_tls: self.client.is_tls,
            host,
            version,
        }
    }

    /// Whether the headers of a plain request need no more than that some are left out and others added: nothing
    /// that is there is added to.
    pub(crate) fn can_put(&self, headers: &HeaderMap) -> bool {
        let has_two_cookies = headers.get_all(COOKIE).iter().nth(1).is_some();
        !self.is_trusted && !has_two_cookies && !headers.contains_key(VIA)
    }

    /// Appends the headers of such a request as [`fit`](Self::fit) and [`name_host`](Self::name_host) would
    /// have made them.
    pub(crate) fn put(&self, server: &Server, headers: &HeaderMap, out: &mut Vec<u8>) {
        let host = headers.get(HOST);
        let told = match &self.route.host {
            HostHeader::Preserve => host.map(HeaderValue::as_bytes),
            HostHeader::Upstream => None,
            HostHeader::Fixed(host) => Some(host.as_bytes()),
        };
        head::put_line(out, b"host", told.unwrap_or_else(|| server.authority().as_bytes()));
        for (name, value) in headers {
            let stays = *name != HOST && !hop::is_hop(name) && !is_of_origin(name.as_str());
            if stays {
                head::put_line(out, name.as_str().as_bytes(), value.as_bytes());
            }
        }
        self.origin(host, Version::HTTP_11).put(out);
    }

    /// Asks upstreams until one answers, none may be asked any more, or asking again might do twice what was
    /// to be done once.
    async fn reach(&self, mut request: Request<Kept>) -> Result<Reached, Problem> {
        let upstreams = &self.route.upstreams;
        let progress = request.body().progress();
        let can_replay = request.body().is_empty()
            && request.method().is_idempotent()
            && !request.headers().contains_key(UPGRADE);
        upstreams.budget.deposit();
        let mut tried: Vec<usize> = Vec::new();
        let mut sent = 0;
        // An answer that is let go for that of another server, once that has a place.
        let mut failed = None;
        loop {
            let placed = self.place(&mut tried, sent > 0);
            let (busy, server) = match failed.take() {
                Some(reached) if placed.is_err() => return Ok(reached),
                _ => placed?,
            };
            self.name_host(server, request.headers_mut());
            let copy = can_replay.then(|| copied(&request));
            sent += 1;
            if sent > 1 {
                server.counts.retried();
            }
            let Missed { cause, unsent } =
                match self.exchange(server, request, progress.as_ref()).await {
                    Ok((response, lent)) => {
                        let has_failed = server.answered(&busy, response.status());
                        let reached = Reached { response, lent, busy };
                        let another =
                            copy.filter(|_| has_failed && self.may_ask_another(sent, &tried));
                        let Some(another) = another else { return Ok(reached) };
                        (request, failed) = (another, Some(reached));
                        continue;
                    }
                    Err(missed) => missed,
                };
            // A body that broke off says nothing about the upstream.
            if let Cause::Broken(_) | Cause::Closed = cause
                && let Some(fault) = progress.as_ref().and_then(|progress| progress.fault())
            {
                return Err(fault);
            }
            server.failed(&cause);
            let again = unsent.map(|unsent| *unsent).or(copy);
            let may_again = cause.may_send_again(again.is_some()) && self.may_send_again(sent);
            request = again.filter(|_| may_again).ok_or_else(|| problem(&cause))?;
        }
    }

    /// Whether a request that was sent so often may be sent once more, which takes it from the budget.
    pub(crate) fn may_send_again(&self, sent: usize) -> bool {
        let upstreams = &self.route.upstreams;
        sent < upstreams.settings.attempts && upstreams.budget.withdraw()
    }

    /// The same for one that was answered: to ask the same server would only give it more to do.
    pub(crate) fn may_ask_another(&self, sent: usize, tried: &[usize]) -> bool {
        let servers = self.route.upstreams.balancer.servers();
        tried.len() < servers.len() && self.may_send_again(sent)
    }

    /// A place at the next upstream that has one. When all have failed, they are asked once more.
    pub(crate) fn place(
        &self,
        tried: &mut Vec<usize>,
        is_retry: bool,
    ) -> Result<(Busy, &Arc<Server>), Problem> {
        let balancer = &self.route.upstreams.balancer;
        let now = Instant::now();
        if is_retry && tried.len() == balancer.servers().len() {
            tried.clear();
        }
        while let Some((index, server)) = balancer.next(self.sticky, tried, now) {
            tried.push(index);
            if let Some(busy) = server.load.begin(self.priority) {
                return Ok((busy, server));
            }
        }
        Err(Problem::Busy)
    }

    pub(crate) fn name_host(&self, server: &Server, headers: &mut HeaderMap) {
        let host = match &self.route.host {
            HostHeader::Preserve if headers.contains_key(HOST) => return,
            HostHeader::Preserve | HostHeader::Upstream => {
                HeaderValue::from_str(server.authority()).ok()
            }
            HostHeader::Fixed(host) => Some(host.clone()),
        };
        if let Some(host) = host {
            headers.insert(HOST, host);
        }
    }

    /// Sends a request to one upstream. The time for the response begins anew for as long as the client sends
    /// its body: at the last look before some of it came, so that it is never longer than was asked for.
    async fn exchange(
        &self,
        server: &Server,
        request: Request<Kept>,
        progress: Option<&Arc<Progress>>,
    ) -> Result<(Response<Incoming>, Lent), Missed> {
        let connect_timeout = self.route.upstreams.settings.connect_timeout;
        let mut sending = pin!(server.pool.send(request, connect_timeout));
        let bound = self.route.bounds.response_timeout;
        let look_every = if progress.is_some() { bound / LOOKS } else { bound };
        let (mut since, mut frames) = (Instant::now(), 0);
        let mut looked = since;
        loop {
            let until = (since + bound).min(looked + look_every);
            match timeout_at(until, sending.as_mut()).await {
                Ok(Ok(answered)) => return Ok(answered),
                Ok(Err(SendError::Connect(unsent, error))) => {
                    return Err(Missed { cause: Cause::Connect(error), unsent: Some(unsent) });
                }
                Ok(Err(SendError::Broken(error))) => {
                    return Err(Missed { cause: error.into(), unsent: None });
                }
                Ok(Err(SendError::Ambiguous)) => {
                    return Err(Missed { cause: Cause::NoHttp, unsent: None });
                }
                Err(_) => {
                    let before = std::mem::replace(&mut looked, Instant::now());
                    let now = progress.map_or(0, |progress| progress.frames());
                    if now != frames {
                        (since, frames) = (before, now);
                    } else if looked >= since + bound {
                        return Err(Missed { cause: Cause::Late(bound), unsent: None });
                    }
                }
            }
        }
    }
}

/// How long the client says that its body is. Over HTTP/2 the same number may come twice, which servers of HTTP/1
/// read in more ways than one.
fn length(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return Ok(None) };
    let length = length.to_str().ok().and_then(|length| length.parse().ok());
    match (length, lengths.next()) {
        (Some(length), None) => Ok(Some(length)),
        _ => Err(Problem::Malformed("the request has no length that can be read")),
    }
}

/// Over HTTP/2 cookies come in several lines, which HTTP/1 knows as one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(COOKIE).iter();
    if lines.next().is_none() || lines.next().is_none() {
        return;
    }
    let lines: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_one_line() {
        let mut headers = HeaderMap::new();
        join_cookies(&mut headers);
        assert!(headers.is_empty());
        headers.append(COOKIE, HeaderValue::from_static("a=1"));
        headers.append(COOKIE, HeaderValue::from_static("b=2"));
        join_cookies(&mut headers);
        assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
