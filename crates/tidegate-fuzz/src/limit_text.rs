//! Limits as people write them: any text is a limit, which is written and read back as the same, or
//! an error that points into the text.

use tidegate_rules::{describe, parse_limit, parse_period};

/// Text that is no UTF-8 cannot come so far, and is passed over.
///
/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse_limit(text) {
        Ok(limit) => {
            let written = describe(&limit);
            let again = parse_limit(&written);
            assert_eq!(again.as_ref(), Ok(&limit), "{text:?} is written as {written:?}");
        }
        Err(error) => points_into(text, error.column(), &error.to_string()),
    }
    if let Err(error) = parse_period(text) {
        points_into(text, error.column(), &error.to_string());
    }
}

/// Columns are bytes, and one behind the end is where something is missing.
fn points_into(text: &str, column: usize, message: &str) {
    let is_in_it = column > 0 && text.is_char_boundary(column - 1);
    assert!(is_in_it, "column {column} is not in {text:?}: {message}");
}
