//! Path templates, segment by segment: all that a path matches. Paths come in normal form: they begin with a slash,
//! and no segment is empty.

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
    start: Way<P>,
    /// From a node by a segment.
    edges: Table<Way<P>>,
    /// From a node by any segment.
    places: Vec<Way<P>>,
    /// How templates go on from where each is the only one.
    tails: Vec<u8>,
}

/// How a path goes on.
#[derive(Clone, Copy, Debug)]
enum Way<P> {
    /// By way of this node.
    Node(u32),
    /// As one template alone does, whose payload lies here, where it is found at once. The rest of it is a piece of the
    /// tails.
    Only { tail: u32, payload: P },
}

/// Where templates part or end. They are small so that several share a cache line.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The way by any segment: a number of a place.
    place: u32,
    /// For paths that end here: the number of a payload.
    end: u32,
    /// For paths that end here or further on.
    rest: u32,
    has_edges: bool,
    /// Whether there is nothing else, not even an end: then nothing else is looked for.
    has_edges_only: bool,
}

impl Node {
    const NONE: u32 = u32::MAX;

    /// Whether it does not matter how a path goes on.
    #[inline]
    fn is_last(&self) -> bool {
        !self.has_edges && self.place == Self::NONE && self.end == Self::NONE
    }
}

/// A path may lead to several payloads, because there is more than one way to go or one has more than one
/// end: all ways have to be gone.
struct Several;

/// Where a path leads: to one payload at most, or to several.
type Lead<'s, P> = Result<Option<&'s P>, Several>;

/// What a path is asked for after a text, as a byte. A tail is made of steps: this byte, the length of the text in three
/// bytes, and the text, which is all literals up to the next place, with the slashes between them and before the place. So
/// nearly every tail is one step, and one comparison.
mod then {
    /// That it ends.
    pub(super) const END: u8 = 0;
    /// That it ends or has a slash there.
    pub(super) const END_OR_SLASH: u8 = 1;
    /// One segment, and that it ends.
    pub(super) const ONE_AND_END: u8 = 2;
    /// One segment at least.
    pub(super) const ONE_AND_REST: u8 = 3;
    /// One segment, a slash and the next step.
    pub(super) const ONE_AND_MORE: u8 = 4;
    /// Nothing.
    pub(super) const REST: u8 = 5;
}

impl<P: Copy> Trie<P> {
    /// Templates that are all different.
    pub(super) fn new(templates: &[(&[Segment], P)]) -> Self {
        let mut builder = Builder::default();
        builder.add_node();
        for (number, (segments, _)) in (0..).zip(templates) {
            builder.insert(segments, number);
        }
        let payloads: Vec<P> = templates.iter().map(|&(_, payload)| payload).collect();
        let mut ways: Vec<_> = (0..builder.nodes.len() as u32).map(Way::Node).collect();
        for ((segments, _), &payload) in templates.iter().zip(&payloads) {
            if let Some((at, tail)) = builder.cut(segments) {
                ways[at as usize] = Way::Only { tail, payload };
            }
        }
        let Builder { mut nodes, edges: list, places, tails, .. } = builder;
        for node in &mut nodes {
            let others = [node.place, node.end, node.rest];
            node.has_edges_only = node.has_edges && others == [Node::NONE; 3];
        }
        let mut edges = Table::default();
        for (from, segment, to) in list {
            edges.insert(from, segment, ways[to as usize]);
        }
        let places = places.iter().map(|&to| ways[to as usize]).collect();
        Self { nodes, payloads, start: ways[0], edges, places, tails }
    }

    /// Calls with each template that the path matches.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every path comes by one of few callers")]
    pub(super) fn each<'s>(&'s self, path: &[u8], mut visit: impl FnMut(&'s P)) {
        match self.only(path) {
            Ok(payload) => payload.into_iter().for_each(visit),
            Err(Several) => self.each_way(path, &mut visit),
        }
    }

