//! What a request looks like to the rules: the values of the attributes that they name, in normal form.

use std::borrow::Cow;

use ipnet::IpNet;
use smallvec::SmallVec;

use super::ATTRIBUTES_MAX;
use super::names::{AttributeId, Names};
use super::value;
use crate::attribute::Attribute;
use crate::path::{is_plain, normalise};

/// A request's attributes by number.
///
/// Where a request has an attribute twice, the first counts. The path is in
/// [normal form](normalise); the host is in lower case, without port and dots at its end.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// As many as are looked at.
    attributes: &'a [Attribute<'a>],
    /// The numbers of the attributes, in their order; none where no rule asks. As many as there are, since
    /// room that is made ready and not used costs more than a lookup.
    ids: SmallVec<[AttributeId; ATTRIBUTES_MAX]>,
    /// The path, where it did not come in normal form.
    path: Option<Box<[u8]>>,
    /// The path in lower case; `None` where that is the path itself.
    folded: Option<Box<[u8]>>,
    has_folded: bool,
    host: Option<Cow<'a, [u8]>>,
    /// The attribute `ip`, where some rule asks for its network: the bits of a single address of IPv4, as
    /// most are, or else the network.
    address: Option<u32>,
    network: Option<IpNet>,
}

/// Who is shown attributes while they are looked at.
pub(super) trait Visitor {
    /// One whose values are not looked at as they come. It is to be added.
    fn special<'a>(&mut self, view: &mut View<'a>, id: AttributeId, value: &'a [u8]);

    /// Any other that is wanted.
    fn other(&mut self, view: &View<'_>, id: AttributeId, value: &[u8]);
}

impl<'a> View<'a> {
    /// A request of which nothing is known yet.
    #[inline]
    pub(crate) fn new(attributes: &'a [Attribute<'a>]) -> Self {
        Self {
            attributes: &attributes[..attributes.len().min(ATTRIBUTES_MAX)],
            ids: SmallVec::new(),
            path: None,
            folded: None,
            has_folded: false,
            host: None,
            address: None,
            network: None,
        }
    }

    /// Looks at the attributes, and shows those to a visitor that have one of these bits: rules are found by them while
    /// the others are still looked at. All that are not looked at as they come are shown, to be
    /// [added](Self::add_special).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every request comes by, and a call is many stores")]
    pub(super) fn look(&mut self, names: &Names, wanted_bits: u64, visitor: &mut impl Visitor) {
        // The bits of all that have been seen.
        let mut bits = 0;
        let attributes = self.attributes;
        for attribute in attributes {
            let known = names.find(attribute.name);
            let is_new = |id: &AttributeId| bits & id.bit() == 0 || !self.has(*id);
            let Some(id) = known.filter(is_new) else {
                self.ids.push(AttributeId::NONE);
                continue;
            };
            self.ids.push(id);
            bits |= id.bit();
            if id.is_special() {
                visitor.special(self, id, attribute.value);
            } else if wanted_bits & id.bit() != 0 {
                visitor.other(self, id, attribute.value);
            }
        }
    }

    /// Whether there was such an attribute before. Apart, since hardly any request has one twice.
    #[cold]
    #[inline(never)]
    fn has(&self, id: AttributeId) -> bool {
        self.ids.contains(&id)
    }

    /// Brings a value into its normal form.
    ///
    /// Says whether it has come in it. What follows then need not wait until it has been kept and read again.
    #[inline]
    pub(super) fn add_special(
        &mut self,
        id: AttributeId,
        value: &'a [u8],
        wants_folded: bool,
        wants_network: bool,
    ) -> bool {
        match id {
            AttributeId::PATH => {
                let is_plain = is_plain(value);
                if !is_plain {
                    self.add_odd_path(value);
                }
                if wants_folded {
                    self.add_folded(value);
                }
                return is_plain;
            }
            AttributeId::HOST => {
                self.host = Some(value::normal_host(value));
                return false;
            }
            AttributeId::IP if wants_network => match value::dotted(value) {
                address @ Some(_) => self.address = address,
                None => self.network = value::network_of(value),
            },
            _ => {}
        }
        true
    }

    #[cold]
    fn add_odd_path(&mut self, path: &[u8]) {
        if let Cow::Owned(normal) = normalise(path) {
            self.path = Some(normal.into());
        }
    }

    #[cold]
    fn add_folded(&mut self, path: &[u8]) {
        let path = self.path.as_deref().unwrap_or(path);
        self.has_folded = true;
        if path.iter().any(u8::is_ascii_uppercase) {
            self.folded = Some(path.to_ascii_lowercase().into());
        }
    }

    /// The value of an attribute, if the request has it.
    #[inline]
    pub(crate) fn value(&self, id: AttributeId) -> Option<&[u8]> {
        for (attribute, &known) in self.attributes.iter().zip(&self.ids) {
            if known == id {
                return Some(self.normal(id, attribute.value));
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
                visit(id, self.normal(id, attribute.value));
            }
        }
    }

    /// The path in lower case, if there is a path and some rule asks.
    #[cold]
    fn folded(&self) -> Option<&[u8]> {
        if !self.has_folded {
            return None;
        }
        self.folded.as_deref().or_else(|| self.value(AttributeId::PATH))
    }

    /// The network that a value stands for.
    #[inline]
    pub(super) fn network(&self, id: AttributeId, bytes: &[u8]) -> Option<IpNet> {
        if id != AttributeId::IP {
            return value::network_of(bytes);
        }
        self.address.map(value::network_of_address).or(self.network)
    }

    /// The bits of the address of IPv4 that a value stands for, where that is known already.
    #[inline]
    pub(super) fn address(&self, id: AttributeId) -> Option<u32> {
        if id == AttributeId::IP { self.address } else { None }
    }

    /// The value of an attribute in its normal form.
    #[inline]
    fn normal(&self, id: AttributeId, value: &'a [u8]) -> &[u8] {
        if id.is_special() { self.special_apart(id, value) } else { value }
    }

    /// Apart, so that there is little code around the common case.
    #[inline(never)]
    fn special_apart(&self, id: AttributeId, value: &'a [u8]) -> &[u8] {
        self.special(id, value)
    }

    /// The value of an attribute that is not looked at as it comes, in its normal form.
    #[inline]
    pub(super) fn special(&self, id: AttributeId, value: &'a [u8]) -> &[u8] {
        match id {
            AttributeId::PATH => self.path.as_deref().unwrap_or(value),
            AttributeId::HOST => self.host.as_deref().unwrap_or_default(),
            _ => value,
        }
    }
}
