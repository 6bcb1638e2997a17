//! Requests byte by byte, and answers as no well-behaved server would cut them.

use super::*;
use crate::bench::wire::http2::tests::{frame, last_headers, settings};

const KEY: &Key = b"key:000000000007";

fn get() -> HttpStreams {
    HttpStreams::new("here:80", "/limit/{key}", None).unwrap()
}

fn post() -> HttpStreams {
    HttpStreams::new("here:80", "/v1/check", Some(r#"{"key":"{key}"}"#)).unwrap()
}

/// With so many requests under way, and the bytes of those.
fn asked(mut streams: HttpStreams, times: usize) -> (HttpStreams, Vec<u8>) {
    streams.connected(&mut Vec::new());
    read(&mut streams, &settings(&[])).0.unwrap();
    let mut out = Vec::new();
    (0..times).for_each(|_| streams.ask(KEY, &mut out));
    (streams, out)
}

fn read(streams: &mut HttpStreams, input: &[u8]) -> (Result<usize, Broken>, Vec<(u64, Verdict)>) {
    let mut answers = Vec::new();
    let read = streams.read(input, &mut Vec::new(), &mut answers);
    (read, answers)
}

fn headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(Kind::Headers, Flags::END_HEADERS, stream, block)
}

/// Headers in all and a body in two frames.
fn answer(stream: u32, block: &[u8], body: &[u8]) -> Vec<u8> {
    let (one, other) = body.split_at(body.len() / 2);
    let first = frame(Kind::Data, Flags::NONE, stream, one);
    let last = frame(Kind::Data, Flags::END_STREAM, stream, other);
    [headers(stream, block), first, last].concat()
}

const OK: &[u8] = &[0x88];
const TOO_MANY: &[u8] = b"\x08\x03429\x00\x01a\x01b";

#[test]
fn a_request_is_the_least_that_http2_asks_for() {
    let (_, out) = asked(get(), 2);
    let ends = Flags::END_HEADERS.and(Flags::END_STREAM);
    let first = b"\x82\x86\x04\x17/limit/key:000000000007\x41\x07here:80";
    let later = b"\x82\x86\x04\x17/limit/key:000000000007\xbe";
    let both = [frame(Kind::Headers, ends, 1, first), frame(Kind::Headers, ends, 3, later)];
    assert_eq!(out, both.concat());
}

#[test]
fn a_body_follows_its_headers_and_its_length_is_told() {
    let (_, out) = asked(post(), 2);
    let first = b"\x83\x86\x04\x09/v1/check\x41\x07here:80\x5f\x10application/json\x5c\x0226";
    let later = b"\x83\x86\x04\x09/v1/check\xc0\xbf\xbe";
    let body =
        |stream| frame(Kind::Data, Flags::END_STREAM, stream, br#"{"key":"key:000000000007"}"#);
    assert_eq!(out, [headers(1, first), body(1), headers(3, later), body(3)].concat());
}

#[test]
fn answers_are_read_in_any_order_wherever_the_bytes_are_cut() {
    let input = [answer(3, TOO_MANY, b"no"), last_headers(1, OK)].concat();
    for cut in 0..input.len() {
        let (mut streams, _) = asked(get(), 2);
        let (first, mut answers) = read(&mut streams, &input[..cut]);
        let first = first.unwrap();
        let (second, more) = read(&mut streams, &input[first..]);
        assert_eq!(first + second.unwrap(), input.len(), "cut at {cut}");
        answers.extend(more);
        assert_eq!(answers, [(1, Verdict::Denied), (0, Verdict::Allowed)], "cut at {cut}");
    }
}

#[test]
fn an_answer_is_there_with_the_end_of_its_stream_and_not_before() {
    let (mut streams, _) = asked(get(), 1);
    assert_eq!(read(&mut streams, &headers(1, OK)).1, []);
    assert_eq!(read(&mut streams, &frame(Kind::Data, Flags::NONE, 1, b"x")).1, []);
    let trailers = last_headers(1, b"\x00\x01a\x01b");
    assert_eq!(read(&mut streams, &trailers).1, [(0, Verdict::Allowed)]);
}

#[test]
fn a_denial_in_the_body_is_seen_where_a_body_was_sent() {
    let body = br#"{"allowed":false}"#;
    let (mut posted, _) = asked(post(), 1);
    assert_eq!(read(&mut posted, &answer(1, OK, body)).1, [(0, Verdict::Denied)]);
    let (mut got, _) = asked(get(), 1);
    assert_eq!(read(&mut got, &answer(1, OK, body)).1, [(0, Verdict::Allowed)]);
}

#[test]
fn failures_say_what_the_server_said() {
    let reset = frame(Kind::Reset, Flags::NONE, 1, &[0, 0, 0, 2]);
    for (input, words) in [
        (last_headers(1, &[0x8d]), "the server answered with status 404"),
        (reset, "the server cut a request off: internal error"),
    ] {
        let (mut streams, _) = asked(get(), 1);
        assert_eq!(read(&mut streams, &input).1, [(0, Verdict::Failed(words.to_owned()))]);
    }
}

#[test]
fn what_is_not_understood_breaks_the_connection() {
    for (input, what) in [
        (headers(1, b"\x08\x03100"), "an answer before the answer"),
        (last_headers(1, b"\x00\x01a\x01b"), "an answer without a status"),
        (frame(Kind::Data, Flags::END_STREAM, 1, b"x"), "an answer without a status"),
    ] {
        let (mut streams, _) = asked(get(), 1);
        assert_eq!(read(&mut streams, &input).0, Err(Broken::Malformed(what)));
    }
}

#[test]
fn an_answer_that_does_not_end_is_too_long_before_its_window_is_used_up() {
    let (mut streams, _) = asked(get(), 1);
    read(&mut streams, &headers(1, OK)).0.unwrap();
    let data = frame(Kind::Data, Flags::NONE, 1, &[0; 16_384]);
    for _ in 0..ANSWER_BYTES_MAX / 16_384 {
        read(&mut streams, &data).0.unwrap();
    }
    assert_eq!(read(&mut streams, &data).0, Err(Broken::TooLong));
}

#[test]
fn requests_that_do_not_fit_a_frame_are_refused() {
    let long = "a".repeat(17_000);
    assert!(HttpStreams::new("here:80", &format!("/{long}"), None).is_none());
    assert!(HttpStreams::new("here:80", "/", Some(&long)).is_none());
    assert!(HttpStreams::new("here:80", "/", Some(&long[..16_384])).is_some());
}
