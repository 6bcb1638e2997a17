//! Which known word was meant by one that is not known. Not a spelling checker: it looks for slips of
//! a finger or two, and would rather say nothing than something far-fetched.

/// Longer words are not compared: no known word is nearly as long.
const WORD_CHARS_MAX: usize = 32;
/// Shorter words are one slip away from too many others.
const WORD_CHARS_MIN: usize = 3;

/// The candidate nearest to `word`, if it is near: one that `word` begins, or one that differs by at
/// most a quarter of its letters.
pub fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let letters: Vec<char> =
        word.chars().flat_map(char::to_lowercase).take(WORD_CHARS_MAX + 1).collect();
    if !(WORD_CHARS_MIN..=WORD_CHARS_MAX).contains(&letters.len()) {
        return None;
    }
    candidates
        .into_iter()
        .filter_map(|candidate| Some((slips(&letters, candidate)?, candidate)))
        .min_by_key(|&(slips, _)| slips)
        .map(|(_, candidate)| candidate)
}

/// Whether one slip at most makes `candidate` into `word`.
pub(crate) fn is_one_slip(word: &str, candidate: &str) -> bool {
    let letters: Vec<char> = word.chars().take(WORD_CHARS_MAX + 1).collect();
    letters.len() <= WORD_CHARS_MAX
        && edit_distance(&letters, &candidate.chars().collect::<Vec<_>>()) <= 1
}

/// How many slips make `candidate` into `word`; `None` where that is too many.
fn slips(word: &[char], candidate: &str) -> Option<usize> {
    let letters: Vec<char> = candidate.chars().collect();
    if letters.len() < WORD_CHARS_MIN {
        return None;
    }
    if letters.starts_with(word) {
        return Some(1);
    }
    let slips = edit_distance(word, &letters);
    (slips <= (letters.len() / 4).max(1)).then_some(slips)
}

/// The fewest letters to insert, remove, replace or swap with their neighbour.
fn edit_distance(a: &[char], b: &[char]) -> usize {
    // Rows of the usual table: `row[j]` is the distance between the first i of `a` and j of `b`.
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 4] = ["s", "minute", "month", "fixed-window"];

    #[test]
    fn a_slip_or_the_beginning_of_a_word_is_recognised() {
        for (word, meant) in [
            ("minuet", "minute"),
            ("Minut", "minute"),
            ("mnth", "month"),
            ("fixed", "fixed-window"),
            ("fixd-windw", "fixed-window"),
        ] {
            assert_eq!(closest(word, WORDS), Some(meant), "{word}");
        }
    }

    #[test]
    fn what_is_far_or_short_or_long_suggests_nothing() {
        for word in ["", "x", "ss", "fortnight", "moot", &"m".repeat(10_000)] {
            assert_eq!(closest(word, WORDS), None, "{word}");
        }
    }

    #[test]
    fn distance_counts_inserts_removals_replacements_and_swaps() {
        let distance = |a: &str, b: &str| {
            let letters = |word: &str| word.chars().collect::<Vec<_>>();
            edit_distance(&letters(a), &letters(b))
        };
        for (a, b, slips) in [
            ("", "abc", 3),
            ("abc", "abc", 0),
            ("acb", "abc", 1),
            ("ac", "abc", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), slips, "{a} {b}");
            assert_eq!(distance(b, a), slips, "{b} {a}");
        }
    }
}
