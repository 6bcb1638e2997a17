//! What holds for every text.

use proptest::prelude::*;
use tidegate_core::calendar::Zone;
use tidegate_core::{Limit, Rate, Span, TokenBucket};
use tidegate_rules::{
    Algorithm, Alignment, Amount, Field, LimitSpec, ParseLimitError, describe, parse_limit,
    parse_period,
};

/// Parses in every way there is; errors must point into the text.
fn parse_all(text: &str) {
    let check = |error: &ParseLimitError| {
        let at = error.column() - 1;
        assert!(text.is_char_boundary(at), "{text:?}: {error}");
        assert!(error.part().len() <= 41 * "\\u{10ffff}".len(), "{text:?}: {error}");
        assert!(!error.to_string().chars().any(char::is_control), "{text:?}: {error}");
    };
    if let Err(error) = parse_limit(text) {
        check(&error);
    }
    if let Err(error) = parse_period(text) {
        check(&error);
    }
    match text.parse::<LimitSpec>() {
        Ok(spec) => {
            if let Ok(limit) = spec.build() {
                assert_eq!(parse_limit(&describe(&limit)), Ok(limit), "{text:?}");
            }
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text:?}");
        }
        Err(error) => check(&error),
    }
}

fn unit() -> impl Strategy<Value = (&'static str, u64)> {
    prop::sample::select(vec![
        ("us", 1),
        ("µs", 1),
        ("ms", 1_000),
        ("milliseconds", 1_000),
        ("s", 1_000_000),
        ("Sec", 1_000_000),
        ("m", 60_000_000),
        ("minutes", 60_000_000),
        ("h", 3_600_000_000),
        ("HOURS", 3_600_000_000),
        ("d", 86_400_000_000),
        ("day", 86_400_000_000),
        ("weeks", 7 * 86_400_000_000),
        ("month", 30 * 86_400_000_000),
        ("years", 365 * 86_400_000_000),
    ])
}

fn rate() -> impl Strategy<Value = Rate> {
    (1..=Rate::COUNT_MAX, 1..=Rate::PERIOD_MAX.as_micros())
        .prop_map(|(count, period)| Rate::new(count, Span::from_micros(period)).expect("in range"))
}

fn spec() -> impl Strategy<Value = LimitSpec> {
    let amount = prop_oneof![rate().prop_map(Amount::Rate), any::<u64>().prop_map(Amount::AtOnce)];
    let numbers = (any::<Option<u64>>(), any::<Option<u32>>(), any::<Option<u64>>());
    let expiry = prop::option::of((0..=Span::MAX.as_micros()).prop_map(Span::from_micros));
    let algorithm = prop::option::of(prop::sample::select(Algorithm::ALL.to_vec()));
    let alignments =
        vec![Alignment::Clock, Alignment::FirstRequest, Alignment::Calendar(Zone::utc())];
    let alignment = prop::sample::select(alignments);
    (amount, algorithm, numbers, expiry, any::<bool>(), alignment).prop_map(
        |(amount, algorithm, (burst, slots, per_slot), expires_after, stepped, alignment)| {
            let mut spec = LimitSpec::from(amount);
            spec.algorithm = algorithm;
            (spec.burst, spec.slots, spec.per_slot) = (burst, slots, per_slot);
            (spec.expires_after, spec.stepped) = (expires_after, stepped);
            spec.alignment = alignment;
            spec
        },
    )
}

/// Pieces of limits in an order that is mostly wrong.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "/",
            "per",
            "at",
            "once",
            "burst",
            "stepped",
            "slots",
            "per-slot",
            "for",
            "k",
            "M",
            "-",
            "−",
            "_",
            ".",
            ",",
            "s",
            "µs",
            "min",
            "year",
            "fixed-window",
            "from-first-request",
            "sliding-slots",
            "0",
            "1",
            "0.5",
            "1,000",
            "99999999999999999999",
            "\u{0}",
            "é",
            "\u{202e}",
        ])
        .prop_map(str::to_owned),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<char>().prop_map(String::from),
    ];
    (prop::collection::vec(piece, 0..12), any::<bool>())
        .prop_map(|(pieces, is_spaced)| pieces.join(if is_spaced { " " } else { "" }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_text_panics_and_errors_point_into_it(text in any::<String>()) {
        parse_all(&text);
    }

    #[test]
    fn no_heap_of_pieces_panics_and_errors_point_into_it(text in pieces()) {
        parse_all(&text);
    }

    #[test]
    fn no_mutation_of_a_good_text_panics(
        spec in spec(),
        at in any::<prop::sample::Index>(),
        cut in 0_usize..4,
        insert in "\\PC{0,2}|[0-9/ ._,-]{0,3}",
    ) {
        let mut chars: Vec<char> = spec.to_string().chars().collect();
        let start = at.index(chars.len());
        let end = (start + cut).min(chars.len());
        chars.splice(start..end, insert.chars());
        parse_all(&chars.into_iter().collect::<String>());
    }

    #[test]
    fn a_rate_is_parsed_to_what_it_says(
        count in 1_u64..=10_000_000,
        number in prop::option::of(1_u64..=1_000),
        (unit, micros) in unit(),
        burst in prop::option::of(1_u64..=1 << 40),
        separator in prop::sample::select(vec!["/", " / ", " per ", " PER"]),
        space in prop::sample::select(vec!["", " ", "\u{2003}"]),
    ) {
        let unit_space = if separator == " PER" && number.is_none() { " " } else { space };
        let written = number.map_or(String::new(), |number| number.to_string());
        let clause = burst.map_or(String::new(), |burst| format!(" burst {burst}"));
        let text = format!("{space}{count}{separator}{written}{unit_space}{unit}{space}{clause}");
        let period = Span::from_micros(number.unwrap_or(1) * micros);
        let said = Rate::new(count, period)
            .and_then(|rate| TokenBucket::new(rate, burst.unwrap_or(count)));
        match said {
            Ok(bucket) => prop_assert_eq!(parse_limit(&text), Ok(Limit::from(bucket)), "{}", text),
            Err(_) => prop_assert!(parse_limit(&text).is_err(), "{}", text),
        }
    }

    #[test]
    fn every_limit_is_described_so_that_it_is_read_back_as_the_same(
        rate in rate(),
        count in 1..=1_u64 << 20,
        number in prop::option::of(1_u64..=1 << 20),
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        slots in 2_u32..=10,
        pick in 0..4,
    ) {
        // A multiple of all numbers of slots, so that none are uneven.
        let period = Span::from_micros(rate.period().as_micros().div_ceil(5_040) * 2_520);
        let mut spec = LimitSpec::from(Amount::Rate(Rate::new(count, period).unwrap()));
        spec.algorithm = Some(algorithm);
        match algorithm {
            Algorithm::TokenBucket => (spec.burst, spec.stepped) = (number, pick == 0),
            Algorithm::LeakyBucket => spec.burst = number,
            Algorithm::FixedWindow if pick == 0 => spec.alignment = Alignment::FirstRequest,
            Algorithm::SlidingSlots => (spec.slots, spec.per_slot) = (Some(slots), number),
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {}
        }
        if pick == 3 {
            spec = LimitSpec::from(Amount::AtOnce(count));
            spec.expires_after = Some(period);
        }
        match spec.build() {
            Ok(limit) => prop_assert_eq!(parse_limit(&describe(&limit)), Ok(limit)),
            Err(error) => prop_assert_eq!(error.field, Field::Burst, "{}: {}", spec, error),
        }
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same(spec in spec()) {
        prop_assert_eq!(spec.to_string().parse(), Ok(spec.clone()), "{}", spec);
    }
}
