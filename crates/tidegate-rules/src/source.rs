//! Where rule text comes from, and places in it.

/// One text with rules in it: a file that somebody has read, or text from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What messages call it, a path usually.
    pub name: String,
    /// What it holds; YAML or JSON, in UTF-8.
    pub bytes: Vec<u8>,
}

impl Source {
    /// A text under a name.
    pub fn new(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), bytes: bytes.into() }
    }
}

/// A stretch of one line of a source. All places are equal to each other: where a rule was read is
/// no part of what it says.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Place {
    /// Which of the sources, counted from 0.
    pub source: u32,
    /// The line, counted from 1; 0 where there is no line to name, as in an empty file.
    pub line: u32,
    /// The column in characters, counted from 1.
    pub column: u32,
    /// How many characters, 1 at least where there is a line.
    pub length: u32,
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
