//! Whole numbers in as few bytes as they need: seven bits to a byte, the least significant first,
//! with the high bit set on every byte but the last (LEB128).

/// The most bytes that one number takes.
pub(crate) const LEN_MAX: usize = 10;

/// Hands the bytes of `number` to `push`, one after the other.
pub(crate) fn write(mut number: u64, mut push: impl FnMut(u8)) {
    while number >= 0x80 {
        push(number as u8 | 0x80);
        number >>= 7;
    }
    push(number as u8);
}

/// The number that comes next in `bytes`; `None` where they end within it or it exceeds 64 bits.
pub(crate) fn read(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = bytes.next()?;
        let bits = u64::from(byte & 0x7f);
        if bits.leading_zeros() < shift {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_number_reads_back_and_takes_as_few_bytes_as_it_can() {
        for (number, len) in
            [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, LEN_MAX)]
        {
            let mut bytes = Vec::new();
            write(number, |byte| bytes.push(byte));
            assert_eq!(bytes.len(), len);
            assert_eq!(read(&mut bytes.iter().copied()), Some(number));
            bytes.pop();
            assert_eq!(read(&mut bytes.into_iter()), None, "cut short");
        }
    }

    #[test]
    fn a_number_above_64_bits_is_refused() {
        let mut bytes = [0xff; 10];
        bytes[9] = 2;
        assert_eq!(read(&mut bytes.into_iter()), None);
        assert_eq!(read(&mut [0xff; 12].into_iter()), None);
    }
}
