//! Random numbers for the key sequences: a small generator, and Zipf ranks from it. Both are
//! seeded, so every run and every contender sees the same sequence.

/// `SplitMix64`: sixty-four well mixed bits per step, one word of state.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, near enough to uniform for bounds far below 2^64.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u32
    }

    /// A fraction in `[0, 1)`, of 32 bits.
    fn fraction(&mut self) -> f64 {
        f64::from((self.next() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}

/// The mixer of `SplitMix64`: a bijection that spreads neighbouring numbers over all bits.
pub(crate) const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Ranks `1..=count` with a chance proportional to `rank^-exponent`, by rejection-inversion
/// (Hörmann and Derflinger, 1996): no table of a million chances to keep in the cache.
pub(crate) struct Zipf {
    count: f64,
    exponent: f64,
    /// The area from which ranks are drawn, and the shortcut below which none is rejected.
    area_first: f64,
    area_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// The exponent must be above 1.
    pub(crate) fn new(count: u32, exponent: f64) -> Self {
        let mut zipf = Self {
            count: f64::from(count),
            exponent,
            area_first: 0.0,
            area_last: 0.0,
            shortcut: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    /// One rank, from 1.
    #[expect(clippy::cast_sign_loss, reason = "clamped to 1..=count just before")]
    pub(crate) fn sample(&self, random: &mut Random) -> u32 {
        loop {
            let area = self.area_last + random.fraction() * (self.area_first - self.area_last);
            let point = self.area_inverse(area);
            let rank = point.round().clamp(1.0, self.count);
            if rank - point <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u32;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// The integral of `height`.
    fn area(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn area_inverse(&self, area: f64) -> f64 {
        (1.0 + (1.0 - self.exponent) * area).powf(1.0 / (1.0 - self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_ranks_come_as_often_as_the_formula_says() {
        let (count, exponent, draws) = (1000_u32, 1.1_f64, 1_000_000_u32);
        let total: f64 = (1..=count).map(|rank| f64::from(rank).powf(-exponent)).sum();
        let zipf = Zipf::new(count, exponent);
        let mut random = Random::new(7);
        let mut seen = vec![0_u32; count as usize + 1];
        for _ in 0..draws {
            seen[zipf.sample(&mut random) as usize] += 1;
        }
        for rank in [1_u32, 2, 3, 10, 100] {
            let expected = f64::from(rank).powf(-exponent) / total * f64::from(draws);
            let found = f64::from(seen[rank as usize]);
            assert!((found - expected).abs() < 5.0 * expected.sqrt(), "rank {rank}: {found}");
        }
        assert_eq!(seen[0], 0);
    }

    #[test]
    fn uniform_numbers_stay_below_their_bound() {
        let mut random = Random::new(1);
        assert!((0..10_000).all(|_| random.below(7) < 7));
    }
}
