//! A gateway's part of the settings file. Every mistake is told with its place; what the parts mean together is
//! for the layers to say.

use std::path::{Path, PathBuf};

use http::header::HeaderName;
use tidegate_rules::document::{
    Fields, Node, Problems, Value, boolean, list, list_of, number, text,
};
use tidegate_server::config::file::{parsed, texts};
use tidegate_server::config::value::Size;

use super::layer::{GatewayLayer, RouteLayer};
use super::words::Wait;
use crate::auth::{NETWORKS_MAX, Network};
use crate::front::HEAD_BYTES_MIN;
use crate::route::{AuthSettings, ROUTES_MAX, Shed};
use crate::tls::CertificateFiles;
use crate::upstream::{Probe, SERVERS_MAX, ServerSettings, UpstreamUrl, WEIGHT_MAX};

/// The header with the API key, unless said.
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");

impl GatewayLayer {
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
            head_max: reader.head_max(),
            access_log,
            access_log_format: reader.parsed("access_log_format"),
            all: reader.route(),
            routes: reader.routes(),
        }
    }
}

/// The fields of the file, as they are asked for.
struct Reader<'f, 'n, 'p> {
    fields: &'f mut Fields<'n>,
    folder: &'p Path,
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
            attempts: self.parsed("attempts"),
            probe: self.probe(),
            upstream_ca: self.path("upstream_ca"),
            allow: self.allow(),
            deny: self.networks("deny"),
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
