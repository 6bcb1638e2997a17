//! What a value is looked up by: the part of a test that a table or a tree can find.

use std::hash::Hash;

use ipnet::IpNet;

use super::names::AttributeId;
use super::shape::Shape;
use crate::path::Segment;

/// What a value is looked up by, and whether that is all that the test asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Anchor<'r> {
    pub(super) id: AttributeId,
    pub(super) key: Key<'r>,
}

/// The part of a test that can be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'r> {
    Exact(&'r [u8]),
    /// An empty one is found by every value.
    Prefix(&'r [u8]),
    Suffix(&'r [u8]),
    Network(IpNet),
    Path(&'r [Segment]),
}

impl<'r> Anchor<'r> {
    /// The anchor of a test. Where it is the whole test a value that finds it has passed; otherwise
    /// the test is still to be made.
    pub(super) fn new(id: AttributeId, shape: &'r Shape) -> (Self, Whole) {
        let (key, whole) = match shape {
            Shape::Exact(text) => (Key::Exact(text), true),
            Shape::Prefix(text) => (Key::Prefix(text), true),
            Shape::Suffix(text) => (Key::Suffix(text), true),
            Shape::Network(network) => (Key::Network(*network), true),
            Shape::Path(template) => (Key::Path(template.segments()), true),
            Shape::Glob(glob) => {
                let (prefix, suffix) = (glob.literal_prefix(), glob.literal_suffix());
                let key = if suffix.len() > prefix.len() {
                    Key::Suffix(suffix.as_bytes())
                } else {
                    Key::Prefix(prefix.as_bytes())
                };
                (key, false)
            }
        };
        (Self { id, key }, Whole(whole))
    }

    /// How dear it is to find rules by it, of which so many have it.
    ///
    /// A table is quicker than a tree, and what nearly every value finds is no help.
    pub(super) fn cost(&self, rules: u32) -> u32 {
        const TREE: u32 = 1;
        const BROAD: u32 = 16;
        let broad = match self.key {
            Key::Exact(_) => return rules,
            Key::Prefix(text) | Key::Suffix(text) => text.is_empty(),
            Key::Network(network) => network.prefix_len() == 0,
            Key::Path(segments) => matches!(segments.first(), Some(Segment::Rest)),
        };
        let extra = if broad { BROAD } else { TREE };
        rules.saturating_mul(2).saturating_add(extra)
    }
}

/// Whether an anchor is all that its test asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whole(pub(super) bool);
