//! Anchors, and all of them that a value finds: a table for exact values, trees for the rest.

use ipnet::IpNet;

use super::anchor::{Anchor, Key};
use super::ladder::{Beginning, Ladder};
use super::names::AttributeId;
use super::shape::Text;
use super::table::Table;
use super::trie::Trie;
use super::view::View;

/// Anchors of all attributes, each with what is behind it.
#[derive(Debug)]
pub(super) struct Lookup<P> {
    exact: Table<P>,
    /// Of which attributes there are exact values, and of which there are trees.
    exact_bits: u64,
    tree_bits: u64,
    /// Of which attributes the trees are, in order: apart from them, so that they are close together.
    tree_ids: Vec<AttributeId>,
    trees: Vec<Trees<P>>,
}

impl<P: Copy> Lookup<P> {
    /// Anchors that are all different.
    pub(super) fn new(anchors: &[(Anchor<'_>, P)]) -> Self {
        let mut lookup = Self {
            exact: Table::default(),
            exact_bits: 0,
            tree_bits: 0,
            tree_ids: Vec::new(),
            trees: Vec::new(),
        };
        let mut others = Vec::new();
        for &(Anchor { id, key }, payload) in anchors {
            if let Key::Exact(text) = key {
                lookup.exact_bits |= id.bit();
                lookup.exact.insert(id.number(), text, payload);
            } else {
                lookup.tree_bits |= id.bit();
                others.push((id, key, payload));
            }
        }
        others.sort_by_key(|&(id, ..)| id);
        for group in others.chunk_by(|a, b| a.0 == b.0) {
            lookup.tree_ids.push(group[0].0);
            lookup.trees.push(Trees::new(group));
        }
        lookup
    }

    /// The bits of all attributes that have anchors.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.exact_bits | self.tree_bits
    }

    /// Calls with what is behind each anchor that a value finds.
    #[inline]
    pub(super) fn each<'s>(
        &'s self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        mut visit: impl FnMut(&'s P),
    ) {
        self.exact(id, bytes).into_iter().for_each(&mut visit);
        if let Some(trees) = self.trees_of(id) {
            trees.each(view, id, bytes, &mut visit);
        }
    }

    /// The same for the path.
    #[inline]
    pub(super) fn each_of_path<'s>(
        &'s self,
        view: &View<'_>,
        path: &[u8],
        mut visit: impl FnMut(&'s P),
    ) {
        let id = AttributeId::PATH;
        self.exact(id, path).into_iter().for_each(&mut visit);
        let Some(trees) = self.trees_of(id) else { return };
        trees.paths.each(path, &mut visit);
        if trees.kind != Kind::Paths {
            trees.each_in_ladders(view, id, path, &mut visit);
        }
    }

    /// The same for the address of the client.
    #[inline]
    pub(super) fn each_of_address<'s>(
        &'s self,
        view: &View<'_>,
        bytes: &[u8],
        mut visit: impl FnMut(&'s P),
    ) {
        let id = AttributeId::IP;
        self.exact(id, bytes).into_iter().for_each(&mut visit);
        let Some(trees) = self.trees_of(id) else { return };
        match view.address(id) {
            Some(bits) if trees.kind == Kind::Networks => trees.each_v4(bits, u32::BITS, visit),
            _ => trees.each(view, id, bytes, &mut visit),
        }
    }

    /// Calls with what is behind each anchor that a value finds in trees.
    #[inline]
    pub(super) fn each_in_trees<'s>(
        &'s self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        mut visit: impl FnMut(&'s P),
    ) {
        let Some(trees) = self.trees_of(id) else { return };
        if trees.kind == Kind::Prefixes {
            trees.each_prefix(bytes, visit);
        } else {
            trees.each(view, id, bytes, &mut visit);
        }
    }

    /// What is behind the anchor that is exactly this value.
    #[inline]
    pub(super) fn exact(&self, id: AttributeId, bytes: &[u8]) -> Option<&P> {
        if self.exact_bits & id.bit() == 0 {
            return None;
        }
        self.exact.find(id.number(), bytes)
    }

    /// Whether there may be trees for an attribute.
    #[inline]
    pub(super) fn has_trees(&self, id: AttributeId) -> bool {
        self.tree_bits & id.bit() != 0
    }

    #[inline]
    fn trees_of(&self, id: AttributeId) -> Option<&Trees<P>> {
        /// So many are compared faster than they are searched.
        const FEW: usize = 8;
        if !self.has_trees(id) {
            return None;
        }
        if self.tree_ids.first() == Some(&id) {
            return self.trees.first();
        }
        let at = if self.tree_ids.len() <= FEW {
            self.tree_ids.iter().position(|&known| known == id)?
        } else {
            self.tree_ids.binary_search(&id).ok()?
        };
        self.trees.get(at)
    }
}

/// The anchors of one attribute that are not exact values.
#[derive(Debug)]
struct Trees<P> {
    kind: Kind,
    paths: Trie<P>,
    prefixes: Ladder<P>,
    suffixes: Ladder<P>,
    v4: Ladder<P>,
    v6: Ladder<P>,
}

/// What all anchors of an attribute are, as they mostly are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Paths,
    Prefixes,
    Networks,
    Mixed,
}

