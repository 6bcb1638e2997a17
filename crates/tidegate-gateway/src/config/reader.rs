//! A gateway's part of the settings file. Every mistake is told with its place; what the parts mean together is
//! for the layers to say.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use http::header::HeaderName;
use tidegate_rules::attribute::is_attribute_name;
use tidegate_rules::document::{
    Fields, Node, Problems, Value, boolean, list, list_of, number, quoted, text,
};
use tidegate_rules::path::normalise;
use tidegate_server::config::file::{parsed, texts};
use tidegate_server::config::value::{Count, Size};

use super::layer::{GatewayLayer, RouteLayer};
use super::words::{RouteHost, Wait};
use crate::auth::{NETWORKS_MAX, Network};
use crate::front::HEAD_BYTES_MIN;
use crate::route::{AuthSettings, ROUTES_MAX, Shed};
use crate::tls::CertificateFiles;
use crate::upstream::{Probe, SERVERS_MAX, ServerSettings, UpstreamUrl, WEIGHT_MAX};

/// The header with the API key, unless said.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

/// The most servers that a request may be sent to.
const ATTEMPTS_MAX: usize = 16;

impl GatewayLayer {
    /// Takes the settings of a gateway out of the fields of a settings file whose paths are relative to
    /// `folder`.
    pub fn of_file(fields: &mut Fields<'_>, folder: &Path, problems: &mut Problems) -> Self {
        // Who tokens are from is for the daemon to say, in the same file.
        let identity = fields.take("identity").map(|node| &node.value);
        let has_tokens = matches!(identity, Some(Value::Map(entries)) if entries.iter().any(
            |(key, node)| key.text == "token" && node.value != Value::Null
        ));
        let mut reader = Reader { fields, folder, has_tokens, problems };
        let access_log = reader.text("access_log").map(|path| match path.as_str() {
            "-" => PathBuf::from("-"),
            path => folder.join(path),
        });
        let all = reader.route();
        let routes = reader.routes(&all);
        // Routes that say who they are for need nothing that would do for all.
        if routes.as_ref().is_none_or(|routes| routes.iter().any(|route| route.auth.is_none())) {
            reader.check_auth(&all);
        }
        Self {
            listen: reader.each("listen"),
            tls: reader.tls(),
            head_timeout: reader.parsed("head_timeout"),
            head_max: reader.head_max(),
            access_log,
            access_log_format: reader.parsed("access_log_format"),
            routes,
            all,
        }
    }
}

/// The fields of the file, as they are asked for.
struct Reader<'f, 'n, 'p> {
    fields: &'f mut Fields<'n>,
    folder: &'p Path,
    /// Whether tokens are verified.
    has_tokens: bool,
    problems: &'p mut Problems,
}

