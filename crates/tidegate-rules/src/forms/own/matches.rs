//! Which requests a rule is about: what `match` says of their attributes.

use core::net::IpAddr;

use ipnet::IpNet;

use super::names;
use super::one_or_several;
use crate::diagnostic::{Problems, quoted};
use crate::glob::Glob;
use crate::path::{PathTemplate, normalise};
use crate::read::{self, Fields};
use crate::rule::{Condition, Test};
use crate::source::Place;
use crate::spelling::is_one_slip;
use crate::tree::{Key, Node, Value};

/// The conditions, and whether paths are compared without regard to case.
pub(super) fn read(node: &Node, problems: &mut Problems) -> (Vec<Condition>, bool) {
    let (mut conditions, mut ignore_case) = (Vec::new(), false);
    let Value::Map(entries) = &node.value else {
        // Says that it is no mapping.
        Fields::of(node, "match", problems);
        return (conditions, ignore_case);
    };
    for (key, node) in entries {
        if key.text == "ignore_case" {
            ignore_case = read::boolean(node, "ignore_case", problems).unwrap_or_default();
        } else if names::is_attribute(&key.text, key.place, problems) {
            warn_of_slip(key, problems);
            conditions.extend(condition(key, node, problems));
        }
    }
    (conditions, ignore_case)
}

/// The attributes that every request over HTTP has, or that most rules are about.
const USUAL: [&str; 6] = ["method", "path", "host", "ip", "user", "country"];

/// Any name may be that of an attribute, but one that is nearly a usual one is probably a slip, and
/// the rule would never match.
fn warn_of_slip(key: &Key, problems: &mut Problems) {
    let name = key.text.to_ascii_lowercase();
    if USUAL.contains(&key.text.as_str()) {
        return;
    }
    // Two letters are one slip away from too much: `id` is no slip.
    let is_slip = |usual: &&str| match usual.len() {
        0..=2 => name == *usual || name.strip_suffix('s') == Some(usual),
        _ => is_one_slip(&name, usual),
    };
    if let Some(usual) = USUAL.into_iter().find(is_slip) {
        let message = format!("{} is an attribute of its own", quoted(&key.text));
        problems.warning(key.place, message).help = Some(format!("did you mean `{usual}`?"));
    }
}

fn condition(key: &Key, node: &Node, problems: &mut Problems) -> Option<Condition> {
    let attribute = Attribute { name: &key.text, key_place: key.place };
    let (any_of, negated) = attribute.tests(node, problems)?;
    Some(Condition { attribute: key.text.clone(), any_of, negated })
}

/// The ways to compare a value that have a name.
#[derive(Clone, Copy)]
enum Kind {
    Exact,
    In,
    Prefix,
    Glob,
    Cidr,
    Present,
    Not,
}

const KINDS: [(&str, Kind); 7] = [
    ("exact", Kind::Exact),
    ("in", Kind::In),
    ("prefix", Kind::Prefix),
    ("glob", Kind::Glob),
    ("cidr", Kind::Cidr),
    ("present", Kind::Present),
    ("not", Kind::Not),
];

/// An attribute whose value is looked at. Some have values of a kind of their own.
#[derive(Clone, Copy)]
struct Attribute<'n> {
    name: &'n str,
    key_place: Place,
}

