//! A connection frame by frame, as no well-behaved server would speak, and frames for the tests of what
//! goes over it.

use super::*;

pub(crate) fn frame(kind: Kind, flags: Flags, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::head(payload.len(), kind, flags, stream, &mut out);
    out.extend_from_slice(payload);
    out
}

pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(Kind::Settings, Flags::NONE, 0, &payload)
}

/// Headers with nothing after them in their stream.
pub(crate) fn last_headers(stream: u32, block: &[u8]) -> Vec<u8> {
    frame(Kind::Headers, Flags::END_HEADERS.and(Flags::END_STREAM), stream, block)
}

pub(crate) fn going_away(stream_last: u32, code: Code) -> Vec<u8> {
    let payload = [stream_last.to_be_bytes(), code.0.to_be_bytes()].concat();
    frame(Kind::GoAway, Flags::NONE, 0, &payload)
}

const BODY_BYTES: u32 = 50;

/// A connection on which the server has said what it takes.
fn greeted(body_bytes: u32, pairs: &[(u16, u32)]) -> Connection<()> {
    let mut connection = Connection::new(body_bytes);
    connection.connected(&mut Vec::new());
    assert_eq!(connection.room(), 0, "nothing is asked before the server has spoken");
    assert_eq!(read(&mut connection, &settings(pairs)), (Ok(()), vec![]));
    connection
}

/// Takes everything; an answer is all there with the last of it.
fn read(connection: &mut Connection<()>, input: &[u8]) -> (Result<(), Broken>, Vec<(u64, String)>) {
    let (mut rest, mut answers) = (input, Vec::new());
    loop {
        match connection.next(&mut rest, &mut Vec::new()) {
            Ok(Some(part)) => {
                if let Err(broken) = connection.stream(part.number) {
                    return (Err(broken), answers);
                }
                if part.is_last {
                    let words = match part.content {
                        Content::Lost(lost) => lost.to_string(),
                        Content::Headers(_) | Content::Data(_) => "answered".to_owned(),
                    };
                    answers.push((part.number, words));
                    connection.finish(part.number, Verdict::Allowed, &mut Vec::new()).unwrap();
                }
            }
            Ok(None) => return (Ok(()), answers),
            Err(broken) => return (Err(broken), answers),
        }
    }
}

fn ask(connection: &mut Connection<()>, times: usize) {
    for _ in 0..times {
        connection.begin();
    }
}

fn answer(stream: u32) -> Vec<u8> {
    last_headers(stream, &[0x88])
}

fn told(number: u64, words: &str) -> (u64, String) {
    (number, words.to_owned())
}

#[test]
fn no_more_is_asked_than_the_server_takes() {
    for body_bytes in [0, BODY_BYTES] {
        let mut connection = greeted(body_bytes, &[(frame::STREAMS_MAX, 3)]);
        assert_eq!(connection.room(), 3);
        ask(&mut connection, 3);
        assert_eq!(connection.room(), 0);
        read(&mut connection, &answer(1)).0.unwrap();
        assert_eq!(connection.room(), 1);
    }
}

#[test]
fn bodies_wait_for_the_window_of_their_connection_and_requests_without_one_do_not() {
    let mut connection = greeted(BODY_BYTES, &[(frame::STREAMS_MAX, u32::MAX)]);
    let room = connection.room();
    assert_eq!(room, 65_535 / BODY_BYTES as usize);
    ask(&mut connection, room);
    assert_eq!(connection.room(), 0);
    let mut more = Vec::new();
    frame::window(BODY_BYTES * 5, &mut more);
    read(&mut connection, &more).0.unwrap();
    assert_eq!(connection.room(), 5);

    let mut connection = greeted(0, &[(frame::STREAMS_MAX, u32::MAX)]);
    ask(&mut connection, 100_000);
    assert!(connection.room() > 100_000);
}

#[test]
fn the_server_is_told_that_it_may_go_on_before_its_window_is_used_up() {
    let mut connection = greeted(0, &[]);
    let mut window = i64::from(u32::MAX >> 1);
    for number in 0_u32..200_000 {
        ask(&mut connection, 1);
        let stream = number * 2 + 1;
        let data = frame(Kind::Data, Flags::END_STREAM, stream, &[0; 16_384]);
        window -= 16_384;
        assert!(window >= 0, "after {number} answers");
        let (mut out, mut rest) = (Vec::new(), &data[..]);
        connection.next(&mut rest, &mut out).unwrap();
        connection.finish(number.into(), Verdict::Allowed, &mut Vec::new()).unwrap();
        if !out.is_empty() {
            let frame = Frame::parse(&out).unwrap().unwrap();
            assert_eq!((frame.kind, frame.stream), (Kind::WindowUpdate, 0));
            window += i64::from(frame.number().unwrap());
        }
    }
}