    /// The payload that the path leads to, where there is one at most.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "there is one caller, and every path comes by")]
    fn only(&self, path: &[u8]) -> Lead<'_, P> {
        // Mostly the first segment tells all templates but one apart.
        if let Way::Node(at) = self.start
            && self.nodes[at as usize].has_edges_only
        {
            let Some(segment) = next_segment(path, 1) else { return Ok(None) };
            let from = segment.end + 1;
            return match self.edges.find(at, &path[segment]) {
                Some(Way::Only { tail, payload }) => {
                    Ok(self.goes_on(*tail, path, from).then_some(payload))
                }
                Some(way) => self.only_from(way, path, from),
                None => Ok(None),
            };
        }
        self.only_from(&self.start, path, 1)
    }

    /// The same from some way on.
    #[inline(never)]
    fn only_from<'s>(&'s self, way: &'s Way<P>, path: &[u8], from: usize) -> Lead<'s, P> {
        let (mut way, mut from) = (way, from);
        loop {
            let at = match way {
                Way::Only { tail, payload } => {
                    return Ok(self.goes_on(*tail, path, from).then_some(payload));
                }
                Way::Node(at) => *at,
            };
            let node = &self.nodes[at as usize];
            if node.rest != Node::NONE {
                return if node.is_last() { Ok(self.payload(node.rest)) } else { Err(Several) };
            }
            let Some(segment) = next_segment(path, from) else { return Ok(self.payload(node.end)) };
            from = segment.end + 1;
            let edge = if node.has_edges { self.edges.find(at, &path[segment]) } else { None };
            way = match (edge, self.places.get(node.place as usize)) {
                (Some(way), None) | (None, Some(way)) => way,
                (Some(_), Some(_)) => return Err(Several),
                (None, None) => return Ok(None),
            };
        }
    }

    /// Calls with each template that the path matches, whichever way.
    ///
    /// Both a literal and a place may fit a segment. Then one way is gone and the other is kept for
    /// later; there are at most as many ways as templates that begin like the path.
    #[inline(never)]
    fn each_way<'s>(&'s self, path: &[u8], visit: &mut impl FnMut(&'s P)) {
        let mut open: SmallVec<[(&'s Way<P>, usize); 4]> = SmallVec::new();
        open.push((&self.start, 1));
        while let Some((way, from)) = open.pop() {
            let at = match way {
                Way::Only { tail, payload } => {
                    if self.goes_on(*tail, path, from) {
                        visit(payload);
                    }
                    continue;
                }
                Way::Node(at) => *at,
            };
            let node = &self.nodes[at as usize];
            self.payload(node.rest).into_iter().for_each(&mut *visit);
            if node.is_last() {
                continue;
            }
            let Some(segment) = next_segment(path, from) else {
                self.payload(node.end).into_iter().for_each(&mut *visit);
                continue;
            };
            let from = segment.end + 1;
            let edge = if node.has_edges { self.edges.find(at, &path[segment]) } else { None };
            let place = self.places.get(node.place as usize);
            open.extend(place.into_iter().chain(edge).map(|way| (way, from)));
        }
    }

    /// Whether a path goes on as the tail that begins there says.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nearly every path ends in one")]
    fn goes_on(&self, tail: u32, path: &[u8], from: usize) -> bool {
        match self.after_text(tail, path, from) {
            Some((then::ONE_AND_END, end, _)) => is_segment(path, end),
            Some((then::REST, ..)) => true,
            Some(step) => self.goes_on_after(step, path),
            None => false,
        }
    }

    /// The same after the text of the first step. Apart, so that there is little code around what is common.
    #[inline(never)]
    fn goes_on_after(&self, step: (u8, usize, u32), path: &[u8]) -> bool {
        let (mut then, mut end, mut tail) = step;
        loop {
            match then {
                then::END => return end == path.len(),
                then::END_OR_SLASH => return path.get(end).is_none_or(|&byte| byte == b'/'),
                then::ONE_AND_END => return is_segment(path, end),
                then::ONE_AND_REST => return end < path.len(),
                // One segment and more. That nothing is asked for stands in a first step alone.
                _ => debug_assert_eq!(then, then::ONE_AND_MORE),
            }
            let next = self.after_text(tail, path, segment_end(path, end) + 1);
            let Some(step) = next else { return false };
            (then, end, tail) = step;
        }
    }

    /// Where a path goes on as the text of a step says: what is asked for then, where the text ends, and where the
    /// next step is.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what it hands back would pass through memory")]
    fn after_text(&self, tail: u32, path: &[u8], from: usize) -> Option<(u8, usize, u32)> {
        let (head, after) = self.tails[tail as usize..].split_first_chunk()?;
        let head = u32::from_le_bytes(*head);
        let (then, len) = (head as u8, head >> 8);
        let text = &after[..len as usize];
        let end = from + text.len();
        let is_same = len == 0 || is_same(path.get(from..end)?, text);
        is_same.then_some((then, end, tail + 4 + len))
    }

    #[inline]
    fn payload(&self, number: u32) -> Option<&P> {
        self.payloads.get(number as usize)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }
}

/// A tree that is being made, of templates by number.
#[derive(Default)]
struct Builder<'t> {
    nodes: Vec<Node>,
    /// How many templates come by at each node.
    passing: Vec<u32>,
    edges: Vec<(u32, &'t [u8], u32)>,
    /// The nodes after those edges.
    after: Table<u32>,
    /// The nodes after any segment.
    places: Vec<u32>,
    tails: Vec<u8>,
}

impl<'t> Builder<'t> {
    fn insert(&mut self, segments: &'t [Segment], number: u32) {
        let mut at = 0;
        self.passing[0] += 1;
        for segment in segments {
            at = match segment {
                Segment::Literal(text) => self.edge(at, text),
                Segment::One => self.place(at),
                Segment::Rest => {
                    self.nodes[at as usize].rest = number;
                    return;
                }
            };
            self.passing[at as usize] += 1;
        }
        self.nodes[at as usize].end = number;
    }

    /// The first node where a template is the only one, and where the rest of it is written, so that it is compared as
    /// it is. None where it ends before that.
    fn cut(&mut self, segments: &[Segment]) -> Option<(u32, u32)> {
        let mut at = 0;
        for (index, segment) in segments.iter().enumerate() {
            if self.passing[at as usize] == 1 {
                return Some((at, self.add_tail(&segments[index..])?));
            }
            at = match segment {
                Segment::Literal(text) => *self.after.find(at, text)?,
                Segment::One => *self.places.get(self.nodes[at as usize].place as usize)?,
                Segment::Rest => return None,
            };
        }
        None
    }

    /// Where the segments are written; not, where a text is too long for its length.
    fn add_tail(&mut self, segments: &[Segment]) -> Option<u32> {
        let start = self.tails.len();
        let mut segments = segments;
        while !segments.is_empty() {
            let Some(after) = self.add_step(segments) else {
                self.tails.truncate(start);
                return None;
            };
            segments = after;
        }
        u32::try_from(start).ok()
    }

    /// Writes all literals that come first, and what follows them; hands back what is left.
    fn add_step<'s>(&mut self, segments: &'s [Segment]) -> Option<&'s [Segment]> {
        let mut text = Vec::new();
        let mut left = segments;
        while let [Segment::Literal(literal), after @ ..] = left {
            text.extend(&**literal);
            // Below a literal there may be no slash.
            if !matches!(after, [] | [Segment::Rest]) {
                text.push(b'/');
            }
            left = after;
        }
        let (then, left) = match left {
            [] => (then::END, left),
            [Segment::One] => (then::ONE_AND_END, &left[1..]),
            [Segment::One, Segment::Rest] => (then::ONE_AND_REST, &left[2..]),
            [Segment::One, after @ ..] => (then::ONE_AND_MORE, after),
            _ if text.is_empty() => (then::REST, &left[1..]),
            _ => (then::END_OR_SLASH, &left[1..]),
        };
        let [low, middle, high, 0] = u32::try_from(text.len()).ok()?.to_le_bytes() else {
            return None;
        };
        self.tails.extend([then, low, middle, high]);
        self.tails.extend(text);
        Some(left)
    }

    fn add_node(&mut self) -> u32 {
        let number = self.nodes.len() as u32;
        let (place, end, rest) = (Node::NONE, Node::NONE, Node::NONE);
        self.nodes.push(Node { place, end, rest, has_edges: false, has_edges_only: false });
        self.passing.push(0);
        number
    }

    fn place(&mut self, from: u32) -> u32 {
        if let Some(&known) = self.places.get(self.nodes[from as usize].place as usize) {
            return known;
        }
        let to = self.add_node();
        self.nodes[from as usize].place = self.places.len() as u32;
        self.places.push(to);
        to
    }

    fn edge(&mut self, from: u32, segment: &'t [u8]) -> u32 {
        if let Some(&known) = self.after.find(from, segment) {
            return known;
        }
        let to = self.add_node();
        self.after.insert(from, segment, to);
        self.edges.push((from, segment, to));
        self.nodes[from as usize].has_edges = true;
        to
    }
}

