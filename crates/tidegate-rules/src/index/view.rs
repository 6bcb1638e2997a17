//! What a request looks like to the rules: the values of the attributes that they name, in normal form.

use std::borrow::Cow;

use ipnet::IpNet;

use super::ATTRIBUTES_MAX;
use super::names::{AttributeId, Names};
use super::value;
use crate::attribute::Attribute;
use crate::path::normalise;

/// A request's attributes by number.
///
/// Where a request has an attribute twice, the first counts. The path is in
/// [normal form](normalise); the host is in lower case, without port and dots at its end.
#[derive(Debug)]
pub(crate) struct View<'a> {
    attributes: &'a [Attribute<'a>],
    /// The numbers of the attributes, in their order; none where no rule asks.
    ids: [AttributeId; ATTRIBUTES_MAX],
    path: Cow<'a, [u8]>,
    /// The path in lower case; `None` where that is the path itself.
    folded: Option<Box<[u8]>>,
    has_folded: bool,
    host: Cow<'a, [u8]>,
    network: Option<IpNet>,
}

impl<'a> View<'a> {
    #[inline]
    pub(super) fn new(names: &Names, attributes: &'a [Attribute<'a>], wants_network: bool) -> Self {
        let mut view = Self {
            attributes,
            ids: [AttributeId::NONE; ATTRIBUTES_MAX],
            path: Cow::Borrowed(&[]),
            folded: None,
            has_folded: false,
            host: Cow::Borrowed(&[]),
            network: None,
        };
        for (at, attribute) in attributes.iter().take(ATTRIBUTES_MAX).enumerate() {
            let Some(id) = names.find(attribute.name) else { continue };
            if view.ids[..at].contains(&id) {
                continue;
            }
            view.ids[at] = id;
            match id {
                AttributeId::PATH => view.add_path(attribute.value, names.wants_folded_path),
                AttributeId::HOST => view.host = value::normal_host(attribute.value),
                AttributeId::IP if wants_network => {
                    view.network = value::network_of(attribute.value)
                }
                _ => {}
            }
        }
        view
    }

    fn add_path(&mut self, path: &'a [u8], wants_folded: bool) {
        self.path = normalise(path);
        if wants_folded {
            self.has_folded = true;
            if self.path.iter().any(u8::is_ascii_uppercase) {
                self.folded = Some(self.path.to_ascii_lowercase().into());
            }
        }
    }

    /// The value of an attribute, if the request has it.
    #[inline]
    pub(crate) fn value(&self, id: AttributeId) -> Option<&[u8]> {
        if id == AttributeId::FOLDED_PATH {
            return self.has_folded.then(|| self.folded());
        }
        let at = self.ids.iter().take(self.attributes.len()).position(|&known| known == id)?;
        Some(self.value_at(at, id))
    }

    /// Calls with each value that some rule asks for.
    #[inline]
    pub(super) fn each(&self, mut visit: impl FnMut(AttributeId, &[u8])) {
        let known = self.ids.iter().take(self.attributes.len());
        for (at, &id) in known.enumerate().filter(|&(_, &id)| id != AttributeId::NONE) {
            visit(id, self.value_at(at, id));
        }
        if self.has_folded {
            visit(AttributeId::FOLDED_PATH, self.folded());
        }
    }

    /// The network that a value stands for.
    #[inline]
    pub(super) fn network(&self, id: AttributeId, bytes: &[u8]) -> Option<IpNet> {
        if id == AttributeId::IP { self.network } else { value::network_of(bytes) }
    }

    #[inline]
    fn value_at(&self, at: usize, id: AttributeId) -> &[u8] {
        match id {
            AttributeId::PATH => &self.path,
            AttributeId::HOST => &self.host,
            _ => self.attributes[at].value,
        }
    }

    fn folded(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(&self.path)
    }
}
