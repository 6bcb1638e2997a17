//! One request from its head to its response: is it sound, whose is it, may it pass, and then forwarded.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{HOST, HeaderName, HeaderValue, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use tidegate::{Reads, Timestamp};
use tidegate_identity::{Attributes, RequestParts};
use tidegate_server::listen::accept::Shutdown;
use tidegate_tower::{Standing, grpc};

use crate::access_log::{AccessLog, Entry};
use crate::body::ResponseBody;
use crate::forward::ended::Ended;
use crate::forward::{Forward, NO_TUNNEL, hop, websocket};
use crate::limit::{AtOnce, Limits, Refused, Ticket};
use crate::problem::Problem;
use crate::route::{Route, Routes};

const HOST_IN_DOUBT: Problem = Problem::Malformed("the request names no host, or more than one");
const NO_PATH: Problem = Problem::Malformed("the target of the request is no path");

/// What every connection of a gateway is served with.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) limits: Limits,
    pub(crate) routes: Routes,
    /// The attributes that routes look at, whatever the rules do.
    pub(crate) reads: Reads,
    /// The headers that say whose a request is.
    pub(crate) whose: Arc<[HeaderName]>,
    pub(crate) access_log: Option<AccessLog>,
    /// Tunnels outlive the requests that opened them, and are waited for with the connections.
    pub(crate) shutdown: Shutdown,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) peer: Option<IpAddr>,
    pub(crate) is_tls: bool,
}