/// The segment that begins there, if the path goes on.
#[inline]
fn next_segment(path: &[u8], from: usize) -> Option<Range<usize>> {
    (from < path.len()).then(|| from..segment_end(path, from))
}

/// Where the next slash is, or the end, looking at eight bytes at a time.
#[inline]
fn segment_end(path: &[u8], start: usize) -> usize {
    let (words, rest) = path.get(start..).unwrap_or_default().as_chunks();
    let mut at = start;
    for eight in words {
        let slashes = slashes(u64::from_le_bytes(*eight));
        if slashes != 0 {
            return at + slashes.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let len = match last_word(path, rest.len()) {
        Some(word) => slashes(word).trailing_zeros() as usize / 8,
        None => rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()),
    };
    path.len() - rest.len() + len.min(rest.len())
}

/// Whether all that is left of the path is one segment.
#[inline(always)]
#[expect(clippy::inline_always, reason = "shorter than what a call would keep in memory")]
fn is_segment(path: &[u8], from: usize) -> bool {
    if from >= path.len() {
        return false;
    }
    match last_word(path, path.len() - from) {
        Some(word) => slashes(word) == 0,
        None => is_long_segment(path, from),
    }
}

/// The same where more than a word is left, or the path is shorter than a word.
#[inline(never)]
fn is_long_segment(path: &[u8], from: usize) -> bool {
    segment_end(path, from) == path.len()
}

/// The last bytes of a path, at most eight and at least one, with zeros above them: what comes in there is no slash.
/// None where it is another number of bytes, or the path has less than eight.
#[inline]
fn last_word(path: &[u8], len: usize) -> Option<u64> {
    match path.last_chunk() {
        Some(eight) if (1..=8).contains(&len) => Some(u64::from_le_bytes(*eight) >> (64 - 8 * len)),
        _ => None,
    }
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
    use crate::path::{PathTemplate, normalise};

    fn is_found(template: &str, path: &str) -> bool {
        let template = PathTemplate::parse(template).unwrap();
        let trie = Trie::new(&[(template.segments(), ())]);
        let mut found = false;
        trie.each(path.as_bytes(), |()| found = true);
        found
    }

    #[test]
    fn every_end_of_a_tail_is_asked_for() {
        for (template, paths, others) in [
            ("/ab", &["/ab"][..], &["/a", "/abc", "/ab/c", "/"][..]),
            ("/ab/**", &["/ab", "/ab/c", "/ab/c/d"], &["/a", "/abc", "/abc/d", "/"]),
            ("/ab/*", &["/ab/c", "/ab/a-long-segment"], &["/ab", "/ab/c/d", "/abc/d"]),
            ("/ab/*/**", &["/ab/c", "/ab/c/d"], &["/ab", "/abc"]),
            ("/ab/*/c", &["/ab/x/c", "/ab/a-long-segment/c"], &["/ab/x", "/ab/x/c/d", "/ab/x/cd"]),
            ("/ab/*/*/c/**", &["/ab/x/y/c", "/ab/x/y/c/d"], &["/ab/x/c", "/ab/x/y/cd"]),
            ("/**", &["/", "/a", "/a/b"], &[]),
        ] {
            for path in paths {
                assert!(is_found(template, path), "{template} {path}");
            }
            for path in others {
                assert!(!is_found(template, path), "{template} {path}");
            }
        }
    }

    #[test]
    fn texts_of_any_length_are_compared_whole() {
        for len in [255, 256, 65_535, 65_536, (1 << 24) - 2, 1 << 24] {
            let segment = "a".repeat(len);
            let template = [Segment::Literal(segment.as_bytes().into()), Segment::One];
            let trie = Trie::new(&[(&template[..], ())]);
            let is_found = |path: String| {
                let mut found = false;
                trie.each(path.as_bytes(), |()| found = true);
                found
            };
            assert!(is_found(format!("/{segment}/x")), "{len}");
            assert!(!is_found(format!("/{}b/x", &segment[1..])), "{len}");
            assert!(!is_found(format!("/{}/x", &segment[1..])), "{len}");
        }
    }

    proptest! {
        #[test]
        fn segments_are_split_at_every_slash(path in prop::collection::vec(prop::sample::select(&b"/.0a\xaf\x80\0\xff"[..]), 0..40)) {
            let path = normalise(&path);
            let mut segments = Vec::new();
            let mut from = 1;
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
            path in "/|(/[abc]){1,6}",
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
        /// in different ways.
        #[test]
        fn the_only_way_leads_where_all_ways_lead(
            templates in prop::collection::btree_set(
                "(/(a|ab|abcd|ab{7}|ab{8}|ab{15}|ab{16}|\\*)){1,3}(/\\*\\*)?", 0..5),
            path in "/|(/(a|ab|abce|ab{6}c|ab{7}|ab{8}|ab{15}|ab{16})){1,4}",
        ) {
            let templates: Vec<_> =
                templates.iter().map(|text| PathTemplate::parse(text).unwrap()).collect();
            let numbered: Vec<_> =
                (0..).zip(&templates).map(|(number, one)| (one.segments(), number)).collect();
            let trie: Trie<usize> = Trie::new(&numbered);
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            trie.each(path.as_bytes(), |&number| found.push(number));
            trie.each_way(path.as_bytes(), &mut |&number| expected.push(number));
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&found, &expected);
            let matches = |number: &usize| templates[*number].matches(path.as_bytes());
            let expected: Vec<_> = (0..templates.len()).filter(matches).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
