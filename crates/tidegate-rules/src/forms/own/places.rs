//! Places inside of scalars: where in the file the part of a limit is that is wrong.

use crate::error::ParseLimitError;
use crate::source::Place;
use crate::tree::Scalar;

/// A scalar as it stands in the file.
pub(super) struct Written<'n> {
    place: Place,
    text: &'n str,
    /// How many characters are before the text, `None` where what is written is not the text
    /// letter by letter, because of escapes or several lines.
    before: Option<u32>,
}

impl<'n> Written<'n> {
    /// `scalar`, which was read at `place`.
    pub(super) fn of(place: Place, scalar: &'n Scalar) -> Self {
        let before = u32::from(!scalar.plain);
        // A text has fewer than 2^32 characters, since a source has fewer bytes.
        let chars = scalar.text.chars().count() as u32;
        let is_literal = place.length == chars + 2 * before;
        Self { place, text: &scalar.text, before: is_literal.then_some(before) }
    }
}

/// The place of the part that `error` is about, or of the whole scalar where that cannot be told.
pub(super) fn within(written: &Written<'_>, error: &ParseLimitError) -> Place {
    let (Some(before), Some(start)) = (written.before, written.text.get(..error.column() - 1))
    else {
        return written.place;
    };
    let column = written.place.column + before + start.chars().count() as u32;
    let length = (error.part().chars().count() as u32).max(1);
    Place { column, length, ..written.place }
}