impl Gateway {
    /// Answers one request.
    pub(crate) async fn answer(
        self: Arc<Self>,
        client: Client,
        request: Request<Incoming>,
    ) -> Response<ResponseBody> {
        let is_http1 = request.version() < Version::HTTP_2;
        let is_upgrade_lost = asks_for_upgrade(&request);
        let mut entry = self.entry(client, (request.method(), request.headers()), || {
            (request.uri().clone(), request.version())
        });
        let answered = self.decided(client, request, &mut entry).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(response) => response
                .map(|body| body.until_ended(Ended { entry: entry.take(), ..Ended::default() })),
        };
        // What the client sends after it asked for a tunnel was not looked at. And who is told that a connection
        // ends sends the next request over another.
        let ends = is_upgrade_lost || (is_http1 && self.shutdown.drain.is_cancelled());
        if ends && response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(http::header::CONNECTION, close);
        }
        response
    }

    /// The response of an upstream, or the gateway's own as an error, whose entry is still to be ended.
    async fn decided(
        self: &Arc<Self>,
        client: Client,
        request: Request<Incoming>,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<Response<ResponseBody>, Response<ResponseBody>> {
        let answered = self.passed(client, request, entry).await;
        if let Err(response) = &answered
            && let Some(entry) = entry
        {
            entry.answered(response.status());
        }
        answered
    }

    async fn passed(
        self: &Arc<Self>,
        client: Client,
        mut request: Request<Incoming>,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<Response<ResponseBody>, Response<ResponseBody>> {
        websocket::rewrite(&mut request);
        let mut attributes = Attributes::new();
        let now = self.limits.engine.limiter().now();
        let looked = self.look(client, &mut request, now, &mut attributes);
        let route = looked.map_err(Problem::response)?;
        let ticket = self.admit(route, request.headers(), now, &mut attributes, entry).await?;
        if let Some(folder) = &route.folder {
            let asked = (request.method(), request.uri(), request.headers());
            let path = attributes.value("path").unwrap_or_default();
            // A file would tell a client over HTTP/2 that its WebSocket is open.
            let is_tunnel = request.version() == Version::HTTP_2 && upgrade(&request).is_some();
            let found = if is_tunnel {
                Err(NO_TUNNEL)
            } else {
                folder.answer(asked, path, route.path_length()).await
            };
            return self.served(found, ticket, entry).map_err(Problem::response);
        }
        // Forwarding takes a lot of room, and who is denied need not carry it along.
        Box::pin(self.forward(client, route, &attributes).send(request, ticket, entry)).await
    }

    /// Whose a request is, and where it goes. Nothing is counted, and nothing changes but how the host is
    /// told.
    pub(crate) fn look<B>(
        &self,
        client: Client,
        request: &mut Request<B>,
        now: Timestamp,
        attributes: &mut Attributes,
    ) -> Result<&Route, Problem> {
        check(request)?;
        // One spelling of where it is for: over HTTP/2, and in a target that names it, it is not in a header.
        name_host(request)?;
        begin_path(request)?;
        let (method, uri) = (request.method(), request.uri());
        let parts = RequestParts::of_http(client.peer, method, uri, request.headers());
        self.limits.engine.identity().attributes(&parts, now, attributes);
        self.find_route(client, request.headers(), attributes)
    }

    /// Where a request goes whose attributes are made, unless its route takes none from its client.
    #[inline]
    pub(crate) fn find_route(
        &self,
        client: Client,
        headers: &HeaderMap,
        attributes: &Attributes,
    ) -> Result<&Route, Problem> {
        let route = self.route(attributes)?;
        let is_admitted =
            route.addresses.is_open() || route.addresses.admit(self.sender(client, headers));
        if is_admitted { Ok(route) } else { Err(Problem::Forbidden) }
    }

    /// The address of who sends a request, past trusted proxies.
    fn sender(&self, client: Client, headers: &HeaderMap) -> Option<IpAddr> {
        self.limits.engine.identity().client(&RequestParts::of_client(client.peer, headers))
    }

    /// Asks the limiter, and waits where it says so. From here on the request counts. One that does not pass is
    /// answered.
    async fn admit(
        &self,
        route: &Route,
        headers: &HeaderMap,
        now: Timestamp,
        attributes: &mut Attributes,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<Ticket, Response<ResponseBody>> {
        let limits = &self.limits;
        // A WebSocket is no call, and over HTTP/2 the 200 of one would say that it is open.
        let grpc_type = grpc::content_type(headers).filter(|_| !headers.contains_key(UPGRADE));
        let is_refused = authenticate(route, headers, attributes, entry);
        let denied = |standing: &Standing<'_>| limits.denial(standing, grpc_type.cloned());
        let mut begun = limits.begin();
        let asked = (route.domain.as_str(), &*attributes);
        let admitted = match limits.admit_at_once(&mut begun, asked, now, denied) {
            Some(AtOnce::Denied(response)) => return Err(response),
            Some(AtOnce::Passes(delay)) => {
                let ticket = limits.ticket(begun);
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                Ok(ticket)
            }
            Some(AtOnce::Undecided(why)) => Err(Refused::Undecided(why)),
            None => {
                // It keeps the rules that were in force, which others may take the place of meanwhile.
                drop(begun);
                Box::pin(limits.admit(&route.domain, attributes)).await
            }
        };
        let begun = admitted.and_then(|ticket| begin(ticket, is_refused));
        begun.map_err(|refused| limits.response(refused, grpc_type.cloned()))
    }

    /// How a request that was let through is sent on.
    pub(crate) fn forward<'g>(
        self: &'g Arc<Self>,
        client: Client,
        route: &'g Route,
        attributes: &'g Attributes,
    ) -> Forward<'g> {
        let value = |name: &str| attributes.value(name);
        Forward {
            gateway: self,
            route,
            client,
            is_trusted: self.limits.engine.identity().is_proxy(client.peer),
            sticky: route.upstreams.balancer.attribute().and_then(value),
            priority: route.priority(value),
        }
    }

    /// The answer from a folder, as the client sees it.
    fn served(
        &self,
        found: Result<Response<ResponseBody>, Problem>,
        mut ticket: Ticket,
        entry: &mut Option<Box<Entry>>,
    ) -> Result<Response<ResponseBody>, Problem> {
        let status = found.as_ref().map_or_else(|problem| problem.status(), Response::status);
        ticket.answered(status.as_u16());
        let mut response = found?;
        self.limits.tell(&ticket, response.headers_mut());
        let mut entry = entry.take();
        if let Some(entry) = &mut entry {
            entry.answered(status);
        }
        let ended = Ended { ticket: Some(ticket), entry, ..Ended::default() };
        Ok(response.map(|body| body.until_ended(ended)))
    }

    fn route(&self, attributes: &Attributes) -> Result<&Route, Problem> {
        let doubts = attributes.doubts();
        if doubts.host {
            return Err(HOST_IN_DOUBT);
        }
        if doubts.api_key {
            let detail = "the request has more than one API key, or half of one";
            return Err(Problem::Malformed(detail));
        }
        if let Some(route) = self.routes.only() {
            return Ok(route);
        }
        let host = attributes.value("host").unwrap_or_default();
        let path = attributes.value("path").unwrap_or_default();
        self.routes.find(host, path).ok_or(Problem::NoRoute)
    }

    /// None where there is no access log. Boxed, because it passes through many hands, and mostly there is none.
    #[inline]
    pub(crate) fn entry(
        &self,
        client: Client,
        (method, headers): (&Method, &HeaderMap),
        target: impl FnOnce() -> (Uri, Version),
    ) -> Option<Box<Entry>> {
        let log = self.access_log.as_ref()?;
        let (uri, version) = target();
        let sender = self.sender(client, headers);
        let now = self.limits.engine.limiter().now();
        Some(Box::new(Entry::new(log, (method, uri, version, headers), sender, now)))
    }
}

