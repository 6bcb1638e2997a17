//! What one place says of a gateway, a file or a command line: all that is not said is left to the place below.
//! What is said of no route in particular holds for all of them.

use std::path::{Path, PathBuf};

use http::header::HeaderName;
use ipnet::IpNet;
use tidegate_rules::document::{Fields, Node, Problems, boolean, list, list_of, number, text};
use tidegate_server::Settings;
use tidegate_server::config::file::{parsed, texts};
use tidegate_server::config::value::{Count, Size, Time};
use tidegate_server::listen::Address;

use super::GatewaySettings;
use super::words::{BalanceWord, HostWord, LogFormatWord};
use crate::access_log::AccessLogSettings;
use crate::auth::{AddressLists, NETWORKS_MAX};
use crate::front::FrontBounds;
use crate::route::{AuthSettings, Bounds, ROUTES_MAX, RouteSettings, Shed};
use crate::tls::CertificateFiles;
use crate::upstream::{
    Probe, SERVERS_MAX, ServerSettings, UpstreamSettings, UpstreamUrl, WEIGHT_MAX,
};

/// What is said of a gateway.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct GatewayLayer {
    pub listen: Option<Vec<Address>>,
    pub tls: Option<Vec<CertificateFiles>>,
    pub head_timeout: Option<Time>,
    pub head_max: Option<Size>,
    pub access_log: Option<PathBuf>,
    pub access_log_format: Option<LogFormatWord>,
    /// What holds for every route that does not say otherwise.
    pub all: RouteLayer,
    /// From the file alone: they are too much for a command line.
    pub routes: Option<Vec<RouteLayer>>,
}

/// What is said of one route, or of all.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct RouteLayer {
    pub hosts: Option<Vec<String>>,
    pub path: Option<String>,
    pub domain: Option<String>,
    pub upstream: Option<Vec<ServerSettings>>,
    pub folder: Option<PathBuf>,
    pub balance: Option<BalanceWord>,
    pub host: Option<HostWord>,
    pub body_max: Option<Size>,
    pub body_timeout: Option<Time>,
    pub response_timeout: Option<Time>,
    pub idle_timeout: Option<Time>,
    pub connect_timeout: Option<Time>,
    pub keep_alive: Option<Time>,
    pub in_flight_max: Option<Count>,
    pub adaptive: Option<bool>,
    pub attempts: Option<Count>,
    pub probe: Option<Probe>,
    pub upstream_ca: Option<PathBuf>,
    pub addresses: Option<AddressLists>,
    pub auth: Option<AuthSettings>,
    pub shed: Option<Shed>,
}

/// Where a gateway listens unless said.
const LISTEN: &str = "127.0.0.1:8000";
/// The header with the API key, unless said.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

impl GatewayLayer {
    /// What this layer says, and below it what `below` says.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            tls: self.tls.or(below.tls),
            head_timeout: self.head_timeout.or(below.head_timeout),
            head_max: self.head_max.or(below.head_max),
            access_log: self.access_log.or(below.access_log),
            access_log_format: self.access_log_format.or(below.access_log_format),
            all: self.all.over(below.all),
            routes: self.routes.or(below.routes),
        }
    }

    /// What the layers say together, or which route has nowhere to go to.
    pub fn settings(self, daemon: Settings) -> Result<GatewaySettings, NoUpstream> {
        let usual = FrontBounds::default();
        let front = FrontBounds {
            head_timeout: self.head_timeout.map_or(usual.head_timeout, Time::duration),
            head_bytes_max: self.head_max.map_or(usual.head_bytes_max, Size::bytes),
        };
        let routes = self.routes.unwrap_or_else(|| vec![RouteLayer::default()]);
        let routes = routes.into_iter().enumerate().map(|(index, route)| {
            route.over(self.all.clone()).settings().ok_or(NoUpstream { route: index })
        });
        let format = self.access_log_format.map_or_else(Default::default, |word| word.0);
        let access_log = self.access_log.map(|path| AccessLogSettings {
            path: (path != Path::new("-")).then_some(path),
            format,
        });
        Ok(GatewaySettings {
            daemon,
            listen: self.listen.unwrap_or_else(|| LISTEN.parse().into_iter().collect()),
            certificates: self.tls.unwrap_or_default(),
            routes: routes.collect::<Result<_, _>>()?,
            front,
            access_log,
        })
    }

    /// Takes the settings of a gateway out of the fields of a settings file whose paths are relative to
    /// `folder`.
    pub fn of_file(fields: &mut Fields<'_>, folder: &Path, problems: &mut Problems) -> Self {
        let mut reader = Reader { fields, folder, problems };
        let access_log = reader.text("access_log").map(|path| match path.as_str() {
            "-" => PathBuf::from("-"),
            path => folder.join(path),
        });
        Self {
            listen: reader.each("listen"),
            tls: reader.tls(),
            head_timeout: reader.parsed("head_timeout"),
            head_max: reader.parsed("head_max"),
            access_log,
            access_log_format: reader.parsed("access_log_format"),
            all: reader.route(),
            routes: reader.routes(),
        }
    }
}

