//! Answers frame by frame, as no well-behaved server would cut them.

use super::*;
use crate::bench::wire::http2::tests::{frame, last_headers, settings};

fn grpc() -> Grpc {
    let service = Service::Envoy { domain: "default".into(), attribute: "key".into() };
    Grpc::new("here:8081", service)
}

/// A connection on which the server has said what it takes, with so many calls under way.
fn asked(times: usize) -> Grpc {
    let mut grpc = grpc();
    grpc.connected(&mut Vec::new());
    read(&mut grpc, &settings(&[])).0.unwrap();
    (0..times).for_each(|_| grpc.ask(b"key:000000000007", &mut Vec::new()));
    grpc
}

fn read(grpc: &mut Grpc, input: &[u8]) -> (Result<usize, Broken>, Vec<(u64, Verdict)>) {
    let mut answers = Vec::new();
    let read = grpc.read(input, &mut Vec::new(), &mut answers);
    (read, answers)
}

/// Headers, a message that says `code`, and trailers.
fn answer(stream: u32, code: u8) -> Vec<u8> {
    let headers = frame(Kind::Headers, Flags::END_HEADERS, stream, &[0x88]);
    let data = frame(Kind::Data, Flags::NONE, stream, &[0, 0, 0, 0, 2, 0x08, code]);
    [headers, data, trailers(stream, b'0')].concat()
}

fn trailers(stream: u32, status: u8) -> Vec<u8> {
    last_headers(stream, &[b"\x00\x0bgrpc-status\x01", &[status][..]].concat())
}

#[test]
fn answers_are_read_in_any_order_wherever_the_bytes_are_cut() {
    let input = [answer(3, 2), answer(1, 1)].concat();
    for cut in 0..input.len() {
        let mut grpc = asked(2);
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
    let mut grpc = asked(1);
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
    // Trailers alone, which is how calls are refused.
    let refused = last_headers(1, b"\x88\x00\x0bgrpc-status\x018");
    assert_eq!(read(&mut asked(1), &refused).1, failed("a call ended with gRPC status 8"));
    let reset = frame(Kind::Reset, Flags::NONE, 1, &[0, 0, 0, 7]);
    let text = "the server cut a request off: refused stream";
    assert_eq!(read(&mut asked(1), &reset).1, failed(text));
    let text = "the server answered with HTTP status 404";
    assert_eq!(read(&mut asked(1), &last_headers(1, &[0x8d])).1, failed(text));
    let empty = [frame(Kind::Headers, Flags::END_HEADERS, 1, &[0x88]), trailers(1, b'0')].concat();
    assert_eq!(read(&mut asked(1), &empty).1, failed("a call was answered without a message"));
}