/// Whether the request is refused once it was counted.
pub(crate) fn authenticate(
    route: &Route,
    headers: &HeaderMap,
    attributes: &mut Attributes,
    entry: &mut Option<Box<Entry>>,
) -> bool {
    let Some(auth) = &route.auth else { return false };
    let sender = auth.look(headers, attributes);
    if let (Some(entry), Some(name)) = (entry, &sender.name) {
        entry.by(name);
    }
    auth.is_required && !sender.is_authenticated
}

/// A request that the limiter lets through is on its way, unless it is refused for who sends it.
#[inline]
pub(crate) fn begin(mut ticket: Ticket, is_refused: bool) -> Result<Ticket, Refused> {
    if is_refused {
        // It counts, and by this status where rules say so.
        ticket.answered(Problem::Unauthenticated.status().as_u16());
        return Err(Refused::By(Problem::Unauthenticated));
    }
    ticket.forwarded();
    Ok(ticket)
}

/// Whether requests of this method are forwarded: a tunnel is not opened, and nobody is shown what came on the way.
#[inline]
pub(crate) fn is_forwarded(method: &Method) -> bool {
    !matches!(*method, Method::CONNECT | Method::TRACE)
}

/// What has to hold of every request, whatever its route.
fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    if !is_forwarded(request.method()) {
        return Err(Problem::Method);
    }
    let needs_host = match request.version() {
        Version::HTTP_11 => true,
        Version::HTTP_2 => request.uri().host().is_none(),
        _ => false,
    };
    if needs_host && !request.headers().contains_key(HOST) {
        return Err(HOST_IN_DOUBT);
    }
    // `GET login` has no slash, and no server behind knows what to make of it.
    let path = request.uri().path();
    let is_options = request.method() == Method::OPTIONS && path == "*";
    if !path.starts_with('/') && !is_options {
        return Err(NO_PATH);
    }
    Ok(())
}

/// Puts the host that counts into the header. A target that names one goes before the header (RFC 9112, section
/// 3.2.2); where both are there and differ, two servers might believe two of them.
fn name_host<B>(request: &mut Request<B>) -> Result<(), Problem> {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| HOST_IN_DOUBT)?;
        let mut lines = request.headers().get_all(HOST).iter();
        let is_same = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(host.as_bytes());
        if !lines.all(is_same) {
            return Err(HOST_IN_DOUBT);
        }
        if request.headers().get_all(HOST).iter().count() < 2 {
            request.headers_mut().insert(HOST, host);
        }
    }
    let is_sound = request.headers().get(HOST).is_none_or(is_host);
    if is_sound { Ok(()) } else { Err(HOST_IN_DOUBT) }
}

/// Whether a request can be for this host, and an upstream be told of it, whatever it speaks: HTTP/2 has it in the
/// target, and targets of HTTP have a host that is not empty (RFC 9110, section 4.2). That it may have escapes (RFC 3986,
/// section 3.2.2) is what no client makes use of and few servers take.
pub(crate) fn is_host(text: &HeaderValue) -> bool {
    let authority = Authority::try_from(text.as_bytes());
    authority.is_ok_and(|host| !host.host().is_empty() && !host.as_str().contains('@'))
}

/// Begins the path with a slash where the target has no path: `http://a?q` is for the root (RFC 3986, section 6.2.3), and
/// so is `http://a#f`. Over HTTP/2 the path stands by itself, and begins with one.
fn begin_path<B>(request: &mut Request<B>) -> Result<(), Problem> {
    let Some(target) = request.uri().path_and_query() else { return Ok(()) };
    // Where nothing is left before a fragment, the text is a slash that is not there, and no client of HTTP/2 finds it.
    let is_nothing = target.as_str() == "/" && *target != PathAndQuery::from_static("/");
    if !is_nothing && !target.as_str().starts_with('?') {
        return Ok(());
    }
    if request.version() == Version::HTTP_2 {
        return Err(NO_PATH);
    }
    let query = if is_nothing { "" } else { target.as_str() };
    let target = PathAndQuery::try_from(format!("/{query}")).map_err(|_| NO_PATH)?;
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = Some(target);
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| NO_PATH)?;
    Ok(())
}

fn asks_for_upgrade(request: &Request<Incoming>) -> bool {
    request.version() < Version::HTTP_2 && request.headers().contains_key(UPGRADE)
}

/// The protocols that a request asks to change to. HTTP/2 has no such headers but those that were put there for a
/// WebSocket.
pub(crate) fn upgrade(request: &Request<Incoming>) -> Option<HeaderValue> {
    (request.version() >= Version::HTTP_11).then(|| hop::upgrade(request.headers())).flatten()
}
