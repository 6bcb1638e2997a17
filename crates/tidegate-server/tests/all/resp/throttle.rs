//! `CL.THROTTLE`: five integers, as redis-cell answers them.

use std::time::Duration;

use crate::resp::talk::{Talk, command, replies};

/// The five integers of a reply.
fn five(reply: &str) -> [i64; 5] {
    let numbers: Vec<i64> = reply
        .strip_prefix("*5\r\n")
        .unwrap_or_else(|| panic!("{reply:?}"))
        .lines()
        .map(|line| line.strip_prefix(':').expect("an integer").parse().expect("a number"))
        .collect();
    numbers.try_into().expect("five")
}

#[test]
fn the_numbers_are_those_of_redis_cell() {
    // Five at once and one more each second, at these milliseconds: quantity, then whether it is
    // limited, what is left, when to come back and when all is back, in seconds rounded up.
    let cases = [
        (0, 6, [1, 5, -1, 0]),
        (0, 1, [0, 4, -1, 1]),
        (0, 1, [0, 3, -1, 2]),
        (0, 1, [0, 2, -1, 3]),
        (0, 1, [0, 1, -1, 4]),
        (0, 1, [0, 0, -1, 5]),
        (0, 1, [1, 0, 1, 5]),
        (0, 6, [1, 0, -1, 5]),
        (3_000, 1, [0, 2, -1, 3]),
        (3_100, 1, [0, 1, -1, 4]),
        (4_000, 1, [0, 1, -1, 4]),
        (8_000, 1, [0, 4, -1, 1]),
        (9_500, 1, [0, 4, -1, 1]),
        (9_500, 0, [0, 4, -1, 1]),
        (9_500, 2, [0, 2, -1, 3]),
        (9_500, 5, [1, 2, 3, 3]),
    ];
    let mut talk = Talk::new();
    let mut passed = 0;
    for (case, (at, quantity, [limited, remaining, retry, reset])) in cases.into_iter().enumerate()
    {
        talk.daemon.clock.advance(Duration::from_millis(at - passed));
        passed = at;
        let reply = talk.asks(&format!("CL.THROTTLE foo 4 1 1 {quantity}"));
        assert_eq!(five(&reply), [limited, 5, remaining, retry, reset], "case {case}");
    }
}

#[test]
fn a_reply_is_five_integers_byte_for_byte() {
    let expected = "*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";
    assert_eq!(Talk::new().asks("CL.THROTTLE user123 15 30 60"), expected);
    assert_eq!(Talk::new().asks("cl.throttle user123 15 30 60 1"), expected);
    assert_eq!(Talk::three().asks("CL.THROTTLE user123 15 30 60 1"), expected);
    assert_eq!(Talk::new().says(b"cl.Throttle user123 15 30 60\r\n"), expected);
}

#[test]
fn seconds_are_rounded_up_so_that_a_retry_then_passes() {
    let mut talk = Talk::new();
    assert_eq!(five(&talk.asks("CL.THROTTLE k 0 1 2")), [0, 1, 0, -1, 2]);
    // A microsecond later 1.999999 s are missing, and a microsecond before the end one is.
    talk.daemon.clock.advance(Duration::from_micros(1));
    assert_eq!(five(&talk.asks("CL.THROTTLE k 0 1 2")), [1, 1, 0, 2, 2]);
    talk.daemon.clock.advance(Duration::from_micros(1_999_998));
    assert_eq!(five(&talk.asks("CL.THROTTLE k 0 1 2")), [1, 1, 0, 1, 1]);
    talk.daemon.clock.advance(Duration::from_micros(1));
    assert_eq!(five(&talk.asks("CL.THROTTLE k 0 1 2")), [0, 1, 0, -1, 2]);
}

