//! From when until when a certificate is valid. It is the one thing in it that the library for TLS reads and does not
//! tell, and nothing is decided by it: what clients take is for them to say.

use std::time::Duration;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use tidegate::Timestamp;

/// How long before its end a certificate is told of: those that are renewed by themselves are by then.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Tags of DER (X.690, section 8.1.2).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The times of one certificate, both in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: DateTime,
    pub(crate) until: DateTime,
}

/// What is to be said of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Valid,
    /// It is not valid yet.
    Early,
    /// It is valid, and not for long.
    Ending,
    Expired,
}

impl Validity {
    /// Reads it from a certificate (RFC 5280, section 4.1); `None` where that is none.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let (content, _) = element(certificate, SEQUENCE)?;
        let (mut fields, _) = element(content, SEQUENCE)?;
        if let Some((_, rest)) = element(fields, VERSION) {
            fields = rest;
        }
        // A number, an algorithm, and by whom it is.
        for _ in 0..3 {
            (_, _, fields) = any_element(fields)?;
        }
        let (times, _) = element(fields, SEQUENCE)?;
        let (from, times) = time(times)?;
        let (until, _) = time(times)?;
        Some(Self { from, until })
    }

    pub(crate) fn standing(self, now: Timestamp) -> Standing {
        let since = SignedDuration::try_from(Duration::from_micros(now.as_micros()));
        let now = since.ok().and_then(|since| EPOCH.checked_add(since).ok());
        // A clock that shows a year beyond 9999 says nothing.
        let now = now.unwrap_or(DateTime::MAX);
        if now > self.until {
            Standing::Expired
        } else if now < self.from {
            Standing::Early
        } else if self.until.duration_since(now) < SOON {
            Standing::Ending
        } else {
            Standing::Valid
        }
    }

    /// When it ends, in seconds since 1970.
    pub(crate) fn until_s(self) -> i64 {
        self.until.duration_since(EPOCH).as_secs()
    }
}

/// The contents of the first element, and what comes after it; `None` where it has another tag.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    any_element(der).filter(|(found, _, _)| *found == tag).map(|(_, content, rest)| (content, rest))
}

/// The tag and the contents of the first element, and what comes after it.
fn any_element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        // So many bytes of the length follow. None is a length that is not known, and more than three no certificate's.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The first element, which is a time, and what comes after it.
fn time(der: &[u8]) -> Option<(DateTime, &[u8])> {
    let (tag, content, rest) = any_element(der)?;
    let text = content.strip_suffix(b"Z")?;
    if !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |digits: &[u8]| digits.iter().fold(0, |n, digit| n * 10 + i16::from(digit - b'0'));
    let (year, text) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year = number(&text[..2]);
            (if year < 50 { 2000 + year } else { 1900 + year }, &text[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&text[..4]), &text[4..]),
        _ => return None,
    };
    let mut pairs = text.chunks_exact(2).map(|pair| number(pair) as i8);
    let mut next = || pairs.next();
    let time = DateTime::new(year, next()?, next()?, next()?, next()?, next()?, 0).ok()?;
    Some((time, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate that is valid from one day to another.
    fn certificate(from: (i32, u8, u8), until: (i32, u8, u8)) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn day(year: i16, month: i8, day: i8) -> DateTime {
        DateTime::new(year, month, day, 0, 0, 0, 0).unwrap()
    }

    #[test]
    fn a_certificate_says_from_when_until_when_it_is_valid() {
        let der = certificate((2024, 2, 29), (2049, 12, 31));
        let validity = Validity { from: day(2024, 2, 29), until: day(2049, 12, 31) };
        assert_eq!(Validity::of(&der), Some(validity));
        assert_eq!(validity.until_s(), 2_524_521_600);
        // Years beyond 2049 are written in another way.
        let der = certificate((1999, 1, 1), (2050, 1, 1));
        let validity = Validity { from: day(1999, 1, 1), until: day(2050, 1, 1) };
        assert_eq!(Validity::of(&der), Some(validity));
        // What has no end ends then (RFC 5280, section 4.1.2.5).
        assert_eq!(time(b"\x18\x0f99991231235959Z").unwrap().0.to_string(), "9999-12-31T23:59:59");
    }

    #[test]
    fn a_time_that_is_none_is_not_taken_for_one() {
        for wrong in [
            &b"\x17\x0d241301000000Z"[..],
            b"\x17\x0d240230000000Z",
            b"\x17\x0d240101240000Z",
            b"\x17\x0d2401010000+0Z",
            b"\x17\x0c24010100000Z",
            b"\x17\x0d2401010000000",
            b"\x18\x0d240101000000Z",
            b"\x02\x0d240101000000Z",
            b"\x17\x0d24010100000",
            b"\x17\x80",
            b"\x17\x84\x00\x00\x00\x01Z",
            b"\x17",
            b"",
        ] {
            assert_eq!(time(wrong), None, "{wrong:?}");
        }
        assert!(time(b"\x17\x81\x0d240101000000Z").is_some());
    }

    #[test]
    fn a_certificate_is_told_of_two_weeks_before_its_end() {
        let validity = Validity { from: day(2026, 1, 1), until: day(2026, 3, 1) };
        let at = |time: DateTime| {
            let seconds = time.duration_since(EPOCH).as_secs();
            validity.standing(Timestamp::from_secs(seconds.try_into().unwrap()))
        };
        assert_eq!(at(day(2025, 12, 31)), Standing::Early);
        assert_eq!(at(day(2026, 1, 1)), Standing::Valid);
        assert_eq!(at(day(2026, 2, 15)), Standing::Valid);
        assert_eq!(at(day(2026, 2, 16)), Standing::Ending);
        assert_eq!(at(day(2026, 3, 1)), Standing::Ending);
        assert_eq!(at(day(2026, 3, 2)), Standing::Expired);
        assert_eq!(validity.standing(Timestamp::MAX), Standing::Expired);
    }

    #[test]
    fn what_is_no_certificate_says_nothing_and_stops_nobody() {
        let der = certificate((2024, 1, 1), (2025, 1, 1));
        let whole = Validity::of(&der);
        for length in 0..der.len() {
            assert_eq!(Validity::of(&der[..length]), None, "{length}");
        }
        for at in 0..der.len() {
            for bit in 0..8 {
                let mut other = der.clone();
                other[at] ^= 1 << bit;
                let _ = Validity::of(&other);
            }
        }
        assert!(whole.is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_stop_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Validity::of(&bytes);
            let mut der = vec![SEQUENCE, 0x82, 0, 200, SEQUENCE, 0x81, 190];
            der.extend(bytes);
            let _ = Validity::of(&der);
        }
    }
}
