//! Path templates, segment by segment: all that a path matches.

use std::ops::Range;

use smallvec::SmallVec;

use super::table::Table;
use super::words::is_same;
use crate::path::Segment;

/// A tree of segments.
#[derive(Debug)]
pub(super) struct Trie<P> {
    nodes: Vec<Node>,
    payloads: Vec<P>,
    /// From a node by a segment to the next node.
    edges: Table<u32>,
    /// How templates go on from where each is the only one.
    tails: Vec<u8>,
}

/// The nodes of one template lie side by side, and are small so that they share a cache line.
#[derive(Debug)]
struct Node {
    /// The node after any segment.
    one: u32,
    /// For paths that end here: the number of a payload.
    end: u32,
    /// For paths that end here or further on.
    rest: u32,
    /// Where the tail of the only template that comes by begins, and the number of its payload.
    tail: u32,
    only: u32,
    has_edges: bool,
}

impl Node {
    const NONE: u32 = u32::MAX;

    /// Whether it does not matter how a path goes on.
    #[inline]
    fn is_last(&self) -> bool {
        !self.has_edges && self.one == Self::NONE && self.end == Self::NONE
    }
}

/// What comes next in a tail, as a byte. After a literal come its length, in two bytes, and its text.
mod next {
    pub(super) const END: u8 = 0;
    pub(super) const LITERAL: u8 = 1;
    pub(super) const ONE: u8 = 2;
    pub(super) const REST: u8 = 3;
}

impl<P: Copy> Trie<P> {
    /// Templates that are all different.
    pub(super) fn new(templates: &[(&[Segment], P)]) -> Self {
        let (payloads, tails) = (Vec::new(), Vec::new());
        let mut trie = Self { nodes: Vec::new(), payloads, edges: Table::default(), tails };
        trie.add_node();
        // How many templates come by at each node.
        let mut passing = vec![0_u32];
        for (segments, payload) in templates {
            trie.insert(segments, *payload, &mut passing);
        }
        for (number, (segments, _)) in (0..).zip(templates) {
            trie.cut(segments, number, &passing);
        }
        trie
    }

    fn insert(&mut self, segments: &[Segment], payload: P, passing: &mut Vec<u32>) {
        let number = self.payloads.len() as u32;
        self.payloads.push(payload);
        let mut at = 0;
        passing[0] += 1;
        for segment in segments {
            at = match segment {
                Segment::Literal(text) => self.edge(at, text),
                Segment::One => self.one(at),
                Segment::Rest => {
                    self.nodes[at as usize].rest = number;
                    return;
                }
            };
            passing.resize(self.nodes.len(), 0);
            passing[at as usize] += 1;
        }
        self.nodes[at as usize].end = number;
    }

    /// Puts what is left of a template where it is the only one, so that it is compared as it is.
    fn cut(&mut self, segments: &[Segment], number: u32, passing: &[u32]) {
        let mut at = 0;
        for (index, segment) in segments.iter().enumerate() {
            if passing[at as usize] == 1 {
                self.add_tail(at, &segments[index..], number);
                return;
            }
            let next = match segment {
                Segment::Literal(text) => self.edges.find(at, text).copied(),
                Segment::One => Some(self.nodes[at as usize].one),
                Segment::Rest => None,
            };
            let Some(next) = next else { return };
            at = next;
        }
    }

    /// A literal that is too long for its length to be written leaves the tree as it is.
    fn add_tail(&mut self, at: u32, segments: &[Segment], number: u32) {
        let start = self.tails.len();
        for segment in segments {
            match segment {
                Segment::Literal(text) => {
                    let Ok(len) = u16::try_from(text.len()) else {
                        self.tails.truncate(start);
                        return;
                    };
                    self.tails.push(next::LITERAL);
                    self.tails.extend(len.to_le_bytes());
                    self.tails.extend(&**text);
                }
                Segment::One => self.tails.push(next::ONE),
                Segment::Rest => self.tails.push(next::REST),
            }
        }
        self.tails.push(next::END);
        let node = &mut self.nodes[at as usize];
        (node.tail, node.only) = (u32::try_from(start).unwrap_or(Node::NONE), number);
    }

