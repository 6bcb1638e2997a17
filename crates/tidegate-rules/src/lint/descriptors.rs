//! Levels of Envoy's descriptors that no request reaches: a pattern is looked for in the order of the
//! file, so one behind a pattern that takes all of its values is never found.

use std::collections::BTreeMap;

use crate::diagnostic::{Problems, quoted};
use crate::glob::Glob;
use crate::rule::{Descriptor, DescriptorValue};

/// With how many earlier patterns of its level one is compared, so that the work stays linear. Levels
/// with so many patterns are written by programs, which make other mistakes.
const COMPARED_MAX: usize = 64;

pub(super) fn lint(level: &[Descriptor], problems: &mut Problems) {
    let mut patterns: BTreeMap<&str, Vec<&Glob>> = BTreeMap::new();
    for descriptor in level {
        if let DescriptorValue::Glob(glob) = &descriptor.value {
            let earlier = patterns.entry(&descriptor.key).or_default();
            report_if_taken(descriptor, glob.as_str(), earlier, problems);
            if earlier.len() < COMPARED_MAX {
                earlier.push(glob);
            }
        }
    }
    for descriptor in level {
        // Any value is looked for behind all patterns, wherever it is in the file.
        if descriptor.value == DescriptorValue::Any {
            let patterns = patterns.get(descriptor.key.as_str()).map_or(&[][..], Vec::as_slice);
            report_if_taken(descriptor, "*", patterns, problems);
        }
        lint(&descriptor.children, problems);
    }
}

/// Reports `descriptor`, which takes the values of `pattern`, if one of `earlier` takes them all.
fn report_if_taken(
    descriptor: &Descriptor,
    pattern: &str,
    earlier: &[&Glob],
    problems: &mut Problems,
) {
    // A `*` of the pattern stands for anything, and only a `*` of the other takes that; to the text
    // around a `*` it is a byte that is never there.
    let Some(taker) = earlier.iter().find(|glob| glob.matches(pattern.as_bytes())) else {
        return;
    };
    let key = quoted(&descriptor.key);
    let taker = quoted(taker.as_str());
    let message = match descriptor.value {
        DescriptorValue::Any => format!("{key} without a value is never reached"),
        DescriptorValue::Exact(_) | DescriptorValue::Glob(_) => {
            format!("{key} with the value {} is never reached", quoted(pattern))
        }
    };
    problems.warning(descriptor.place, message).help =
        Some(format!("the value {taker} takes all of its requests; put it behind, or remove one"));
}
