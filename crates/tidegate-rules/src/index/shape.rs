//! A test as it is compiled: in the case and normal form of the values that it meets, and in few kinds.

use ipnet::IpNet;
use smallvec::SmallVec;

use super::condition::{exact, folded};
use super::names::AttributeId;
use super::value;
use super::view::View;
use crate::glob::Glob;
use crate::path::PathTemplate;
use crate::rule::Test;

/// Text of a rule. Most are short, and then lie where they are needed.
pub(super) type Text = SmallVec<[u8; 16]>;

/// What a value may be.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Exact(Text),
    Prefix(Text),
    Suffix(Text),
    Glob(Box<Glob>),
    Network(IpNet),
    Path(Box<PathTemplate>),
}

impl Shape {
    pub(super) fn new(id: AttributeId, name: &str, test: &Test) -> Self {
        let folds = matches!(id, AttributeId::HOST | AttributeId::FOLDED_PATH);
        match test {
            Test::Exact(text) => Self::Exact(folded(&exact(name, text), folds).as_ref().into()),
            Test::Prefix(text) => Self::Prefix(folded(text.as_bytes(), folds).as_ref().into()),
            Test::Glob(glob) if folds => {
                Self::of_glob(&Glob::new(&glob.as_str().to_ascii_lowercase()))
            }
            Test::Glob(glob) => Self::of_glob(glob),
            Test::Cidr(network) => Self::Network(value::network(*network)),
            Test::Path(template) if folds => Self::of_template(id, template.to_lowercase()),
            Test::Path(template) => Self::of_template(id, template.clone()),
            Test::Present => Self::Prefix(Text::new()),
        }
    }

    fn of_glob(glob: &Glob) -> Self {
        let (prefix, suffix) = (glob.literal_prefix(), glob.literal_suffix());
        if prefix.len() == glob.as_str().len() {
            Self::Exact(prefix.as_bytes().into())
        } else if suffix.is_empty() && !glob.has_inner() {
            Self::Prefix(prefix.as_bytes().into())
        } else if prefix.is_empty() && !glob.has_inner() {
            Self::Suffix(suffix.as_bytes().into())
        } else {
            Self::Glob(Box::new(glob.clone()))
        }
    }

    /// A template is its own text where there is no place in it. That is so for paths in normal form
    /// only, as other values may have empty segments.
    fn of_template(id: AttributeId, template: PathTemplate) -> Self {
        if id.is_path() && template.is_literal() {
            Self::Exact(template.as_str().as_bytes().into())
        } else {
            Self::Path(Box::new(template))
        }
    }

    /// Whether a value of the attribute passes.
    #[inline]
    pub(super) fn holds(&self, view: &View<'_>, id: AttributeId, bytes: &[u8]) -> bool {
        match self {
            Self::Exact(text) => **text == *bytes,
            Self::Prefix(text) => bytes.starts_with(text),
            Self::Suffix(text) => bytes.ends_with(text),
            Self::Glob(glob) => glob.matches(bytes),
            Self::Network(network) => {
                view.network(id, bytes).is_some_and(|value| network.contains(&value))
            }
            Self::Path(template) => template.matches(bytes),
        }
    }
}
