//! One request from its head to its response: is it sound, whose is it, may it pass, and then forwarded.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use tidegate_identity::{Attributes, RequestParts};
use tidegate_server::listen::accept::Shutdown;

use crate::access_log::{AccessLog, Entry};
use crate::body::ResponseBody;
use crate::forward::ended::Ended;
use crate::forward::{Forward, hop};
use crate::limit::{Limits, Ticket};
use crate::problem::Problem;
use crate::route::{Route, Routes};

/// What every connection of a gateway is served with.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) limits: Limits,
    pub(crate) routes: Routes,
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
        let is_upgrade_lost = asks_for_upgrade(&request);
        let mut entry = self.entry(client, &request);
        let answered = self.decided(client, request, &mut entry).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(response) => response.map(|body| {
                let mut entry = entry.take();
                if let Some(entry) = &mut entry {
                    entry.sent(http_body::Body::size_hint(&body).lower());
                }
                body.until_ended(Ended { entry, ..Ended::default() })
            }),
        };
        if is_upgrade_lost && response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            // What the client sends after it asked for a tunnel was not looked at.
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
        entry: &mut Option<Entry>,
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
        entry: &mut Option<Entry>,
    ) -> Result<Response<ResponseBody>, Response<ResponseBody>> {
        check(&request).map_err(Problem::response)?;
        // One spelling of where it is for: over HTTP/2, and in a target that names it, it is not in a header.
        name_host(&mut request).map_err(Problem::response)?;
        let engine = &self.limits.engine;
        let mut attributes = Attributes::new();
        let parts = parts(client, &request);
        engine.identity().attributes(&parts, engine.limiter().now(), &mut attributes);
        let sender = engine.identity().client(&parts);
        let is_trusted = engine.identity().is_proxy(client.peer);
        let route = self.route(&attributes).map_err(Problem::response)?;
        if !route.addresses.admit(sender) {
            return Err(Problem::Forbidden.response());
        }
        let is_refused = authenticate(route, &request, &mut attributes, entry);
        let is_grpc = is_grpc(&request);
        let mut ticket = self.limits.admit(&route.domain, &attributes, is_grpc).await?;
        if is_refused {
            // It counts, and by this status where rules say so.
            ticket.answered(Problem::Unauthenticated.status());
            return Err(Problem::Unauthenticated.response());
        }
        ticket.forwarded();
        if let Some(folder) = &route.folder {
            let path = route.below(attributes.value("path").unwrap_or_default());
            let found = folder.answer(request.method(), path, request.headers()).await;
            return self.served(found, ticket, entry).map_err(Problem::response);
        }
        let value = |name: &str| attributes.value(name);
        let upstreams = &route.upstreams;
        let forward = Forward {
            gateway: self,
            route,
            client,
            is_trusted,
            sticky: upstreams.balancer.attribute().and_then(value),
            priority: route.priority(value),
        };
        forward.send(request, ticket, entry).await
    }

    /// The answer from a folder, as the client sees it.
    fn served(
        &self,
        found: Result<Response<ResponseBody>, Problem>,
        mut ticket: Ticket,
        entry: &mut Option<Entry>,
    ) -> Result<Response<ResponseBody>, Problem> {
        let status = found.as_ref().map_or_else(|problem| problem.status(), Response::status);
        ticket.answered(status);
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
            return Err(Problem::Malformed("the request names no host, or more than one"));
        }
        if doubts.api_key {
            let detail = "the request has more than one API key, or half of one";
            return Err(Problem::Malformed(detail));
        }
        let host = attributes.value("host").unwrap_or_default();
        let path = attributes.value("path").unwrap_or_default();
        self.routes.find(host, path).ok_or(Problem::NoRoute)
    }

    fn entry(&self, client: Client, request: &Request<Incoming>) -> Option<Entry> {
        let log = self.access_log.as_ref()?;
        let engine = &self.limits.engine;
        let sender = engine.identity().client(&parts(client, request));
        let asked = (request.method(), request.uri(), request.version(), request.headers());
        Some(Entry::new(log, asked, sender, engine.limiter().now()))
    }
}

fn parts(client: Client, request: &Request<Incoming>) -> RequestParts<'_> {
    RequestParts::of_http(client.peer, request.method(), request.uri(), request.headers())
}

/// Whether the request is refused once it was counted.
fn authenticate(
    route: &Route,
    request: &Request<Incoming>,
    attributes: &mut Attributes,
    entry: &mut Option<Entry>,
) -> bool {
    let Some(auth) = &route.auth else { return false };
    let sender = auth.look(request.headers(), attributes);
    if let (Some(entry), Some(name)) = (entry, &sender.name) {
        entry.by(name);
    }
    auth.is_required && !sender.is_authenticated
}

/// What has to hold of every request, whatever its route.
fn check(request: &Request<Incoming>) -> Result<(), Problem> {
    if [Method::CONNECT, Method::TRACE].contains(request.method()) {
        return Err(Problem::Method);
    }
    let has_host = request.headers().contains_key(HOST) || request.uri().host().is_some();
    if request.version() == Version::HTTP_11 && !request.headers().contains_key(HOST) {
        return Err(Problem::Malformed("the request names no host, or more than one"));
    }
    if request.version() == Version::HTTP_2 && !has_host {
        return Err(Problem::Malformed("the request names no host, or more than one"));
    }
    // `GET login` has no slash, and no server behind knows what to make of it.
    let path = request.uri().path();
    let is_options = request.method() == Method::OPTIONS && path == "*";
    if !path.starts_with('/') && !is_options {
        return Err(Problem::Malformed("the target of the request is no path"));
    }
    Ok(())
}

/// Puts the host that counts into the header. A target that names one goes before the header (RFC 9112, section
/// 3.2.2); where both are there and differ, two servers might believe two of them.
fn name_host(request: &mut Request<Incoming>) -> Result<(), Problem> {
    let Some(authority) = request.uri().authority() else { return Ok(()) };
    let doubt = Problem::Malformed("the request names no host, or more than one");
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| doubt)?;
    let mut lines = request.headers().get_all(HOST).iter();
    let is_same = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(host.as_bytes());
    if authority.as_str().contains('@') || !lines.all(is_same) {
        return Err(doubt);
    }
    if request.headers().get_all(HOST).iter().count() < 2 {
        request.headers_mut().insert(HOST, host);
    }
    Ok(())
}

fn asks_for_upgrade(request: &Request<Incoming>) -> bool {
    request.version() < Version::HTTP_2 && request.headers().contains_key(http::header::UPGRADE)
}

fn is_grpc(request: &Request<Incoming>) -> bool {
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.starts_with(b"application/grpc")
}

/// The protocol that a request over HTTP/1 asks to change to.
pub(crate) fn upgrade(request: &Request<Incoming>) -> Option<HeaderValue> {
    (request.version() == Version::HTTP_11).then(|| hop::upgrade(request.headers())).flatten()
}
