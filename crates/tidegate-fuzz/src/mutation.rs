//! Inputs that are nearly right: a seed with a few changes, the same ones for the same number.
//!
//! It is blind, unlike a fuzzer led by coverage. It finds what a few slips of the fingers find.

/// The most changes that one input gets.
const CHANGES_MAX: u64 = 6;
/// The longest stretch that one change removes, repeats or takes from another seed.
const STRETCH_BYTES_MAX: u64 = 64;
/// The longest input.
pub const INPUT_BYTES_MAX: usize = 1 << 14;

/// Makes inputs from seeds and words.
#[derive(Debug)]
pub struct Mutator<'a> {
    seeds: &'a [Vec<u8>],
    words: &'a [Vec<u8>],
    state: u64,
}

impl<'a> Mutator<'a> {
    /// From these seeds and words; another `number` gives other inputs.
    pub fn new(seeds: &'a [Vec<u8>], words: &'a [Vec<u8>], number: u64) -> Self {
        Self { seeds, words, state: number }
    }

    /// The next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = self.pick(self.seeds).to_vec();
        for _ in 0..=self.below(CHANGES_MAX) {
            self.change(&mut input);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() as u64 + 1) as usize;
        let end = (at + self.below(STRETCH_BYTES_MAX) as usize).min(input.len());
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.below(256) as u8,
            2 => drop(input.drain(at..end)),
            3 => {
                let stretch = input[at..end].to_vec();
                let to = self.below(input.len() as u64 + 1) as usize;
                input.splice(to..to, stretch);
            }
            4 => {
                let other = self.pick(self.seeds);
                let from = self.below(other.len() as u64 + 1) as usize;
                let to = (from + self.below(STRETCH_BYTES_MAX) as usize).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            5 => {
                let word = self.pick(self.words);
                input.splice(at..(at + word.len()).min(input.len()), word.iter().copied());
            }
            _ => {
                let word = self.pick(self.words);
                input.splice(at..at, word.iter().copied());
            }
        }
    }

    /// One of them, or nothing where there are none.
    fn pick(&mut self, of: &'a [Vec<u8>]) -> &'a [u8] {
        let index = self.below(of.len().max(1) as u64) as usize;
        of.get(index).map_or(&[], Vec::as_slice)
    }

    /// A number below `end`, as good as random (`SplitMix64`).
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_gives_the_same_inputs_and_another_others() {
        let (seeds, words) = ([b"domain: api".to_vec(), Vec::new()], [b"rules".to_vec()]);
        let inputs = |number| {
            let mut mutator = Mutator::new(&seeds, &words, number);
            (0..100).map(|_| mutator.input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }

    #[test]
    fn nothing_to_begin_with_is_no_obstacle() {
        let mut mutator = Mutator::new(&[], &[], 3);
        assert!((0..100).all(|_| mutator.input().len() <= INPUT_BYTES_MAX));
    }
}
