//! Path templates, segment by segment: all that a path matches.

use smallvec::SmallVec;

use super::table::Table;
use crate::path::Segment;

/// A tree of segments.
#[derive(Debug)]
pub(super) struct Trie<P> {
    nodes: Vec<Node>,
    payloads: Vec<P>,
    /// From a node by a segment to the next node.
    edges: Table<u32>,
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
    has_edges: bool,
}

impl Node {
    const NONE: u32 = u32::MAX;
}

impl<P: Copy> Trie<P> {
    pub(super) fn new() -> Self {
        let mut trie = Self { nodes: Vec::new(), payloads: Vec::new(), edges: Table::default() };
        trie.add_node();
        trie
    }

    /// Adds a template that is not there yet.
    pub(super) fn insert(&mut self, segments: &[Segment], payload: P) {
        let number = self.payloads.len() as u32;
        self.payloads.push(payload);
        let mut at = 0;
        for segment in segments {
            at = match segment {
                Segment::Literal(text) => self.edge(at, text),
                Segment::One => self.one(at),
                Segment::Rest => {
                    self.nodes[at as usize].rest = number;
                    return;
                }
            };
        }
        self.nodes[at as usize].end = number;
    }

    /// Calls with each template that the path matches.
    ///
    /// Both a literal and a place may fit a segment. Then one way is gone and the other is kept for
    /// later; there are at most as many ways as templates that begin like the path.
    #[inline(never)]
    pub(super) fn each(&self, path: &[u8], mut visit: impl FnMut(P)) {
        let mut later: SmallVec<[(u32, &[u8]); 4]> = SmallVec::new();
        let (mut at, mut rest) = (0, path.strip_prefix(b"/").unwrap_or(path));
        loop {
            let node = &self.nodes[at as usize];
            self.visit(node.rest, &mut visit);
            let next = if let Some((segment, after)) = split_segment(rest) {
                rest = after;
                let edge = if node.has_edges { self.edges.find(at, segment) } else { None };
                if edge.is_some() && node.one != Node::NONE {
                    later.push((node.one, rest));
                }
                edge.unwrap_or(node.one)
            } else {
                self.visit(node.end, &mut visit);
                Node::NONE
            };
            if next != Node::NONE {
                at = next;
            } else if let Some(way) = later.pop() {
                (at, rest) = way;
            } else {
                return;
            }
        }
    }

    #[inline]
    fn visit(&self, payload: u32, visit: &mut impl FnMut(P)) {
        if payload != Node::NONE {
            visit(self.payloads[payload as usize]);
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
        if let Some(known) = self.edges.find(from, segment) {
            return known;
        }
        let to = self.add_node();
        self.edges.insert(from, segment, to);
        self.nodes[from as usize].has_edges = true;
        to
    }
}

/// The first segment that is not empty, and the path after it and its slash.
#[inline]
fn split_segment(mut path: &[u8]) -> Option<(&[u8], &[u8])> {
    while !path.is_empty() {
        let (segment, rest) = path.split_at(segment_len(path));
        path = rest.get(1..).unwrap_or_default();
        if !segment.is_empty() {
            return Some((segment, path));
        }
    }
    None
}

/// How many bytes there are before the next slash, eight at a time.
#[inline]
fn segment_len(path: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    let mut rest = path;
    while let Some((eight, after)) = rest.split_first_chunk() {
        // Zero where there is a slash. The lowest zero is the lowest byte that borrows when one is
        // taken from each and had not been that high before.
        let word = u64::from_le_bytes(*eight) ^ (ONES * u64::from(b'/'));
        let slashes = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if slashes != 0 {
            return path.len() - rest.len() + slashes.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    path.len() - rest.len() + len
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
            let mut rest = &path[..];
            while let Some((segment, after)) = split_segment(rest) {
                segments.push(segment);
                rest = after;
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
            let mut trie = Trie::new();
            for (number, template) in templates.iter().enumerate() {
                trie.insert(template.segments(), number);
            }
            let mut found = Vec::new();
            trie.each(path.as_bytes(), |number| found.push(number));
            found.sort_unstable();
            let matches = |number: &usize| templates[*number].matches(path.as_bytes());
            let expected: Vec<_> = (0..templates.len()).filter(matches).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
