//! Answers frame by frame, as no well-behaved server would cut them.

use super::*;

fn grpc() -> Grpc {
    let service = Service::Envoy { domain: "default".into(), attribute: "key".into() };
    Grpc::new("here:8081", service)
}

fn frame(kind: Kind, flags: Flags, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::head(payload.len(), kind, flags, stream, &mut out);
    out.extend_from_slice(payload);
    out
}

fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, value) in pairs {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(Kind::Settings, Flags::NONE, 0, &payload)
}

/// A connection on which the server has said what it takes.
fn greeted(pairs: &[(u16, u32)]) -> Grpc {
    let mut grpc = grpc();
    grpc.connected(&mut Vec::new());
    assert_eq!(grpc.room(), 0, "nothing is asked before the server has spoken");
    let (read, _) = read(&mut grpc, &settings(pairs));
    read.unwrap();
    grpc
}

fn read(grpc: &mut Grpc, input: &[u8]) -> (Result<usize, Broken>, Vec<(u64, Verdict)>) {
    let mut answers = Vec::new();
    let read = grpc.read(input, &mut Vec::new(), &mut answers);
    (read, answers)
}

fn ask(grpc: &mut Grpc, times: usize) {
    for _ in 0..times {
        grpc.ask(b"key:000000000007", &mut Vec::new());
    }
}

/// Headers, a message that says `code`, and trailers.
fn answer(stream: u32, code: u8) -> Vec<u8> {
    let headers = frame(Kind::Headers, Flags::END_HEADERS, stream, &[0x88]);
    let data = frame(Kind::Data, Flags::NONE, stream, &[0, 0, 0, 0, 2, 0x08, code]);
    [headers, data, trailers(stream, b'0')].concat()
}

fn trailers(stream: u32, status: u8) -> Vec<u8> {
    let mut frame = frame(Kind::Headers, Flags::END_HEADERS, stream, b"\x00\x0bgrpc-status\x01");
    frame.push(status);
    frame[2] += 1;
    frame[4] = 5;
    frame
}

#[test]
fn answers_are_read_in_any_order_wherever_the_bytes_are_cut() {
    let input = [answer(3, 2), answer(1, 1)].concat();
    for cut in 0..input.len() {
        let mut grpc = greeted(&[]);
        ask(&mut grpc, 2);
        let (first, mut answers) = read(&mut grpc, &input[..cut]);
        let first = first.unwrap();
        let (second, more) = read(&mut grpc, &input[first..]);
        assert_eq!(first + second.unwrap(), input.len(), "cut at {cut}");
        answers.extend(more);
        assert_eq!(answers, [(1, Verdict::Denied), (0, Verdict::Allowed)], "cut at {cut}");
    }
}

#[test]
fn a_message_in_several_frames_and_with_padding_is_one_message() {
    let mut grpc = greeted(&[]);
    ask(&mut grpc, 1);
    let padded = {
        let mut padded = frame(Kind::Data, Flags::NONE, 1, &[2, 2, 0x08, 1, 0, 0]);
        padded[4] = 8;
        padded
    };
    let input = [
        frame(Kind::Headers, Flags::END_HEADERS, 1, &[0x88]),
        frame(Kind::Data, Flags::NONE, 1, &[0, 0, 0, 0]),
        padded,
        trailers(1, b'0'),
    ];
    assert_eq!(read(&mut grpc, &input.concat()).1, [(0, Verdict::Allowed)]);
}

#[test]
fn failures_say_what_the_server_said() {
    let failed = |text: &str| vec![(0, Verdict::Failed(text.to_owned()))];
    let asked = || {
        let mut grpc = greeted(&[]);
        ask(&mut grpc, 1);
        grpc
    };
    // Trailers alone, which is how calls are refused.
    let mut refused = frame(Kind::Headers, Flags::END_HEADERS, 1, b"\x88\x00\x0bgrpc-status\x018");
    refused[4] = 5;
    assert_eq!(read(&mut asked(), &refused).1, failed("a call ended with gRPC status 8"));
    let reset = frame(Kind::Reset, Flags::NONE, 1, &[0, 0, 0, 7]);
    assert_eq!(read(&mut asked(), &reset).1, failed("the server cut a call off"));
    let mut not_found = frame(Kind::Headers, Flags::END_HEADERS, 1, &[0x8d]);
    not_found[4] = 5;
    let text = "the server answered with HTTP status 404";
    assert_eq!(read(&mut asked(), &not_found).1, failed(text));
    let empty = [frame(Kind::Headers, Flags::END_HEADERS, 1, &[0x88]), trailers(1, b'0')].concat();
    assert_eq!(read(&mut asked(), &empty).1, failed("a call was answered without a message"));
}

#[test]
fn no_more_is_asked_than_the_server_takes() {
    let mut grpc = greeted(&[(frame::STREAMS_MAX, 3)]);
    assert_eq!(grpc.room(), 3);
    ask(&mut grpc, 3);
    assert_eq!(grpc.room(), 0);
    read(&mut grpc, &answer(1, 1)).0.unwrap();
    assert_eq!(grpc.room(), 1);

    // The connection's window runs out, and is opened again.
    let mut grpc = greeted(&[(frame::STREAMS_MAX, u32::MAX)]);
    let room = grpc.room();
    assert_eq!(room, 65_535 / grpc.body_bytes as usize);
    ask(&mut grpc, room);
    assert_eq!(grpc.room(), 0);
    let mut more = Vec::new();
    frame::window(grpc.body_bytes * 5, &mut more);
    read(&mut grpc, &more).0.unwrap();
    assert_eq!(grpc.room(), 5);
}

#[test]
fn what_http2_wants_answered_is_answered() {
    let mut grpc = greeted(&[]);
    let mut out = Vec::new();
    let ping = frame(Kind::Ping, Flags::NONE, 0, b"12345678");
    grpc.read(&[ping, settings(&[])].concat(), &mut out, &mut Vec::new()).unwrap();
    let pong = frame(Kind::Ping, Flags::ACK, 0, b"12345678");
    let taken = frame(Kind::Settings, Flags::ACK, 0, b"");
    assert_eq!(out, [pong, taken].concat());
}

#[test]
fn a_server_that_goes_away_is_asked_no_more_and_its_answers_are_awaited() {
    let mut grpc = greeted(&[]);
    ask(&mut grpc, 1);
    let away = frame(Kind::GoAway, Flags::NONE, 0, &[0; 8]);
    assert!(read(&mut grpc, &away).0.is_ok());
    assert_eq!(grpc.room(), 0);
    let (end, answers) = read(&mut grpc, &answer(1, 1));
    assert_eq!((end, answers.len()), (Err(Broken::GoingAway), 1));
}

#[test]
fn what_is_not_understood_breaks_the_connection() {
    let mut fresh = grpc();
    fresh.connected(&mut Vec::new());
    assert!(read(&mut fresh, b"HTTP/1.1 400 Bad Request\r\n").0.is_err());
    assert!(read(&mut fresh, &answer(1, 1)).0.is_err(), "before any settings");
    let mut grpc = greeted(&[]);
    assert_eq!(read(&mut grpc, &answer(1, 1)).0, Err(Broken::Unasked));
    assert!(matches!(
        read(&mut grpc, &settings(&[(frame::STREAM_WINDOW, 5)])).0,
        Err(Broken::Malformed(_))
    ));
}
