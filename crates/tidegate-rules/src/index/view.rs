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
    /// As many as are looked at.
    attributes: &'a [Attribute<'a>],
    /// The numbers of the attributes, in their order; none where no rule asks.
    ids: [AttributeId; ATTRIBUTES_MAX],
    /// The bits of all of them.
    bits: u64,
    path: Cow<'a, [u8]>,
    /// The path in lower case; `None` where that is the path itself.
    folded: Option<Box<[u8]>>,
    has_folded: bool,
    host: Cow<'a, [u8]>,
    network: Option<IpNet>,
}

impl<'a> View<'a> {
    /// A request of which nothing is known yet.
    #[inline]
    pub(crate) fn new(attributes: &'a [Attribute<'a>]) -> Self {
        Self {
            attributes: &attributes[..attributes.len().min(ATTRIBUTES_MAX)],
            ids: [AttributeId::NONE; ATTRIBUTES_MAX],
            bits: 0,
            path: Cow::Borrowed(&[]),
            folded: None,
            has_folded: false,
            host: Cow::Borrowed(&[]),
            network: None,
        }
    }

    /// Looks at the attributes.
    #[inline(never)]
    pub(super) fn look(&mut self, names: &Names, wants_network: bool) {
        for (at, attribute) in self.attributes.iter().enumerate() {
            let Some(id) = names.find(attribute.name) else { continue };
            if self.bits & id.bit() != 0 && self.ids.contains(&id) {
                continue;
            }
            self.ids[at] = id;
            self.bits |= id.bit();
            if id.is_special() {
                self.add_special(id, attribute.value, names.wants_folded_path, wants_network);
            }
        }
    }

    /// Brings a value into its normal form.
    fn add_special(
        &mut self,
        id: AttributeId,
        value: &'a [u8],
        wants_folded: bool,
        wants_network: bool,
    ) {
        match id {
            AttributeId::PATH => self.add_path(value, wants_folded),
            AttributeId::HOST => self.host = value::normal_host(value),
            AttributeId::IP if wants_network => self.network = value::network_of(value),
            _ => {}
        }
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
        for (attribute, &known) in self.attributes.iter().zip(&self.ids) {
            if known == id {
                return Some(self.normal(id, attribute));
            }
        }
        if id == AttributeId::FOLDED_PATH { self.folded() } else { None }
    }

    /// Whether there is a path and some rule asks for it in lower case.
    #[inline]
    pub(super) fn has_folded(&self) -> bool {
        self.has_folded
    }

    /// Calls with each value of the attributes that have one of these bits, apart from the path in lower
    /// case.
    #[inline]
    pub(super) fn each(&self, bits: u64, mut visit: impl FnMut(AttributeId, &[u8])) {
        for (attribute, &id) in self.attributes.iter().zip(&self.ids) {
            if id.bit() & bits != 0 && id != AttributeId::NONE {
                visit(id, self.normal(id, attribute));
            }
        }
    }

    /// The path in lower case, if there is a path and some rule asks.
    #[cold]
    fn folded(&self) -> Option<&[u8]> {
        self.has_folded.then(|| self.folded.as_deref().unwrap_or(&self.path))
    }

    /// The network that a value stands for.
    #[inline]
    pub(super) fn network(&self, id: AttributeId, bytes: &[u8]) -> Option<IpNet> {
        if id == AttributeId::IP { self.network } else { value::network_of(bytes) }
    }

    /// The value of an attribute in its normal form.
    #[inline]
    fn normal(&self, id: AttributeId, attribute: &'a Attribute<'a>) -> &[u8] {
        if id.is_special() { self.special(id, attribute) } else { attribute.value }
    }

    /// Apart, so that there is little code around the common case.
    #[inline(never)]
    fn special(&self, id: AttributeId, attribute: &'a Attribute<'a>) -> &[u8] {
        match id {
            AttributeId::PATH => &self.path,
            AttributeId::HOST => &self.host,
            _ => attribute.value,
        }
    }
}
