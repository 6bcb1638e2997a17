//! No limiter: some multiplications in registers, as many as keep a core busy. What two
//! threads of it give against one is what the machine has to give, so the others are to be read beside it.

use std::error::Error;
use std::hint::black_box;

use super::{Contender, Quota};
use crate::random::mix;

/// Allows everything.
pub(crate) struct Arithmetic;

/// Enough that the loop around it does not count.
const STEPS: usize = 8;

impl Contender for Arithmetic {
    type Key = [u8; 16];
    const NAME: &'static str = "no limiter, arithmetic";

    fn new(_quota: Quota, _keys: u32) -> Result<Self, Box<dyn Error>> {
        Ok(Self)
    }

    #[inline]
    fn check(&self, key: &[u8; 16]) -> bool {
        let start = u64::from(key[0]);
        black_box((0..STEPS).fold(start, |number, _| mix(number)));
        true
    }
}