impl Attribute<'_> {
    /// What the value may be, or may not be.
    fn tests(self, node: &Node, problems: &mut Problems) -> Option<(Vec<Test>, bool)> {
        match &node.value {
            Value::Scalar(_) | Value::List(_) => {
                Some((self.several(node, problems, Self::value)?, false))
            }
            Value::Map(_) => {
                let (kind, node) = self.kind(node, problems)?;
                self.tests_of(kind, node, problems)
            }
            Value::Null => {
                let message = format!("`{}` is empty", self.name);
                let help = "write a value, or `{ present: true }` for any value";
                problems.error(self.key_place, message).help = Some(help.into());
                None
            }
        }
    }

    /// The one way to compare that the mapping `node` names, and what it compares with.
    fn kind<'n>(self, node: &'n Node, problems: &mut Problems) -> Option<(Kind, &'n Node)> {
        let errors_before = problems.errors();
        let mut fields = Fields::of(node, self.name, problems)?;
        let named = KINDS.map(|(name, kind)| fields.take(name).map(|node| (kind, node)));
        let place = fields.place();
        fields.finish(problems);
        let mut named = named.into_iter().flatten();
        let Some(first) = named.next() else {
            // An unknown word is a mistake already reported, with the words that are known.
            if problems.errors() == errors_before {
                let message = format!("`{}` is compared with nothing", self.name);
                let help = "write a value, or `{ present: true }` for any value";
                problems.error(place, message).help = Some(help.into());
            }
            return None;
        };
        if let Some((_, second)) = named.next() {
            let message = format!("`{}` is compared in two ways at once", self.name);
            let help = "write one of them; a list of several, such as `[{ exact: a }, { prefix: b }]`, \
                        means any of them";
            problems.error(second.place, message).help = Some(help.into());
            return None;
        }
        Some(first)
    }

    fn tests_of(
        self,
        kind: Kind,
        node: &Node,
        problems: &mut Problems,
    ) -> Option<(Vec<Test>, bool)> {
        let tests = match kind {
            Kind::Not => {
                let (tests, negated) = self.tests(node, problems)?;
                return Some((tests, !negated));
            }
            Kind::Present => {
                let is_present = read::boolean(node, "present", problems)?;
                return Some((vec![Test::Present], !is_present));
            }
            Kind::In => {
                read::list(node, "in", problems)?;
                self.several(node, problems, Self::value)
            }
            Kind::Exact => self.several(node, problems, Self::exact),
            Kind::Prefix => self.several(node, problems, |this, node, problems| {
                Some(Test::Prefix(this.text(node, problems)?))
            }),
            Kind::Glob => self.several(node, problems, |this, node, problems| {
                Some(Test::Glob(Glob::new(&this.text(node, problems)?)))
            }),
            Kind::Cidr => self.several(node, problems, |_, node, problems| {
                network(node, problems).map(Test::Cidr)
            }),
        };
        Some((tests?, false))
    }

    /// One test for `node`, or for each of a list; `None` where there is none.
    fn several(
        self,
        node: &Node,
        problems: &mut Problems,
        test: impl Fn(Self, &Node, &mut Problems) -> Option<Test>,
    ) -> Option<Vec<Test>> {
        let nodes = one_or_several(node);
        if nodes.is_empty() {
            let message = format!("`{}` is compared with an empty list", self.name);
            let help = "write at least one value, or leave it out";
            problems.error(node.place, message).help = Some(help.into());
            return None;
        }
        Some(nodes.iter().filter_map(|node| test(self, node, problems)).collect())
    }

    /// What stands for itself, or is an item of a list.
    fn value(self, node: &Node, problems: &mut Problems) -> Option<Test> {
        if let Value::Map(_) = node.value {
            return self.item(node, problems);
        }
        match self.name {
            "path" => {
                let text = read::text(node, self.name, problems)?;
                match PathTemplate::parse(&text) {
                    Ok(template) => Some(Test::Path(template)),
                    Err(error) => {
                        let sentence = error.to_string();
                        let (message, help) = sentence.split_once(": ").unwrap_or((&sentence, ""));
                        let help = Some(help.to_owned()).filter(|help| !help.is_empty());
                        problems.error(node.place, message).help = help;
                        None
                    }
                }
            }
            "host" => {
                let text = self.text(node, problems)?;
                let is_pattern = text.contains('*');
                Some(if is_pattern { Test::Glob(Glob::new(&text)) } else { Test::Exact(text) })
            }
            _ => self.exact(node, problems),
        }
    }

    /// A way to compare inside of a list. Any of the list may hold, so what says that a value may
    /// not be would undo all the others.
    fn item(self, node: &Node, problems: &mut Problems) -> Option<Test> {
        let (kind, value) = self.kind(node, problems)?;
        let (tests, negated) = self.tests_of(kind, value, problems)?;
        if negated {
            let error = problems.error(node.place, "a list cannot have a negation in it");
            error.help = Some("put `not` around the whole list: `{ not: [a, b] }`".into());
            return None;
        }
        match <[Test; 1]>::try_from(tests) {
            Ok([test]) => Some(test),
            Err(tests) if tests.is_empty() => None,
            Err(_) => {
                let error = problems.error(node.place, "a list cannot have a list in it");
                error.help = Some("write one list with all values".into());
                None
            }
        }
    }

    fn exact(self, node: &Node, problems: &mut Problems) -> Option<Test> {
        match self.name {
            "ip" => network(node, problems).map(Test::Cidr),
            "method" => {
                let method = read::text(node, self.name, problems)?;
                let Some(help) = method_meant(&method) else {
                    return Some(Test::Exact(method));
                };
                let message = format!("{} is not a method", quoted(&method));
                problems.error(node.place, message).help = Some(help);
                None
            }
            "path" => {
                let path = read::text(node, self.name, problems)?;
                let normal = normalise(path.as_bytes());
                if *normal != *path.as_bytes() {
                    let message = format!("{} is not a path in normal form", quoted(&path));
                    let help = format!("write `{}`", String::from_utf8_lossy(&normal));
                    problems.error(node.place, message).help = Some(help);
                    return None;
                }
                Some(Test::Exact(path))
            }
            _ => self.text(node, problems).map(Test::Exact),
        }
    }

    /// A text to compare with. Hosts are compared in lower case.
    fn text(self, node: &Node, problems: &mut Problems) -> Option<String> {
        let text = read::text(node, self.name, problems)?;
        if self.name != "host" {
            return Some(text);
        }
        let host = text.to_ascii_lowercase();
        if !host.contains('/') {
            return Some(host);
        }
        let name = host.split_once("://").map_or(host.as_str(), |(_, rest)| rest);
        let name = name.split('/').next().unwrap_or_default();
        let help = match name {
            "" => "write a name such as `api.example.com`".to_owned(),
            name => format!("write {}", quoted(name)),
        };
        problems.error(node.place, format!("{} is not a host", quoted(&text))).help = Some(help);
        None
    }
}