/// A route without a server behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUpstream {
    route: usize,
}

impl std::fmt::Display for NoUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.route + 1;
        write!(
            f,
            "there is nowhere to forward to: name a service with --upstream http://HOST:PORT, or as `upstream` of route {number}"
        )
    }
}

impl std::error::Error for NoUpstream {}

impl RouteLayer {
    fn over(self, below: Self) -> Self {
        Self {
            hosts: self.hosts.or(below.hosts),
            path: self.path.or(below.path),
            domain: self.domain.or(below.domain),
            // Who names one of the two does not mean the other.
            upstream: self.upstream.or(below.upstream.filter(|_| self.folder.is_none())),
            folder: self.folder.or(below.folder),
            balance: self.balance.or(below.balance),
            host: self.host.or(below.host),
            body_max: self.body_max.or(below.body_max),
            body_timeout: self.body_timeout.or(below.body_timeout),
            response_timeout: self.response_timeout.or(below.response_timeout),
            idle_timeout: self.idle_timeout.or(below.idle_timeout),
            connect_timeout: self.connect_timeout.or(below.connect_timeout),
            keep_alive: self.keep_alive.or(below.keep_alive),
            in_flight_max: self.in_flight_max.or(below.in_flight_max),
            adaptive: self.adaptive.or(below.adaptive),
            attempts: self.attempts.or(below.attempts),
            probe: self.probe.or(below.probe),
            upstream_ca: self.upstream_ca.or(below.upstream_ca),
            addresses: self.addresses.or(below.addresses),
            auth: self.auth.or(below.auth),
            shed: self.shed.or(below.shed),
        }
    }

    /// `None` where there is neither an upstream nor a folder.
    fn settings(self) -> Option<RouteSettings> {
        let servers = self.upstream.unwrap_or_default();
        if servers.is_empty() && self.folder.is_none() {
            return None;
        }
        let usual = UpstreamSettings::default();
        let time = |time: Option<Time>, usual| time.map_or(usual, Time::duration);
        let upstream = UpstreamSettings {
            balance: self.balance.map_or(usual.balance, |word| word.0),
            in_flight_max: self.in_flight_max.map_or(usual.in_flight_max, Count::number),
            is_adaptive: self.adaptive.unwrap_or(usual.is_adaptive),
            attempts: self.attempts.map_or(usual.attempts, Count::number),
            connect_timeout: time(self.connect_timeout, usual.connect_timeout),
            idle_timeout: time(self.keep_alive, usual.idle_timeout),
            probe: self.probe,
            ca: self.upstream_ca,
        };
        let usual = Bounds::default();
        let bounds = Bounds {
            body_bytes_max: self.body_max.map_or(usual.body_bytes_max, |size| size.bytes() as u64),
            body_timeout: self.body_timeout.map(Time::duration).or(usual.body_timeout),
            response_timeout: time(self.response_timeout, usual.response_timeout),
            idle_timeout: time(self.idle_timeout, usual.idle_timeout),
        };
        let route = RouteSettings::new(servers);
        Some(RouteSettings {
            hosts: self.hosts.unwrap_or_default(),
            path: self.path.unwrap_or(route.path),
            domain: self.domain.unwrap_or(route.domain),
            servers: route.servers,
            folder: self.folder,
            upstream,
            host: self.host.map_or(route.host, |word| word.0),
            bounds,
            addresses: self.addresses.unwrap_or_default(),
            auth: self.auth,
            shed: self.shed,
        })
    }
}

/// The fields of the file, as they are asked for.
struct Reader<'f, 'n, 'p> {
    fields: &'f mut Fields<'n>,
    folder: &'p Path,
    problems: &'p mut Problems,
}

