//! Where a request goes: by its host and the beginning of its path, the most particular route first. Both
//! are compared in their normal form, so no other spelling leads to another route.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::HeaderName;
use tidegate::Reads;
use tidegate_identity::Identity;

use crate::auth::{AddressLists, Auth, KeysFile};
use crate::config::StartError;
use crate::files::Folder;
use crate::upstream::load::Priority;
use crate::upstream::{ServerSettings, UpstreamSettings, Upstreams};

/// The most routes.
pub const ROUTES_MAX: usize = 1_000;

/// One route, as it is told of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteSettings {
    /// Hosts in small letters; `*.example.com` is every host below. None is any host.
    pub hosts: Vec<String>,
    /// What the path begins with, whole segments of it.
    pub path: String,
    /// Whose rules hold.
    pub domain: String,
    /// Where requests go.
    pub servers: Vec<ServerSettings>,
    /// The folder whose files are served instead.
    pub folder: Option<PathBuf>,
    /// What holds for these.
    pub upstream: UpstreamSettings,
    /// What they are told as `Host`.
    pub host: HostHeader,
    /// Bounds of requests and responses.
    pub bounds: Bounds,
    /// Which addresses requests are taken from.
    pub addresses: AddressLists,
    /// What is asked of requests, where something is.
    pub auth: Option<AuthSettings>,
    /// Which requests are refused first when there is too much to do.
    pub shed: Option<Shed>,
}

impl RouteSettings {
    /// A route for everything, to these servers.
    pub fn new(servers: Vec<ServerSettings>) -> Self {
        Self {
            hosts: Vec::new(),
            path: "/".to_owned(),
            domain: "default".to_owned(),
            servers,
            folder: None,
            upstream: UpstreamSettings::default(),
            host: HostHeader::default(),
            bounds: Bounds::default(),
            addresses: AddressLists::default(),
            auth: None,
            shed: None,
        }
    }
}

/// What an upstream is told as `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// What the client asked for.
    #[default]
    Preserve,
    /// The upstream's own.
    Upstream,
    /// This.
    Fixed(HeaderValue),
}

/// How large and how slow things may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest body of a request, in bytes.
    pub body_bytes_max: u64,
    /// How long all of that body may take to pass, from when it is first waited for; `None` is as long as some of it
    /// comes. An upstream that takes it slowly uses up that time too.
    pub body_timeout: Option<Duration>,
    /// How long an upstream may take to begin its response, from the end of the request.
    pub response_timeout: Duration,
    /// How long nothing may come of a body, or through a tunnel.
    pub idle_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes_max: 64 << 20,
            body_timeout: None,
            response_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(1),
        }
    }
}

/// What is asked of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSettings {
    /// Whether those that are nobody's are refused.
    pub is_required: bool,
    /// The header with the API key.
    pub header: HeaderName,
    /// The file with the hashes of API keys; without it, tokens alone count.
    pub keys: Option<PathBuf>,
}

/// Requests that are refused first: those with one of these values of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shed {
    /// The attribute.
    pub attribute: String,
    /// The values.
    pub values: Vec<String>,
}

/// One route, ready.
#[derive(Debug)]
pub(crate) struct Route {
    hosts: Vec<String>,
    path: String,
    pub(crate) domain: String,
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) folder: Option<Folder>,
    pub(crate) host: HostHeader,
    pub(crate) bounds: Bounds,
    pub(crate) addresses: AddressLists,
    pub(crate) auth: Option<Auth>,
    /// Whether requests go to upstreams, all of which are reached by connections that the lane for plain ones has.
    pub(crate) is_plain: bool,
    shed: Option<Shed>,
}

impl Route {
    pub(crate) fn new(settings: RouteSettings) -> Result<Self, StartError> {
        let auth = match settings.auth {
            None => None,
            Some(AuthSettings { is_required, header, keys }) => {
                let keys = keys.map(KeysFile::read).transpose().map_err(StartError::Keys)?;
                Some(Auth { is_required, header, keys })
            }
        };
        let upstreams = Upstreams::new(settings.servers, settings.upstream);
        let upstreams = Arc::new(upstreams.map_err(StartError::UpstreamTls)?);
        let has_lines = upstreams.balancer.servers().iter().all(|server| server.lines.is_some());
        let is_plain = has_lines && settings.folder.is_none();
        let folder = settings
            .folder
            .map(|path| Folder::open(&path).map_err(|error| StartError::Folder { path, error }));
        Ok(Self {
            hosts: settings.hosts,
            path: settings.path.trim_end_matches('/').to_owned(),
            domain: settings.domain,
            upstreams,
            folder: folder.transpose()?,
            host: settings.host,
            bounds: settings.bounds,
            addresses: settings.addresses,
            auth,
            is_plain,
            shed: settings.shed,
        })
    }

