//! Every message about a bad limit, as a person sees it.

use tidegate_rules::{parse_limit, parse_period};

const UNITS: &str = "use us, ms, s, min, h, day, week, month or year";
const RATE: &str = "write a count per period, such as `10/minute`";
const CLAUSES: &str = "behind the count and period use burst, stepped, slots, per-slot, \
    from-first-request, in, for, or one of token-bucket, leaky-bucket, fixed-window, sliding-window, \
    sliding-slots or sliding-log";

const WHO: &str = "in the rule, and here only a count per period, such as `10/minute`";

/// `UNITS`, `RATE`, `CLAUSES` and `WHO` stand for the ends of sentences above.
const LIMITS: &[(&str, &str)] = &[
    // No text, no number.
    ("", "the limit is empty: RATE"),
    (" \t\n", "the limit is empty: RATE"),
    ("/s", "expected a count, found `/` at column 1: RATE"),
    ("ten/s", "expected a count, found `ten` at column 1: RATE"),
    ("unlimited", "expected a count, found `unlimited` at column 1: RATE"),
    ("٣/s", "expected a count, found `٣` at column 1: RATE"),
    ("\u{0}/s", "expected a count, found `\\0` at column 1: RATE"),
    // Numbers that are none here.
    ("-5/s", "negative number `-5` at column 1: use 1 or more"),
    ("−5/s", "negative number `−5` at column 1: use 1 or more"),
    ("5/-1s", "negative number `-1` at column 3: use 1 or more"),
    ("5/s burst -1", "negative number `-1` at column 11: use 1 or more"),
    ("0.5/s", "fraction `0.5` at column 1: use whole numbers, here `1 per 2s`"),
    ("2,5 per min", "fraction `2,5` at column 1: use whole numbers, here `5 per 2min`"),
    ("1.5k/s", "fraction `1.5k` at column 1: use whole numbers, here `1500 per second`"),
    ("0.5 at once", "fraction `0.5` at column 1: use whole numbers"),
    ("0.0/s", "fraction `0.0` at column 1: use whole numbers"),
    ("10/1.5s", "fraction `1.5s` at column 4: use whole numbers, here `1500ms`"),
    ("10/0.1us", "fraction `0.1us` at column 4: use whole numbers"),
    ("10/s burst 1.5", "fraction `1.5` at column 12: use whole numbers"),
    ("1,000/s", "comma in the number `1,000` at column 1: write `1_000`"),
    ("1.2.3/s", "malformed number `1.2.3` at column 1: use digits, such as `1000` or `1_000`"),
    // Numbers out of range.
    ("0/s", "`0` at column 1: the count is 0; it must be at least 1"),
    ("10/0s", "`0s` at column 4: the period is 0; it must be at least 1 microsecond"),
    (
        "18446744073709551615/s",
        "`18446744073709551615` at column 1: the count is too large; at most \
         17592186044416",
    ),
    (
        "18446744073709551616/s",
        "number `18446744073709551616` at column 1 is too large: use at most 17592186044416",
    ),
    (
        "18446744073709551615k/s",
        "number `18446744073709551615k` at column 1 is too large: use at most 17592186044416",
    ),
    (
        "123456789012345678901234567890123456789012345/s",
        "number `1234567890123456789012345678901234567890…` at column 1 is too large: use at most \
         17592186044416",
    ),
    ("1 per 11 years", "`11 years` at column 7: the period is too long; at most 10 years"),
    (
        "1 per 18446744073709551615 years",
        "`18446744073709551615 years` at column 7: the period is too long; at most \
         10 years",
    ),
    (
        "1000000001/s",
        "`1000000001/s` at column 1: the rate is above 10000000 per second and not \
         a multiple of 1000000 per second",
    ),
    ("10/s burst 0", "`burst 0` at column 6: the burst is 0; it must be at least 1"),
    (
        "10/s burst 20000000M",
        "`burst 20000000M` at column 6: the burst is too large; at most \
         17592186044416",
    ),
    (
        "1/year burst 1000000",
        "`burst 1000000` at column 8: the burst takes too long to come back at this \
         rate; at most 145836 years",
    ),
    ("0 at once", "`0` at column 1: the count is 0; it must be at least 1"),
    (
        "5 at once for 0s",
        "`for 0s` at column 11: the expiry of leases is 0; it must be at least 1 \
         microsecond",
    ),
    (
        "9/h sliding-slots slots 4294967296",
        "number `4294967296` at column 25 is too large: use at most 4294967295",
    ),
    (
        "5 at once for 11 years",
        "`for 11 years` at column 11: the expiry of leases is too long; at most 10 \
         years",
    ),
    ("2M at once", "`2M` at column 1: the count is too large; at most 1048576"),
    ("2M/s sliding-log", "`2M` at column 1: the count is too large; at most 1048576"),
    (
        "9/h sliding-slots slots 1",
        "`slots 1` at column 19: the number of slots is out of range; 2 to 1024",
    ),
    (
        "9/h sliding-slots slots 7",
        "`slots 7` at column 19: the slots are uneven; their number must divide the \
         period in microseconds",
    ),
    (
        "9/us sliding-slots",
        "`us` at column 3: the slots are uneven; their number must divide the \
         period in microseconds",
    ),
    (
        "9/h sliding-slots per-slot 0",
        "`per-slot 0` at column 19: the limit per slot is 0; it must be at least 1",
    ),
    // Between the count and the period.
    ("10", "expected `/` or `per`, found the end at column 3: RATE, or `5 at once`"),
    ("10 s", "expected `/` or `per`, found `s` at column 4: RATE, or `5 at once`"),
    ("10 at noon", "expected `/` or `per`, found `at` at column 4: RATE, or `5 at once`"),
    ("1__0/s", "expected `/` or `per`, found `_` at column 2: RATE, or `5 at once`"),
    ("10 apples/s", "expected `/` or `per`, found `apples` at column 4: RATE, or `5 at once`"),
    ("10 requests", "expected `/` or `per`, found the end at column 12: RATE, or `5 at once`"),
    ("10 calls hits/s", "expected `/` or `per`, found `hits` at column 10: RATE, or `5 at once`"),
    ("0.5 requests/s", "fraction `0.5` at column 1: use whole numbers, here `1 per 2s`"),
    // Who is counted.
    ("10/min per ip", "`per ip` at column 8 says who is counted: write `per: [ip]` WHO"),
    ("10/min per x-id", "`per x-id` at column 8 says who is counted: write `per: [x-id]` WHO"),
    ("9/s per [ip, user]", "`per [ip,` at column 5 says who is counted: write `per: [ip]` WHO"),
    ("10 per user", "`per user` at column 4 says who is counted: write `per: [user]` WHO"),
    ("10/min per minute", "`per` at column 8 says the period again: say it once"),
    ("10/min per 5", "unexpected `per` at column 8 (did you mean `per-slot`?): CLAUSES"),
    // The period.
    ("10/", "expected a unit of time, found the end at column 4: UNITS"),
    ("10 per 3", "expected a unit of time, found the end at column 9: UNITS"),
    ("10//s", "expected a unit of time, found `/` at column 4: UNITS"),
    ("5 per 1m30", "expected a unit of time, found the end at column 11: UNITS"),
    ("10 /fortnight", "unknown unit `fortnight` at column 5: UNITS"),
    ("10/minuet", "unknown unit `minuet` at column 4 (did you mean `minute`?): UNITS"),
    ("10/2 horus", "unknown unit `horus` at column 6 (did you mean `hour`?): UNITS"),
    ("10/minit", "unknown unit `minit` at column 4 (did you mean `minute`?): UNITS"),
    ("10/secnods", "unknown unit `secnods` at column 4 (did you mean `second`?): UNITS"),
    ("10/ns", "unknown unit `ns` at column 4: UNITS"),
    ("10/M", "ambiguous unit `M` at column 4: use min for minutes or month for months"),
    // Behind the rate.
    ("10/s extra", "unexpected `extra` at column 6: CLAUSES"),
    ("10/s 5", "unexpected `5` at column 6: CLAUSES"),
    ("10/s, 5/min", "unexpected `,` at column 5: CLAUSES"),
    ("10/s brust 5", "unexpected `brust` at column 6 (did you mean `burst`?): CLAUSES"),
    ("10/s fixed window", "unexpected `fixed` at column 6 (did you mean `fixed-window`?): CLAUSES"),
    (
        "10/s burst",
        "expected the burst, found the end at column 11: write a whole number of 1 or more",
    ),
    (
        "10/s sliding-slots slots many",
        "expected the number of slots, found `many` at column 26: write a whole number of 1 or more",
    ),
    ("5 at once for", "expected a unit of time, found the end at column 14: UNITS"),
    ("10/s burst 5 burst 6", "`burst` at column 14 says the burst again: say it once"),
    (
        "10/s sliding-log fixed-window",
        "`fixed-window` at column 18 says the algorithm again: say it once",
    ),
    // The calendar.
    (
        "5/day fixed-window in Europe/Atlantis",
        "expected a time zone, found `Europe/Atlantis` at column 23: use UTC, or a known name such \
         as `Europe/Berlin`",
    ),
    (
        "5/day fixed-window in",
        "expected a time zone, found the end at column 22: use UTC, or a known name such as \
         `Europe/Berlin`",
    ),
    (
        "5/3h fixed-window in UTC",
        "`3h` at column 3 is not a period of the calendar: use day, week, month or year with a time \
         zone",
    ),
    (
        "5/day in UTC",
        "`in UTC` at column 7 does not apply to token-bucket: use it with fixed-window",
    ),
    // What the algorithm does not have.
    (
        "10/s fixed-window burst 5",
        "`burst 5` at column 19 does not apply to fixed-window: use it with token-bucket or \
         leaky-bucket",
    ),
    (
        "5 at once burst 5",
        "`burst 5` at column 11 does not apply to concurrency: use it with token-bucket or \
         leaky-bucket",
    ),
    (
        "10/s leaky-bucket stepped",
        "`stepped` at column 19 does not apply to leaky-bucket: use it with token-bucket",
    ),
    (
        "10/s from-first-request",
        "`from-first-request` at column 6 does not apply to token-bucket: use it with fixed-window",
    ),
    (
        "10/s slots 6",
        "`slots 6` at column 6 does not apply to token-bucket: use it with sliding-slots",
    ),
    (
        "10/s sliding-log per-slot 6",
        "`per-slot 6` at column 18 does not apply to sliding-log: use it with sliding-slots",
    ),
    (
        "10/s for 30s",
        "`for 30s` at column 6 does not apply to token-bucket: use it with a number at once, such \
         as `5 at once for 30s`",
    ),
    (
        "5 at once sliding-log",
        "`sliding-log` at column 11 does not apply to concurrency: use it with a rate, such as \
         `10/minute`",
    ),
];

#[test]
fn a_bad_limit_is_told_what_is_wrong_where_and_what_is_accepted() {
    for (text, message) in LIMITS {
        let message = message
            .replace("UNITS", UNITS)
            .replace("WHO", WHO)
            .replace("RATE", RATE)
            .replace("CLAUSES", CLAUSES);
        match parse_limit(text) {
            Ok(limit) => panic!("{text:?} was accepted: {limit:?}"),
            Err(error) => assert_eq!(error.to_string(), message, "{text:?}"),
        }
    }
}

#[test]
fn a_bad_period_is_told_so_too() {
    for (text, message) in [
        ("", "expected a unit of time, found the end at column 1: UNITS"),
        ("30", "expected a unit of time, found the end at column 3: UNITS"),
        (
            "30s later",
            "unexpected `later` at column 5: a period is a unit, or numbers each with their unit, \
             such as `1m30s`",
        ),
    ] {
        let error = parse_period(text).unwrap_err();
        assert_eq!(error.to_string(), message.replace("UNITS", UNITS), "{text:?}");
    }
}