impl Reader<'_, '_, '_> {
    fn routes(&mut self) -> Option<Vec<RouteLayer>> {
        let node = self.fields.take("routes")?;
        let items = list(node, "routes", self.problems)?;
        if items.len() > ROUTES_MAX {
            self.problems.error(node.place, format!("there are more than {ROUTES_MAX} routes"));
            return None;
        }
        let routes = items.iter().filter_map(|item| {
            let mut fields = Fields::of(item, "a route", self.problems)?;
            let (folder, problems) = (self.folder, &mut *self.problems);
            let route = Reader { fields: &mut fields, folder, problems }.route();
            fields.finish(self.problems);
            Some(route)
        });
        Some(routes.collect())
    }

    fn route(&mut self) -> RouteLayer {
        let hosts = self.texts("hosts");
        let hosts = hosts.map(|hosts| hosts.iter().map(|host| host.to_ascii_lowercase()).collect());
        RouteLayer {
            hosts,
            path: self.route_path(),
            domain: self.text("domain"),
            upstream: self.servers(),
            folder: self.path("folder"),
            balance: self.parsed("balance"),
            host: self.parsed("host"),
            body_max: self.parsed("body_max"),
            body_timeout: self.parsed("body_timeout"),
            response_timeout: self.parsed("response_timeout"),
            idle_timeout: self.parsed("idle_timeout"),
            connect_timeout: self.parsed("connect_timeout"),
            keep_alive: self.parsed("keep_alive"),
            in_flight_max: self.parsed("in_flight_max"),
            adaptive: self.boolean("adaptive"),
            attempts: self.parsed("attempts"),
            probe: self.probe(),
            upstream_ca: self.path("upstream_ca"),
            addresses: self.addresses(),
            auth: self.auth(),
            shed: self.shed(),
        }
    }

    fn route_path(&mut self) -> Option<String> {
        let node = self.fields.take("path")?;
        let path = text(node, "path", self.problems)?;
        if !path.starts_with('/') {
            self.problems.error(node.place, "a path begins with `/`");
        }
        Some(path)
    }

    /// URLs, or maps of a URL and a weight.
    fn servers(&mut self) -> Option<Vec<ServerSettings>> {
        let node = self.fields.take("upstream")?;
        let items: Vec<&Node> = match &node.value {
            tidegate_rules::document::Value::Scalar(_) => vec![node],
            _ => list_of(node, "upstream", self.problems)?.iter().collect(),
        };
        if items.len() > SERVERS_MAX {
            let message = format!("there are more than {SERVERS_MAX} servers");
            self.problems.error(node.place, message);
            return None;
        }
        Some(items.into_iter().filter_map(|item| self.server(item)).collect())
    }

    fn server(&mut self, node: &Node) -> Option<ServerSettings> {
        if matches!(node.value, tidegate_rules::document::Value::Scalar(_)) {
            let url: UpstreamUrl = parsed(node, "upstream", self.problems)?;
            return Some(ServerSettings { url, weight: 1 });
        }
        let mut fields = Fields::of(node, "an upstream", self.problems)?;
        let url = fields.require("url", self.problems);
        let url = url.and_then(|node| parsed(node, "url", self.problems));
        let weight = fields.take("weight").and_then(|node| {
            let weight = number(node, "weight", self.problems)?;
            if !(1..=u64::from(WEIGHT_MAX)).contains(&weight) {
                let message = format!("a weight is a number from 1 to {WEIGHT_MAX}");
                self.problems.error(node.place, message);
            }
            u32::try_from(weight).ok()
        });
        fields.finish(self.problems);
        Some(ServerSettings { url: url?, weight: weight.unwrap_or(1) })
    }

    fn probe(&mut self) -> Option<Probe> {
        let node = self.fields.take("probe")?;
        let mut fields = Fields::of(node, "probe", self.problems)?;
        let path = fields.require("path", self.problems).and_then(|node| {
            let path = text(node, "path", self.problems)?;
            if !path.starts_with('/') || path.parse::<http::uri::PathAndQuery>().is_err() {
                self.problems.error(node.place, "a probe asks for a path, such as `/healthz`");
            }
            Some(path)
        });
        let mut time = |name: &'static str, usual: &str| {
            let node = fields.take(name);
            let time: Option<Time> = node.and_then(|node| parsed(node, name, self.problems));
            time.or_else(|| usual.parse().ok()).map(Time::duration)
        };
        let (every, timeout) = (time("every", "5s"), time("timeout", "2s"));
        fields.finish(self.problems);
        Some(Probe { path: path?, every: every?, timeout: timeout? })
    }

    fn addresses(&mut self) -> Option<AddressLists> {
        let (allow, deny) = (self.networks("allow"), self.networks("deny"));
        (allow.is_some() || deny.is_some()).then(|| AddressLists {
            allow: allow.unwrap_or_default(),
            deny: deny.unwrap_or_default(),
        })
    }

    fn networks(&mut self, name: &'static str) -> Option<Vec<IpNet>> {
        let node = self.fields.take(name)?;
        let items = texts(node, name, self.problems)?;
        let networks = items.iter().map(|text| {
            let address = || text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
            text.parse().ok().or_else(address)
        });
        let networks: Option<Vec<IpNet>> = networks.collect();
        let networks = networks.filter(|networks| networks.len() <= NETWORKS_MAX);
        if networks.is_none() {
            self.problems.error(node.place, format!("`{name}` is no list of networks")).help =
                Some(format!("write at most {NETWORKS_MAX}, such as `10.0.0.0/8`"));
        }
        networks
    }

    fn auth(&mut self) -> Option<AuthSettings> {
        let node = self.fields.take("auth")?;
        let mut fields = Fields::of(node, "auth", self.problems)?;
        let required = fields.take("required");
        let required = required.and_then(|node| boolean(node, "required", self.problems));
        let header = fields.take("header");
        let header = header.and_then(|node| parsed(node, "header", self.problems));
        let keys = fields.take("keys_file");
        let keys = keys.and_then(|node| text(node, "keys_file", self.problems));
        fields.finish(self.problems);
        Some(AuthSettings {
            is_required: required.unwrap_or(true),
            header: header.unwrap_or(KEY_HEADER),
            keys: keys.map(|path| self.folder.join(path)),
        })
    }

    fn shed(&mut self) -> Option<Shed> {
        let node = self.fields.take("shed_first")?;
        let mut fields = Fields::of(node, "shed_first", self.problems)?;
        let attribute = fields.require("attribute", self.problems);
        let attribute = attribute.and_then(|node| text(node, "attribute", self.problems));
        let values = fields.require("values", self.problems);
        let values = values.and_then(|node| texts(node, "values", self.problems));
        fields.finish(self.problems);
        Some(Shed { attribute: attribute?, values: values? })
    }

    /// A list of pairs of files, or one pair under the names of its flags.
    fn tls(&mut self) -> Option<Vec<CertificateFiles>> {
        let one = self.path("tls_cert").zip(self.path("tls_key"));
        let one = one.map(|(certificate, key)| vec![CertificateFiles { certificate, key }]);
        let Some(node) = self.fields.take("tls") else { return one };
        let items = list_of(node, "tls", self.problems)?;
        let each = items.iter().filter_map(|item| {
            let mut fields = Fields::of(item, "tls", self.problems)?;
            let mut file = |name: &'static str| {
                let node = fields.require(name, self.problems)?;
                Some(self.folder.join(text(node, name, self.problems)?))
            };
            let (certificate, key) = (file("certificate"), file("key"));
            fields.finish(self.problems);
            Some(CertificateFiles { certificate: certificate?, key: key? })
        });
        Some(each.collect())
    }

    fn each<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &'static str,
    ) -> Option<Vec<T>> {
        let node = self.fields.take(name)?;
        if matches!(node.value, tidegate_rules::document::Value::Scalar(_)) {
            return parsed(node, name, self.problems).map(|value| vec![value]);
        }
        let items = list(node, name, self.problems)?;
        items.iter().map(|item| parsed(item, name, self.problems)).collect()
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &'static str,
    ) -> Option<T> {
        parsed(self.fields.take(name)?, name, self.problems)
    }

    fn text(&mut self, name: &'static str) -> Option<String> {
        text(self.fields.take(name)?, name, self.problems)
    }

    fn texts(&mut self, name: &'static str) -> Option<Vec<String>> {
        texts(self.fields.take(name)?, name, self.problems)
    }

    fn boolean(&mut self, name: &'static str) -> Option<bool> {
        boolean(self.fields.take(name)?, name, self.problems)
    }

    fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        self.text(name).map(|path| self.folder.join(path))
    }
}