impl Reader<'_, '_, '_> {
    fn head_max(&mut self) -> Option<Size> {
        let node = self.fields.take("head_max")?;
        let size: Size = self.parsed("head_max")?;
        if size.bytes() < HEAD_BYTES_MIN {
            let least = Size::from_bytes(HEAD_BYTES_MIN);
            let message = format!("`head_max` is less than {least}");
            self.problems.error(node.place, message).help =
                Some(format!("write `{least}` or more: cookies alone can be as long"));
        }
        Some(size)
    }

    fn routes(&mut self, all: &RouteLayer) -> Option<Vec<RouteLayer>> {
        let node = self.fields.take("routes")?;
        let items = list(node, "routes", self.problems)?;
        self.filled("routes", "name a route, or leave it out: then one is for all requests")?;
        if items.len() > ROUTES_MAX {
            let message = format!("there are more than {ROUTES_MAX} routes");
            self.problems.error(node.place, message).help =
                Some("put hosts with the same settings into one route".to_owned());
            return None;
        }
        let mut routes = Vec::new();
        let mut known = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let Some(mut fields) = Fields::of(item, "a route", self.problems) else { continue };
            let (folder, has_tokens) = (self.folder, self.has_tokens);
            let problems = &mut *self.problems;
            let mut reader = Reader { fields: &mut fields, folder, has_tokens, problems };
            let route = reader.route();
            reader.check_auth(&route);
            fields.finish(self.problems);
            let names = names(&route, all);
            let same = names.iter().find_map(|name| known.get(name).map(|first| (name, *first)));
            if let Some((name, first)) = same {
                let second = index + 1;
                let message = format!("route {second} is for `{name}`, and so is route {first}");
                self.problems.error(item.place, message).help =
                    Some("put them together, or give one another host or path".to_owned());
            }
            known.extend(names.into_iter().map(|name| (name, index + 1)));
            routes.push(route);
        }
        Some(routes)
    }

    fn route(&mut self) -> RouteLayer {
        RouteLayer {
            hosts: self.hosts(),
            path: self.route_path(),
            domain: self.text("domain"),
            upstream: self.servers(),
            folder: self.files(),
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
            attempts: self.attempts(),
            fails_on: self.each("fails_on"),
            probe: self.probe(),
            upstream_ca: self.path("upstream_ca"),
            allow: self.allow(),
            deny: self.networks("deny"),
            auth: self.auth(),
            shed: self.shed(),
        }
    }

    fn hosts(&mut self) -> Option<Vec<String>> {
        self.filled("hosts", "name a host, or leave it out for all of them")?;
        let hosts: Vec<RouteHost> = self.each("hosts")?;
        Some(hosts.into_iter().map(|host| host.0).collect())
    }

    /// A path in the form that those of requests are compared in: no other would ever be asked for.
    fn route_path(&mut self) -> Option<String> {
        let node = self.fields.take("path")?;
        let path = text(node, "path", self.problems)?;
        let normal = normalise(path.as_bytes());
        let written = Some(path.trim_end_matches('/')).filter(|path| !path.is_empty());
        let (message, help) = if !path.starts_with('/') {
            ("a path begins with `/`", format!("write `/{path}`"))
        } else if path.contains('*') {
            let help = "write what paths begin with, without `*`: all below is the route's too";
            ("a path of a route is no pattern", help.to_owned())
        } else if *normal != *written.unwrap_or("/").as_bytes() {
            let help = format!("write `{}`", String::from_utf8_lossy(&normal));
            ("no request has this path: they are compared in their normal form", help)
        } else {
            return Some(path);
        };
        self.problems.error(node.place, message).help = Some(help);
        None
    }

    fn files(&mut self) -> Option<PathBuf> {
        let node = self.fields.take("folder")?;
        if self.fields.take("upstream").is_some() {
            self.problems.error(node.place, "`folder` stands beside `upstream`").help =
                Some("leave one out: requests are forwarded, or answered with files".to_owned());
        }
        self.path("folder")
    }

    /// URLs, or maps of a URL and a weight.
    fn servers(&mut self) -> Option<Vec<ServerSettings>> {
        let node = self.fields.take("upstream")?;
        let items: Vec<&Node> = match &node.value {
            Value::Scalar(_) => vec![node],
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
        if matches!(node.value, Value::Scalar(_)) {
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

    fn attempts(&mut self) -> Option<Count> {
        let node = self.fields.take("attempts")?;
        let attempts: Count = self.parsed("attempts")?;
        if attempts.number() > ATTEMPTS_MAX {
            let message = format!("`attempts` is a number from 1 to {ATTEMPTS_MAX}");
            self.problems.error(node.place, message).help =
                Some("write how many servers a request may be sent to, such as `2`".to_owned());
        }
        Some(attempts)
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
            let time: Option<Wait> = node.and_then(|node| parsed(node, name, self.problems));
            time.or_else(|| usual.parse().ok()).map(Wait::duration)
        };
        let (every, timeout) = (time("every", "5s"), time("timeout", "2s"));
        fields.finish(self.problems);
        Some(Probe { path: path?, every: every?, timeout: timeout? })
    }

    /// Whom a route is for. A list of nobody is a slip, and would be as good as none.
    fn allow(&mut self) -> Option<Vec<Network>> {
        let help = "leave it out, or write `[0.0.0.0/0, \"::/0\"]` to allow all addresses";
        self.filled("allow", help)?;
        self.networks("allow")
    }

    fn networks(&mut self, name: &'static str) -> Option<Vec<Network>> {
        let node = self.fields.take(name)?;
        let networks: Vec<Network> = self.each(name)?;
        if networks.len() > NETWORKS_MAX {
            let message = format!("`{name}` has more than {NETWORKS_MAX} networks");
            self.problems.error(node.place, message).help =
                Some("put neighbours together to one shorter prefix".to_owned());
        }
        Some(networks)
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

    /// Looks whether somebody can have what is asked for here.
    fn check_auth(&mut self, said: &RouteLayer) {
        let asked = said.auth.as_ref().filter(|auth| auth.is_required && auth.keys.is_none());
        let Some((node, _)) = self.fields.take("auth").zip(asked) else { return };
        if !self.has_tokens {
            let message = "nobody can have what `auth` asks for: there are neither keys nor tokens";
            self.problems.error(node.place, message).help =
                Some("add `keys_file: …` here, or `identity.token`".to_owned());
        }
    }

    fn shed(&mut self) -> Option<Shed> {
        let node = self.fields.take("shed_first")?;
        let mut fields = Fields::of(node, "shed_first", self.problems)?;
        let attribute = fields.require("attribute", self.problems);
        let attribute = attribute.and_then(|node| {
            let name = text(node, "attribute", self.problems)?;
            if !is_attribute_name(&name) {
                let message = format!("`attribute` cannot be {}", quoted(&name));
                self.problems.error(node.place, message).help =
                    Some("write the name of an attribute, such as `plan`".to_owned());
            }
            Some(name)
        });
        let values = fields.require("values", self.problems);
        let values = values.and_then(|node| {
            let values = texts(node, "values", self.problems)?;
            if values.is_empty() {
                self.problems.error(node.place, "`values` is empty").help =
                    Some("write the values of those that are refused first".to_owned());
            }
            Some(values)
        });
        fields.finish(self.problems);
        Some(Shed { attribute: attribute?, values: values? })
    }

    /// A list of pairs of files, or one pair under the names of its flags. Half a pair is a mistake, and not the same as
    /// none: passwords would go over the network for everybody to read.
    fn tls(&mut self) -> Option<Vec<CertificateFiles>> {
        let (pair, list) = (["tls_cert", "tls_key"], self.fields.take("tls"));
        let nodes = pair.map(|name| self.fields.take(name));
        let Some(node) = list else {
            if let ([Some(half), None], [_, other]) | ([None, Some(half)], [other, _]) =
                (nodes, pair)
            {
                let message = format!("`{other}` is missing");
                self.problems.error(half.place, message).help =
                    Some(format!("add `{other}: …`: there is no TLS without both"));
            }
            let (certificate, key) = self.path("tls_cert").zip(self.path("tls_key"))?;
            return Some(vec![CertificateFiles { certificate, key }]);
        };
        if let Some((name, _)) = pair.into_iter().zip(nodes).find(|(_, node)| node.is_some()) {
            let message = format!("`tls` stands beside `{name}`");
            self.problems.error(node.place, message).help =
                Some("move that pair into the list".to_owned());
        }
        self.filled("tls", "name a certificate and its key, or leave it out for no TLS")?;
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

    /// The value of a field, unless it is a list without an entry.
    fn filled(&mut self, name: &'static str, help: &str) -> Option<()> {
        let node = self.fields.take(name)?;
        if matches!(&node.value, Value::List(items) if items.is_empty()) {
            let message = format!("`{name}` is empty");
            self.problems.error(node.place, message).help = Some(help.to_owned());
            return None;
        }
        Some(())
    }

    fn each<T: std::str::FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &'static str,
    ) -> Option<Vec<T>> {
        let node = self.fields.take(name)?;
        if matches!(node.value, Value::Scalar(_)) {
            return parsed(node, name, self.problems).map(|value| vec![value]);
        }
        let items = list(node, name, self.problems)?;
        // All of them are looked at, so that every mistake is told at once.
        let each: Vec<_> = items.iter().map(|item| parsed(item, name, self.problems)).collect();
        each.into_iter().collect()
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

    fn boolean(&mut self, name: &'static str) -> Option<bool> {
        boolean(self.fields.take(name)?, name, self.problems)
    }

    fn path(&mut self, name: &'static str) -> Option<PathBuf> {
        self.text(name).map(|path| self.folder.join(path))
    }
}

/// Each host with the path, by which requests come to a route.
fn names(route: &RouteLayer, all: &RouteLayer) -> Vec<String> {
    let path = route.path.as_ref().or(all.path.as_ref());
    let path = path.map_or("", |path| path.trim_end_matches('/'));
    let path = if path.is_empty() { "/" } else { path };
    match route.hosts.as_ref().or(all.hosts.as_ref()) {
        Some(hosts) => hosts.iter().map(|host| format!("{host}{path}")).collect(),
        None => vec![format!("*{path}")],
    }
}