#[test]
fn a_quantity_of_nothing_looks_and_one_above_the_burst_never_passes() {
    let mut talk = Talk::new();
    for _ in 0..3 {
        assert_eq!(five(&talk.asks("CL.THROTTLE k 4 1 60 0")), [0, 5, 5, -1, 0]);
    }
    assert_eq!(five(&talk.asks("CL.THROTTLE k 4 1 60 6")), [1, 5, 5, -1, 0]);
    assert_eq!(five(&talk.asks("CL.THROTTLE k 4 1 60 5")), [0, 5, 0, -1, 300]);
    assert_eq!(five(&talk.asks("CL.THROTTLE k 4 1 60 0")), [0, 5, 0, -1, 300]);
}

#[test]
fn changed_numbers_meet_what_was_taken_before() {
    let mut talk = Talk::new();
    assert_eq!(five(&talk.asks("CL.THROTTLE k 9 10 10 10")), [0, 10, 0, -1, 10]);
    assert_eq!(five(&talk.asks("CL.THROTTLE k 19 10 10")), [0, 20, 9, -1, 11]);
    assert_eq!(five(&talk.asks("CL.THROTTLE other 19 10 10")), [0, 20, 19, -1, 1]);
}

#[test]
fn any_bytes_are_a_key_and_a_key_is_nobody_elses() {
    let mut talk = Talk::new();
    let keys: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe", b"a\r\nb", b"a b"];
    for key in keys {
        let said = command([b"CL.THROTTLE", key, b"0", b"1", b"60"]);
        assert_eq!(five(&talk.says(&said))[0], 0, "{key:?}");
        assert_eq!(five(&talk.says(&said))[0], 1, "{key:?}");
    }
}

#[test]
fn a_mistake_is_an_error_in_the_words_of_redis_cell_and_takes_nothing() {
    let usage = "-Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> \
                 [<quantity>]\r\n";
    let mut talk = Talk::new();
    for words in ["CL.THROTTLE", "CL.THROTTLE k", "CL.THROTTLE k 1 1", "CL.THROTTLE k 1 1 1 1 1"] {
        assert_eq!(talk.asks(words), usage, "{words}");
    }
    for (words, expected) in [
        ("k x 1 1", "Couldn't parse as integer: x"),
        ("k 1 1.5 1", "Couldn't parse as integer: 1.5"),
        ("k 1 1 99999999999999999999", "Couldn't parse as integer: 99999999999999999999"),
        ("k 1 1 1 y", "Couldn't parse as integer: y"),
        ("k -1 1 1", "Negative numbers are not supported: -1"),
        ("k 1 -1 1", "Negative numbers are not supported: -1"),
        ("k 1 1 -60", "Negative numbers are not supported: -60"),
        ("k 1 1 1 -2", "Negative numbers are not supported: -2"),
        ("k 1 0 1", "Zero rates are not supported"),
        ("k 1 1 0", "Zero rates are not supported"),
    ] {
        let reply = talk.asks(&format!("CL.THROTTLE {words}"));
        assert_eq!(reply, format!("-Cell error: {expected}\r\n"), "{words}");
    }
    let reply = talk.asks("CL.THROTTLE k 9223372036854775807 1 1");
    assert!(reply.starts_with("-Cell error: "), "{reply}");
    assert_eq!(five(&talk.asks("CL.THROTTLE k 0 1 1")), [0, 1, 0, -1, 1]);
}

#[test]
fn a_pipeline_is_answered_as_its_commands_one_by_one() {
    let mut commands: Vec<Vec<u8>> = Vec::new();
    for number in 0..2_000 {
        let (key, count) = ((number % 37).to_string(), (1 + number % 23).to_string());
        commands.push(command(["CL.THROTTLE", &key, "3", &count, "60"]));
        match number % 101 {
            7 => commands.push(command(["CL.THROTTLE", &key, "x", "1", "1"])),
            50 => commands.push(command(["PING"])),
            90 => commands.push(command(["TG.CHECK", "api", "1", "path", "/login", "ip", "::1"])),
            _ => {}
        }
    }
    let (mut one, mut all) = (Talk::new(), Talk::new());
    let expected: Vec<u8> = commands.iter().flat_map(|command| one.bytes(command)).collect();
    let together = all.bytes(&commands.concat());
    assert_eq!(together, expected);
    assert_eq!(replies(&together, 2), commands.len());
}