impl<P: Copy> Trees<P> {
    fn new(anchors: &[(AttributeId, Key<'_>, P)]) -> Self {
        let (mut prefixes, mut suffixes) = (Vec::new(), Vec::new());
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let mut paths = Vec::new();
        for &(_, key, payload) in anchors {
            match key {
                // Those are in the table.
                Key::Exact(_) => {}
                Key::Prefix(text) => prefixes.push(beginning_of_text(text, payload)),
                // Back to front it is a prefix.
                Key::Suffix(text) => suffixes.push(beginning_of_text(&reversed(text), payload)),
                Key::Network(network) => {
                    let (list, start): (_, Text) = match network {
                        IpNet::V4(network) => (&mut v4, network.addr().octets()[..].into()),
                        IpNet::V6(network) => (&mut v6, network.addr().octets()[..].into()),
                    };
                    let len = u32::from(network.prefix_len());
                    list.push(beginning_of_network(start, len, payload));
                }
                Key::Path(segments) => paths.push((segments, payload)),
            }
        }
        let shorter = |text: &Text, len| Text::from(&text[..len as usize]);
        let wider = |start: &Text, len| network_cut(start, len);
        let kind = match anchors.len() {
            len if len == paths.len() => Kind::Paths,
            len if len == prefixes.len() => Kind::Prefixes,
            len if len == v4.len() + v6.len() => Kind::Networks,
            _ => Kind::Mixed,
        };
        Self {
            kind,
            paths: Trie::new(&paths),
            prefixes: Ladder::new(prefixes, shorter),
            suffixes: Ladder::new(suffixes, |text, len| reversed(&text[..len as usize])),
            v4: Ladder::new(v4, wider),
            v6: Ladder::new(v6, wider),
        }
    }

    /// Apart, so that there is little code around what is common.
    #[inline(never)]
    fn each<'s>(
        &'s self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        visit: &mut impl FnMut(&'s P),
    ) {
        if id.is_path() {
            self.paths.each(bytes, &mut *visit);
        } else if !self.paths.is_empty() {
            self.paths.each(&in_segments(bytes), &mut *visit);
        }
        if self.kind != Kind::Paths {
            self.each_in_ladders(view, id, bytes, visit);
        }
    }

    #[inline(never)]
    fn each_in_ladders<'s>(
        &'s self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        visit: &mut impl FnMut(&'s P),
    ) {
        self.each_prefix(bytes, &mut *visit);
        let end = |len: u32| bytes.len().checked_sub(len as usize).map(|at| &bytes[at..]);
        self.suffixes.each(end, &mut *visit);
        if self.v4.is_empty() && self.v6.is_empty() {
            return;
        }
        // A network wider than the value's holds all of the value; a narrower one holds a part only.
        match view.network(id, bytes) {
            Some(IpNet::V4(value)) => {
                self.each_v4(value.addr().to_bits(), value.prefix_len().into(), visit);
            }
            Some(IpNet::V6(value)) => {
                let (bits, len_max) = (value.addr().to_bits(), u32::from(value.prefix_len()));
                let cut = |len| bits & u128::MAX.checked_shl(128 - len).unwrap_or(0);
                self.v6.each(|len| (len <= len_max).then(|| cut(len).to_be_bytes()), visit);
            }
            None => {}
        }
    }

    #[inline]
    fn each_prefix<'s>(&'s self, bytes: &[u8], visit: impl FnMut(&'s P)) {
        self.prefixes.each(|len| bytes.get(..len as usize), visit);
    }

    #[inline]
    fn each_v4<'s>(&'s self, bits: u32, len_max: u32, visit: impl FnMut(&'s P)) {
        // In twice as many bits, so that all of the address may be shifted out.
        let cut = |len| bits & (u64::from(u32::MAX) << (32 - len)) as u32;
        self.v4.each(|len| (len <= len_max).then(|| cut(len).to_be_bytes()), visit);
    }
}

/// A value as a path whose segments are not empty. Hardly any rule compares other attributes with paths.
#[cold]
fn in_segments(value: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(value.len() + 1);
    for segment in value.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

fn reversed(text: &[u8]) -> Text {
    text.iter().rev().copied().collect()
}

/// All texts that begin so.
pub(super) fn beginning_of_text<P>(prefix: &[u8], payload: P) -> Beginning<P> {
    // Nobody writes a prefix of four gigabytes.
    let len = prefix.len() as u32;
    Beginning { start: prefix.into(), end: after(prefix), len, payload }
}

/// All addresses whose first bits are those.
pub(super) fn beginning_of_network<P>(start: Text, len: u32, payload: P) -> Beginning<P> {
    let mut last = start.clone();
    for (at, byte) in (0..).zip(&mut last) {
        *byte |= !mask(len, at);
    }
    Beginning { start, end: after(&last), len, payload }
}

/// An address with all bits but the first `len` set to zero.
pub(super) fn network_cut(address: &[u8], len: u32) -> Text {
    (0..).zip(address).map(|(at, byte)| byte & mask(len, at)).collect()
}

/// The bits of the byte at this place that are among the first `len` of all.
fn mask(len: u32, at: u32) -> u8 {
    let bits = len.saturating_sub(at * 8).min(8);
    // The shift leaves the lowest byte only when there are no bits to keep.
    (0xFF00_u16 >> bits) as u8
}

/// The first text that is greater than all that begin so: with its last byte one higher, where that
/// byte can be. There is none where no byte can.
fn after(prefix: &[u8]) -> Option<Text> {
    let at = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = Text::from(&prefix[..=at]);
    end[at] += 1;
    Some(end)
}
