//! Paths and templates: any path has one normal form, which is its own normal form, and a template
//! matches it as the words of the template say.
//!
//! The input is a template in the first line and a path in the rest.

use std::borrow::Cow;

use tidegate_rules::glob::Glob;
use tidegate_rules::path::{PathTemplate, normalise};

/// The longest pattern and value that the slow model of globs is asked about.
const GLOB_BYTES_MAX: usize = 200;

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let (first, rest) = split_line(data);
    let normal = check_normal(rest);
    check_normal(first);
    let Ok(text) = std::str::from_utf8(first) else { return };
    match PathTemplate::parse(text) {
        Ok(template) => {
            assert_eq!(template.as_str(), text);
            let expected = matches_slowly(text, &normal);
            assert_eq!(template.matches(&normal), expected, "{text:?} on {}", shown(&normal));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if text.len() <= GLOB_BYTES_MAX && rest.len() <= GLOB_BYTES_MAX {
        let expected = fits_slowly(text.as_bytes(), rest);
        assert_eq!(Glob::new(text).matches(rest), expected, "{text:?} on {}", shown(rest));
    }
}

/// The normal form of a path, after a look at what makes it one.
fn check_normal(path: &[u8]) -> Vec<u8> {
    let normal = normalise(path).into_owned();
    let (before, after) = (shown(path), shown(&normal));
    assert!(normal.starts_with(b"/"), "{before} becomes {after}, which begins without a slash");
    for segment in normal[1..].split(|byte| *byte == b'/') {
        let is_root = normal.len() == 1;
        assert!(is_root || !segment.is_empty(), "{before} becomes {after} with an empty segment");
        assert!(!matches!(segment, b"." | b".."), "{before} becomes {after} with a dot segment");
    }
    let never = |byte: &u8| byte.is_ascii_control() || matches!(byte, b'?' | b'#' | b';' | b'\\');
    assert!(!normal.iter().any(never), "{before} becomes {after}");
    let twice = normalise(&normal);
    assert_eq!(*twice, *normal, "{before} becomes {after}, and that becomes {}", shown(&twice));
    normal
}

/// Segment by segment. The template is known to be a good one.
fn matches_slowly(template: &str, normal: &[u8]) -> bool {
    let places: Vec<&[u8]> = segments(template.as_bytes());
    let path: Vec<&[u8]> = segments(normal);
    let (places, takes_rest) = match places.split_last() {
        Some((&last, before)) if last == b"**" => (before, true),
        _ => (&places[..], false),
    };
    let long_enough =
        if takes_rest { path.len() >= places.len() } else { path.len() == places.len() };
    let fits = |(place, segment): (&&[u8], &&[u8])| {
        *place == b"*" || place.starts_with(b"{") || place == segment
    };
    long_enough && places.iter().zip(&path).all(fits)
}

fn segments(path: &[u8]) -> Vec<&[u8]> {
    path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).collect()
}

/// Whether `value` has the shape of `pattern`, by trying every length for every `*`: a table of
/// which beginnings of the value fit the pattern so far.
fn fits_slowly(pattern: &[u8], value: &[u8]) -> bool {
    let mut fits = vec![false; value.len() + 1];
    fits[0] = true;
    for place in pattern {
        if *place == b'*' {
            let first = fits.iter().position(|fit| *fit).unwrap_or(fits.len());
            fits[first..].fill(true);
        } else {
            for at in (1..fits.len()).rev() {
                fits[at] = fits[at - 1] && value[at - 1] == *place;
            }
            fits[0] = false;
        }
    }
    fits[value.len()]
}

fn split_line(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&data[..end], &data[end + 1..]),
        None => (b"/", data),
    }
}

fn shown(bytes: &[u8]) -> Cow<'_, str> {
    bytes.escape_ascii().to_string().into()
}