#[test]
fn what_http2_wants_answered_is_answered() {
    let mut connection = greeted(0, &[]);
    let mut out = Vec::new();
    let ping = frame(Kind::Ping, Flags::NONE, 0, b"12345678");
    let input = [ping, settings(&[])].concat();
    assert!(connection.next(&mut &input[..], &mut out).unwrap().is_none());
    let pong = frame(Kind::Ping, Flags::ACK, 0, b"12345678");
    let taken = frame(Kind::Settings, Flags::ACK, 0, b"");
    assert_eq!(out, [pong, taken].concat());
}

#[test]
fn a_server_that_goes_away_is_asked_no_more_and_its_answers_are_awaited() {
    let mut connection = greeted(0, &[]);
    ask(&mut connection, 1);
    // First it says so, and then what it took.
    assert!(read(&mut connection, &going_away(u32::MAX >> 1, Code::NONE)).0.is_ok());
    assert!(read(&mut connection, &going_away(1, Code::NONE)).0.is_ok());
    assert_eq!(connection.room(), 0);
    let (end, answers) = read(&mut connection, &answer(1));
    assert_eq!((end, answers), (Err(Broken::GoingAway), vec![told(0, "answered")]));
}

#[test]
fn what_a_server_that_goes_away_did_not_take_is_lost_and_the_rest_is_awaited() {
    let mut connection = greeted(0, &[]);
    ask(&mut connection, 4);
    read(&mut connection, &answer(5)).0.unwrap();
    let lost = "the server went away before it took a request";
    let (end, answers) = read(&mut connection, &going_away(1, Code::NONE));
    assert_eq!((end, answers), (Ok(()), vec![told(1, lost), told(3, lost)]));
    let (end, answers) = read(&mut connection, &answer(1));
    assert_eq!((end, answers), (Err(Broken::GoingAway), vec![told(0, "answered")]));
}

#[test]
fn a_server_that_sends_us_away_says_why() {
    let mut connection = greeted(0, &[]);
    ask(&mut connection, 1);
    let broken = read(&mut connection, &going_away(1, Code(11))).0.unwrap_err();
    assert_eq!(broken.to_string(), "the server ended a connection: enhance your calm");
}

#[test]
fn a_reset_ends_a_request_and_says_nothing_of_one_that_was_answered() {
    let reset = |stream, code: u8| frame(Kind::Reset, Flags::NONE, stream, &[0, 0, 0, code]);
    let mut connection = greeted(0, &[]);
    ask(&mut connection, 2);
    let (end, answers) = read(&mut connection, &reset(3, 7));
    let words = "the server cut a request off: refused stream";
    assert_eq!((end, answers), (Ok(()), vec![told(1, words)]));
    let input = [answer(1), reset(1, 0), reset(3, 0)].concat();
    assert_eq!(read(&mut connection, &input), (Ok(()), vec![told(0, "answered")]));
    assert_eq!(read(&mut connection, &reset(5, 0)).0, Err(Broken::Unasked));
}

#[test]
fn what_is_not_understood_breaks_the_connection() {
    let fresh = || {
        let mut connection = Connection::new(BODY_BYTES);
        connection.connected(&mut Vec::new());
        connection
    };
    assert!(read(&mut fresh(), b"HTTP/1.1 400 Bad Request\r\n").0.is_err());
    assert!(read(&mut fresh(), &answer(1)).0.is_err(), "before any settings");
    let mut connection = greeted(BODY_BYTES, &[]);
    assert_eq!(read(&mut connection, &answer(1)).0, Err(Broken::Unasked));
    for input in [
        settings(&[(frame::STREAM_WINDOW, BODY_BYTES - 1)]),
        settings(&[(frame::HEADER_TABLE_SIZE, 0)]),
        frame(Kind::Headers, Flags::NONE, 1, &[0x88]),
        frame(Kind::Continuation, Flags::END_HEADERS, 1, &[]),
        frame(Kind::Push, Flags::END_HEADERS, 1, &[]),
        frame(Kind::GoAway, Flags::NONE, 0, &[0; 7]),
        frame(Kind::Reset, Flags::NONE, 1, &[0; 3]),
    ] {
        let mut connection = greeted(BODY_BYTES, &[]);
        ask(&mut connection, 1);
        let broken = read(&mut connection, &input).0;
        assert!(matches!(broken, Err(Broken::Malformed(_))), "{input:?}: {broken:?}");
    }
}
