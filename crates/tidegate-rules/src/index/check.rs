//! One condition, ready to be tested against a request.

use std::hash::{Hash, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::anchor::{Anchor, Whole};
use super::lookup::Lookup;
use super::names::AttributeId;
use super::shape::Shape;
use super::view::View;
use super::words::Words;
use crate::rule::Condition;

/// A condition of a rule.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) id: AttributeId,
    pub(super) negated: bool,
    /// What the value must be, where that is one short text, as it mostly is.
    only: Option<Words>,
    shapes: Shapes,
}

/// One of these must fit.
#[derive(Debug)]
enum Shapes {
    One(Shape),
    Few(Box<[Shape]>),
    /// So many that they are to be looked up.
    Long(Box<[Shape]>),
    /// So many that they are looked up.
    Many(Box<Many>),
}

/// A piece of the list of shapes that are still to be tested. An empty one has been passed.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    len: u32,
}

/// Long lists.
#[derive(Debug)]
struct Many {
    shapes: Box<[Shape]>,
    lookup: Lookup<Piece>,
    /// The shapes behind the anchors that are not whole, by number.
    open: Vec<u32>,
}

impl Check {
    /// The longest list that is tested one by one.
    const FEW: usize = 8;

    pub(super) fn new(id: AttributeId, condition: &Condition) -> Self {
        let mut shapes =
            condition.any_of.iter().map(|test| Shape::new(id, &condition.attribute, test));
        let shapes = match (condition.any_of.len(), shapes.next()) {
            (1, Some(shape)) => Shapes::One(shape),
            (len, first) => {
                let all = first.into_iter().chain(shapes).collect();
                if len <= Self::FEW { Shapes::Few(all) } else { Shapes::Long(all) }
            }
        };
        let only = match &shapes {
            Shapes::One(Shape::Exact(text)) => Words::new(0, text),
            _ => None,
        };
        Self { id, negated: condition.negated, only, shapes }
    }

    /// Makes a long list quick to look up, once it is known that there is no other like it.
    pub(super) fn settle(&mut self) {
        if let Shapes::Long(shapes) = &mut self.shapes {
            let many = Many::new(self.id, std::mem::take(shapes));
            self.shapes = Shapes::Many(Box::new(many));
        }
    }

    /// Whether it holds for the request.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one call less for rules with one more condition")]
    pub(super) fn holds(&self, view: &View<'_>) -> bool {
        let Some(bytes) = view.value(self.id) else { return self.negated };
        match self.only {
            Some(only) => (Words::new(0, bytes) == Some(only)) != self.negated,
            None => self.holds_for(view, bytes),
        }
    }

    /// Whether it holds for a value.
    #[inline(never)]
    fn holds_for(&self, view: &View<'_>, bytes: &[u8]) -> bool {
        let one_holds = match &self.shapes {
            Shapes::One(shape) => shape.holds(view, self.id, bytes),
            Shapes::Few(shapes) | Shapes::Long(shapes) => {
                shapes.iter().any(|shape| shape.holds(view, self.id, bytes))
            }
            Shapes::Many(many) => many.holds(view, self.id, bytes),
        };
        one_holds != self.negated
    }

    /// What it compares values with.
    pub(super) fn shapes(&self) -> &[Shape] {
        match &self.shapes {
            Shapes::One(shape) => std::slice::from_ref(shape),
            Shapes::Few(shapes) | Shapes::Long(shapes) => shapes,
            Shapes::Many(many) => &many.shapes,
        }
    }

    /// Whether it needs the attribute `ip` as a network.
    pub(super) fn wants_network(&self) -> bool {
        self.id == AttributeId::IP
            && self.shapes().iter().any(|shape| matches!(shape, Shape::Network(_)))
    }
}

/// What is tested, whatever it is tested with.
impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.negated, self.shapes()) == (other.id, other.negated, other.shapes())
    }
}

impl Hash for Check {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.id, self.negated, self.shapes()).hash(state);
    }
}

impl Many {
    fn new(id: AttributeId, shapes: Box<[Shape]>) -> Self {
        let mut groups: HashMap<Anchor<'_>, Vec<u32>, FixedState> = HashMap::default();
        for (number, shape) in (0..).zip(&shapes) {
            let (anchor, Whole(whole)) = Anchor::new(id, shape);
            match (groups.entry(anchor), whole) {
                // An empty list stands for a test that has been passed.
                (Entry::Occupied(mut known), true) => known.get_mut().clear(),
                (Entry::Occupied(mut known), false) if !known.get().is_empty() => {
                    known.get_mut().push(number);
                }
                (Entry::Occupied(_), false) => {}
                (Entry::Vacant(free), true) => drop(free.insert(Vec::new())),
                (Entry::Vacant(free), false) => drop(free.insert(vec![number])),
            }
        }
        let mut open = Vec::new();
        let pieces: Vec<_> = groups
            .into_iter()
            .map(|(anchor, numbers)| {
                let piece = Piece { start: open.len() as u32, len: numbers.len() as u32 };
                open.extend(numbers);
                (anchor, piece)
            })
            .collect();
        let lookup = Lookup::new(&pieces);
        Self { shapes, lookup, open }
    }

    fn holds(&self, view: &View<'_>, id: AttributeId, bytes: &[u8]) -> bool {
        let mut holds = false;
        self.lookup.each(view, id, bytes, |&Piece { start, len }| {
            let open = &self.open[start as usize..(start + len) as usize];
            let passes = |&number: &u32| self.shapes[number as usize].holds(view, id, bytes);
            holds = holds || open.is_empty() || open.iter().any(passes);
        });
        holds
    }
}