/// What to write in place of what is not one method; `None` where it is one.
fn method_meant(method: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let upper = method.to_ascii_uppercase();
    if !method.is_empty() && method.chars().all(fits) {
        return (upper != method).then(|| format!("did you mean `{upper}`?"));
    }
    let words: Vec<&str> = upper.split(|c| !fits(c)).filter(|word| !word.is_empty()).collect();
    Some(match words[..] {
        [] => "write a method such as `GET`, or leave `method` out for all".to_owned(),
        [word] => format!("did you mean {}?", quoted(word)),
        _ => format!("write {}", quoted(&format!("[{}]", words.join(", ")))),
    })
}

/// A range of addresses, or one address.
fn network(node: &Node, problems: &mut Problems) -> Option<IpNet> {
    let text = read::text(node, "an address", problems)?;
    let network = match text.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address)),
        Err(_) => text.parse().ok(),
    };
    let Some(network) = network else {
        let message = format!("{} is not an address or a range of them", quoted(&text));
        let help = "write an address such as `192.0.2.7`, or a range such as `192.0.2.0/24` or \
                    `2001:db8::/32`";
        problems.error(node.place, message).help = Some(help.into());
        return None;
    };
    if let Some(plain) = unmapped(network) {
        let message = format!("{} is IPv4 written as IPv6", quoted(&text));
        let help = format!("write `{plain}`: such addresses are compared as IPv4");
        problems.error(node.place, message).help = Some(help);
        return None;
    }
    if network != network.trunc() {
        let message = format!("{} is an address within a range, not a range", quoted(&text));
        let help =
            format!("write `{}`, or `{}` for the one address", network.trunc(), network.addr());
        problems.error(node.place, message).help = Some(help);
        return None;
    }
    Some(network)
}

/// The IPv4 network that lies within `::ffff:0:0/96`.
fn unmapped(network: IpNet) -> Option<IpNet> {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(mapped) = network else { return None };
    let address = mapped.addr().to_ipv4_mapped()?;
    let bits = mapped.prefix_len().checked_sub(MAPPED_BITS)?;
    IpNet::new(address.into(), bits).ok().map(|network| network.trunc())
}
