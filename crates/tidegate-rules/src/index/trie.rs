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
    #[inline]
    pub(super) fn each(&self, path: &[u8], mut visit: impl FnMut(P)) {
        let mut later: SmallVec<[(u32, &[u8]); 4]> = SmallVec::new();
        let mut way = Some((0, path));
        while let Some((at, path)) = way {
            way = self.step(at, path, &mut later, &mut visit).or_else(|| later.pop());
        }
    }

    /// Goes on from a node by the first segment of what is left of the path.
    #[inline]
    fn step<'p>(
        &self,
        at: u32,
        path: &'p [u8],
        later: &mut SmallVec<[(u32, &'p [u8]); 4]>,
        visit: &mut impl FnMut(P),
    ) -> Option<(u32, &'p [u8])> {
        let node = &self.nodes[at as usize];
        self.payload(node.rest).into_iter().for_each(&mut *visit);
        let Some((segment, path)) = split_segment(path) else {
            self.payload(node.end).into_iter().for_each(visit);
            return None;
        };
        let any = (node.one != Node::NONE).then_some((node.one, path));
        let edge = if node.has_edges { self.edges.find(at, segment) } else { None };
        let Some(to) = edge else { return any };
        later.extend(any);
        Some((to, path))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    fn payload(&self, number: u32) -> Option<P> {
        self.payloads.get(number as usize).copied()
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

/// The first segment that is not empty, and the path after it.
#[inline]
fn split_segment(mut path: &[u8]) -> Option<(&[u8], &[u8])> {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    (end > 0).then(|| path.split_at(end))
}