    /// Whether a path goes on as the tail that begins there says.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nearly every path ends in one")]
    fn goes_on(&self, tail: u32, path: &[u8], from: usize) -> bool {
        let mut tail = &self.tails[tail as usize..];
        let mut from = from;
        loop {
            let segment = match tail {
                [next::LITERAL, low, high, after @ ..] => {
                    let (text, after) = after.split_at(u16::from_le_bytes([*low, *high]).into());
                    tail = after;
                    literal_segment(path, from, text)
                }
                [next::ONE, after @ ..] => {
                    tail = after;
                    next_segment(path, from)
                }
                [next::REST, ..] => return true,
                _ => return next_segment(path, from).is_none(),
            };
            let Some(segment) = segment else { return false };
            from = segment.end + 1;
        }
    }

    /// Calls with each template that the path matches.
    #[inline]
    pub(super) fn each<'s>(&'s self, path: &[u8], mut visit: impl FnMut(&'s P)) {
        match self.only(path) {
            Some(payload) => self.visit(payload, &mut visit),
            None => self.each_way(path, visit),
        }
    }

    /// The number of the only payload that the path leads to, or [`Node::NONE`]. `None` where it may lead to
    /// several, because there is more than one way to go or one has more than one end: then all ways
    /// have to be gone.
    #[inline]
    fn only(&self, path: &[u8]) -> Option<u32> {
        let (mut at, mut from) = (0, usize::from(path.first() == Some(&b'/')));
        loop {
            let node = &self.nodes[at as usize];
            if node.tail != Node::NONE {
                let goes_on = self.goes_on(node.tail, path, from);
                return Some(if goes_on { node.only } else { Node::NONE });
            }
            if node.rest != Node::NONE {
                return node.is_last().then_some(node.rest);
            }
            let Some(segment) = next_segment(path, from) else { return Some(node.end) };
            from = segment.end + 1;
            let edge = if node.has_edges { self.edges.find(at, &path[segment]) } else { None };
            let edge = edge.copied();
            if edge.is_some() && node.one != Node::NONE {
                return None;
            }
            at = edge.unwrap_or(node.one);
            if at == Node::NONE {
                return Some(Node::NONE);
            }
        }
    }

    /// Calls with each template that the path matches, whichever way.
    ///
    /// Both a literal and a place may fit a segment. Then one way is gone and the other is kept for
    /// later; there are at most as many ways as templates that begin like the path.
    #[inline(never)]
    fn each_way<'s>(&'s self, path: &[u8], mut visit: impl FnMut(&'s P)) {
        let mut later: SmallVec<[(u32, usize); 4]> = SmallVec::new();
        let (mut at, mut from) = (0, usize::from(path.first() == Some(&b'/')));
        loop {
            let node = &self.nodes[at as usize];
            let next = if node.tail == Node::NONE {
                self.visit(node.rest, &mut visit);
                if node.is_last() {
                    Node::NONE
                } else if let Some(segment) = next_segment(path, from) {
                    from = segment.end + 1;
                    let edge =
                        if node.has_edges { self.edges.find(at, &path[segment]) } else { None };
                    let edge = edge.copied();
                    if edge.is_some() && node.one != Node::NONE {
                        later.push((node.one, from));
                    }
                    edge.unwrap_or(node.one)
                } else {
                    self.visit(node.end, &mut visit);
                    Node::NONE
                }
            } else {
                if self.goes_on(node.tail, path, from) {
                    self.visit(node.only, &mut visit);
                }
                Node::NONE
            };
            if next != Node::NONE {
                at = next;
            } else if let Some(way) = later.pop() {
                (at, from) = way;
            } else {
                return;
            }
        }
    }