    /// How soon a request is refused, by the value of the attribute that decides.
    pub(crate) fn priority<'a>(&self, value: impl FnOnce(&str) -> Option<&'a [u8]>) -> Priority {
        let Some(shed) = &self.shed else { return Priority::Usual };
        let value = value(&shed.attribute);
        let is_low = shed.values.iter().any(|low| value == Some(low.as_bytes()));
        if is_low { Priority::Low } else { Priority::Usual }
    }

    /// What it is called where people are told of it: its hosts and its path.
    pub(crate) fn name(&self) -> String {
        let hosts = if self.hosts.is_empty() { "*".to_owned() } else { self.hosts.join(", ") };
        let path = if self.path.is_empty() { "/" } else { &self.path };
        format!("{hosts}{path}")
    }

    /// How much of a path that it takes is its own.
    pub(crate) fn path_length(&self) -> usize {
        self.path.len()
    }

    fn takes_path(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.path.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// How particular it is about this host; `None` where it does not take it.
    fn takes_host(&self, host: &[u8]) -> Option<usize> {
        if self.hosts.is_empty() {
            return Some(0);
        }
        let each = self.hosts.iter().filter_map(|known| match known.strip_prefix('*') {
            Some(below) => host.ends_with(below.as_bytes()).then_some(below.len()),
            None => (host == known.as_bytes()).then_some(usize::MAX),
        });
        each.max()
    }
}

/// All routes.
#[derive(Debug)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    pub(crate) fn new(routes: Vec<RouteSettings>) -> Result<Self, StartError> {
        routes.into_iter().map(Route::new).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn each(&self) -> &[Route] {
        &self.0
    }

    /// The attributes that are looked at to find a route and to follow it. A doubt about a host or a key is one about the
    /// request, so both are always looked at.
    pub(crate) fn reads(&self) -> Reads {
        let mut reads = Reads::HOST.and(Reads::API_KEY);
        if self.only().is_none() {
            reads = reads.and(Reads::PATH);
        }
        for route in &self.0 {
            let shed = route.shed.as_ref().map(|shed| shed.attribute.as_str());
            let named = [shed, route.upstreams.balancer.attribute()];
            // What became of a token is told with the attributes that have no place of their own.
            let auth = route.auth.as_ref().map(|_| Reads::OTHERS);
            let all = named.into_iter().flatten().map(Reads::named).chain(auth);
            reads = all.fold(reads, Reads::and);
        }
        reads
    }

    /// The headers that say whose a request is: those of keys, and those that become attributes.
    pub(crate) fn whose(&self, identity: &Identity) -> Arc<[HeaderName]> {
        let keys = self.0.iter().filter_map(|route| Some(&route.auth.as_ref()?.header));
        let mut names: Vec<HeaderName> = identity.header_names().chain(keys).cloned().collect();
        names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        names.dedup();
        names.into()
    }

    /// The route of every request, whatever its host and its path, where there is one alone.
    pub(crate) fn only(&self) -> Option<&Route> {
        match &self.0[..] {
            [route] if route.hosts.is_empty() && route.path.is_empty() => Some(route),
            _ => None,
        }
    }

    /// The most particular route that takes a request: first by its host, then by its path. The path of
    /// `OPTIONS *` is none, and is taken by routes for all paths.
    pub(crate) fn find(&self, host: &[u8], path: &[u8]) -> Option<&Route> {
        let takers = self.0.iter().filter(|route| route.takes_path(path) || route.path.is_empty());
        let takers = takers.filter_map(|route| Some((route.takes_host(host)?, route)));
        // Of two that are alike the first one counts.
        takers.rev().max_by_key(|(host, route)| (*host, route.path.len())).map(|(_, route)| route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(each: &[(&[&str], &str)]) -> Routes {
        let settings = each.iter().enumerate().map(|(index, (hosts, path))| {
            let mut route = RouteSettings::new(Vec::new());
            route.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            (*path).clone_into(&mut route.path);
            route.domain = index.to_string();
            route
        });
        Routes::new(settings.collect()).unwrap()
    }

    #[tokio::test]
    async fn the_most_particular_route_takes_a_request() {
        let routes = routes(&[
            (&[], "/"),
            (&[], "/api"),
            (&["a.example"], "/"),
            (&["*.example"], "/"),
            (&["*.b.example"], "/api/"),
            (&["a.example"], "/api/v2"),
        ]);
        let found = |host: &str, path: &str| {
            routes.find(host.as_bytes(), path.as_bytes()).unwrap().domain.clone()
        };
        assert_eq!(found("other", "/"), "0");
        assert_eq!(found("other", "/api"), "1");
        assert_eq!(found("other", "/api/x"), "1");
        assert_eq!(found("other", "/apix"), "0");
        assert_eq!(found("a.example", "/api"), "2");
        assert_eq!(found("a.example", "/api/v2/x"), "5");
        assert_eq!(found("c.example", "/"), "3");
        assert_eq!(found("c.b.example", "/api"), "4");
        assert_eq!(found("c.b.example", "/"), "3");
        assert_eq!(found("example", "*"), "0");
    }

    #[tokio::test]
    async fn one_route_for_everything_need_not_be_looked_for() {
        assert_eq!(routes(&[(&[], "/")]).only().map(|route| route.domain.as_str()), Some("0"));
        let others: [&[(&[&str], &str)]; 4] =
            [&[], &[(&[], "/api")], &[(&["a.example"], "/")], &[(&[], "/"), (&[], "/api")]];
        for each in others {
            assert!(routes(each).only().is_none(), "{each:?}");
        }
    }

    #[tokio::test]
    async fn what_no_route_takes_is_taken_by_none() {
        let routes = routes(&[(&["a.example"], "/api")]);
        assert!(routes.find(b"a.example", b"/").is_none());
        assert!(routes.find(b"b.example", b"/api").is_none());
        assert!(routes.find(b"", b"/api").is_none());
    }
}