    #[inline]
    fn visit<'s>(&'s self, payload: u32, visit: &mut impl FnMut(&'s P)) {
        if payload != Node::NONE {
            visit(&self.payloads[payload as usize]);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    fn add_node(&mut self) -> u32 {
        let number = self.nodes.len() as u32;
        self.nodes.push(Node {
            one: Node::NONE,
            end: Node::NONE,
            rest: Node::NONE,
            tail: Node::NONE,
            only: Node::NONE,
            has_edges: false,
        });
        number
    }

    fn one(&mut self, from: u32) -> u32 {
        let known = self.nodes[from as usize].one;
        if known != Node::NONE {
            return known;
        }
        let to = self.add_node();
        self.nodes[from as usize].one = to;
        to
    }

    fn edge(&mut self, from: u32, segment: &[u8]) -> u32 {
        if let Some(&known) = self.edges.find(from, segment) {
            return known;
        }
        let to = self.add_node();
        self.edges.insert(from, segment, to);
        self.nodes[from as usize].has_edges = true;
        to
    }
}

/// Where the first segment from there on is that is not empty.
#[inline]
fn next_segment(path: &[u8], from: usize) -> Option<Range<usize>> {
    let mut start = from;
    while start < path.len() {
        let end = segment_end(path, start);
        if end > start {
            return Some(start..end);
        }
        start += 1;
    }
    None
}

/// The same where that segment is this text, which is neither empty nor has a slash in it: then it
/// need not be known beforehand where it ends.
#[inline]
fn literal_segment(path: &[u8], from: usize, text: &[u8]) -> Option<Range<usize>> {
    let mut start = from;
    while path.get(start) == Some(&b'/') {
        start += 1;
    }
    let end = start + text.len();
    let is_whole = path.get(end).is_none_or(|&byte| byte == b'/');
    (is_same(path.get(start..end)?, text) && is_whole).then_some(start..end)
}

/// Where the next slash is, or the end, looking at eight bytes at a time.
#[inline]
fn segment_end(path: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some((eight, _)) = path.get(at..).and_then(<[u8]>::split_first_chunk) {
        let slashes = slashes(u64::from_le_bytes(*eight));
        if slashes != 0 {
            return at + slashes.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = path.get(at..).unwrap_or_default();
    let len = match path.last_chunk() {
        // The end of the last eight bytes, without those that are not of the rest. What comes in from above
        // is no slash.
        Some(eight) if !rest.is_empty() => {
            let word = u64::from_le_bytes(*eight) >> (64 - 8 * rest.len());
            slashes(word).trailing_zeros() as usize / 8
        }
        _ => rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()),
    };
    path.len() - rest.len() + len.min(rest.len())
}

/// The highest bit of each byte that is a slash, up to the lowest that is. Bits beyond that may be set
/// for other bytes too.
#[inline]
fn slashes(eight: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    // Zero where there is a slash. The lowest zero is the lowest byte that borrows when one is taken
    // from each and had not been that high before.
    let word = eight ^ (ONES * u64::from(b'/'));
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path::PathTemplate;

    proptest! {
        #[test]
        fn segments_are_split_at_every_slash(path in prop::collection::vec(prop::sample::select(&b"/.0a\xaf\x80\0\xff"[..]), 0..40)) {
            let mut segments = Vec::new();
            let mut from = 0;
            while let Some(segment) = next_segment(&path, from) {
                from = segment.end + 1;
                segments.push(&path[segment]);
            }
            let expected: Vec<_> =
                path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()).collect();
            prop_assert_eq!(segments, expected);
        }

        #[test]
        fn finds_all_templates_of_a_path(
            templates in prop::collection::btree_set("(/([ab]|\\*)){1,5}(/\\*\\*)?", 0..30),
            path in "(/[abc]){0,6}",
        ) {
            let templates: Vec<_> =
                templates.iter().map(|text| PathTemplate::parse(text).unwrap()).collect();
            let numbered: Vec<_> =
                (0..).zip(&templates).map(|(number, one)| (one.segments(), number)).collect();
            let trie = Trie::new(&numbered);
            let mut found = Vec::new();
            trie.each(path.as_bytes(), |&number| found.push(number));
            found.sort_unstable();
            let matches = |number: &usize| templates[*number].matches(path.as_bytes());
            let expected: Vec<_> = (0..templates.len()).filter(matches).collect();
            prop_assert_eq!(found, expected);
        }

        /// Few templates, so that there is often one way only, with literals of all lengths that are compared
        /// in different ways, and paths that are not in normal form.
        #[test]
        fn the_only_way_leads_where_all_ways_lead(
            templates in prop::collection::btree_set(
                "(/(a|ab|abcd|ab{7}|ab{8}|ab{15}|ab{16}|\\*)){1,3}(/\\*\\*)?", 0..5),
            path in "(/{1,2}(a|ab|abce|ab{6}c|ab{7}|ab{8}|ab{15}|ab{16})){0,4}/?",
        ) {
            let templates: Vec<_> =
                templates.iter().map(|text| PathTemplate::parse(text).unwrap()).collect();
            let numbered: Vec<_> =
                (0..).zip(&templates).map(|(number, one)| (one.segments(), number)).collect();
            let trie: Trie<usize> = Trie::new(&numbered);
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            trie.each(path.as_bytes(), |&number| found.push(number));
            trie.each_way(path.as_bytes(), |&number| expected.push(number));
            prop_assert_eq!(&found, &expected);
            found.sort_unstable();
            let matches = |number: &usize| templates[*number].matches(path.as_bytes());
            let expected: Vec<_> = (0..templates.len()).filter(matches).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
