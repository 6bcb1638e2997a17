//! Bytes to commands: the same commands however they arrive, the same as another implementation reads,
//! and an end where they make no sense.

use proptest::collection::vec;
use proptest::prelude::*;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;
use tidegate_server::resp::parse::{
    BULK_BYTES_MAX, Bounds, COMMAND_BYTES_MAX, INLINE_BYTES_MAX, PARTS_MAX, Parser, ProtocolError,
};

use crate::resp::talk::command;

type Words = Vec<Vec<u8>>;

/// The commands in these pieces, which arrive one after the other, and what ended it.
fn parsed(pieces: &[&[u8]]) -> (Vec<Words>, Option<ProtocolError>) {
    let (mut parser, mut kept, mut commands) = (Parser::new(), Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            let used = match parser.next(&mut kept, &Bounds::default()) {
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
                Ok(Some(command)) => {
                    if !command.is_empty() {
                        commands.push(command.parts_from(0).map(<[u8]>::to_vec).collect());
                    }
                    command.bytes()
                }
            };
            kept.drain(..used);
        }
    }
    (commands, None)
}

fn error(bytes: &[u8]) -> String {
    let (commands, error) = parsed(&[bytes]);
    assert_eq!(commands, Vec::<Words>::new());
    error.expect("an error").to_string()
}

/// Cuts at these places, of which there may be too many.
fn cut<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut places: Vec<usize> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    places.push(bytes.len());
    let mut start = 0;
    places.iter().map(|&end| &bytes[std::mem::replace(&mut start, end)..end]).collect()
}

fn words() -> impl Strategy<Value = Words> {
    vec(vec(any::<u8>(), 0..40), 1..8)
}

/// Bytes that are often nearly a command.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop_oneof![
        Just(b"*".to_vec()),
        Just(b"*1\r\n".to_vec()),
        Just(b"*2\r\n".to_vec()),
        Just(b"$".to_vec()),
        Just(b"$4\r\nPING\r\n".to_vec()),
        Just(b"$0\r\n\r\n".to_vec()),
        Just(b"-1".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"PING 'a b' \"\\x41\\n\"\r\n".to_vec()),
        vec(any::<u8>(), 0..4),
    ];
    vec(pieces, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_of_commands_gives_the_same_commands(
        commands in vec(words(), 1..10),
        places in vec(any::<usize>(), 0..20),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(command).collect();
        let (whole, error) = parsed(&[&bytes]);
        prop_assert_eq!(&whole, &commands);
        prop_assert_eq!(error, None);
        prop_assert_eq!(parsed(&cut(&bytes, &places)), (whole, None));
    }

    #[test]
    fn any_split_of_any_bytes_gives_the_same_commands_and_the_same_error(
        bytes in nearly(),
        places in vec(any::<usize>(), 0..20),
    ) {
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        let whole = parsed(&[&bytes]);
        prop_assert_eq!(&parsed(&cut(&bytes, &places)), &whole);
        prop_assert_eq!(&parsed(&each), &whole);
    }

    #[test]
    fn arrays_are_read_as_another_implementation_reads_them(words in words()) {
        let bytes = command(&words);
        let (frame, len) = decode(&bytes).expect("a frame").expect("a whole frame");
        let OwnedFrame::Array(frames) = frame else { panic!("{frame:?}") };
        let theirs: Words = frames.into_iter().map(|frame| match frame {
            OwnedFrame::BulkString(bytes) => bytes,
            other => panic!("{other:?}"),
        }).collect();
        let mut ours = bytes.clone();
        let mut parser = Parser::new();
        let ours = parser.next(&mut ours, &Bounds::default()).expect("a command").expect("all of it");
        prop_assert_eq!(ours.bytes(), len);
        prop_assert_eq!(ours.parts_from(0).map(<[u8]>::to_vec).collect::<Words>(), theirs);
    }
}

#[test]
fn lines_are_taken_apart_at_spaces_and_quotes() {
    let cases: [(&[u8], &[&[u8]]); 8] = [
        (b"PING\r\n", &[b"PING"]),
        (b"  PING \t a\n", &[b"PING", b"a"]),
        (b"a \"b c\" d\r\n", &[b"a", b"b c", b"d"]),
        (br#"a "\x41\x4a\n\"\\" b"#, &[b"a", b"AJ\n\"\\", b"b"]),
        (br"a 'b\'c \n' d", &[b"a", br"b'c \n", b"d"]),
        (br#"a "\xzz" """#, &[b"a", b"xzz", b""]),
        (br#"a b"c d""#, &[b"a", b"bc d"]),
        (b"a \xff\x00\r\n", &[b"a", b"\xff\x00"]),
    ];
    for (line, expected) in cases {
        let mut line = line.to_vec();
        if !line.ends_with(b"\n") {
            line.extend_from_slice(b"\r\n");
        }
        let (commands, error) = parsed(&[&line]);
        assert_eq!(error, None, "{}", line.escape_ascii());
        assert_eq!(commands, [expected.to_vec()], "{}", line.escape_ascii());
    }
}

#[test]
fn what_asks_for_nothing_is_passed_over() {
    let (commands, error) = parsed(&[b"\r\n\n  \r\n*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n"]);
    assert_eq!((commands, error), (vec![vec![b"PING".to_vec()]], None));
}

#[test]
fn what_cannot_be_a_command_is_refused_in_the_words_of_redis() {
    for (bytes, expected) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*+1\r\n", "invalid multibulk length"),
        (b"*-0\r\n", "invalid multibulk length"),
        (b"*1\n", "invalid multibulk length"),
        (b"*1\rx", "invalid multibulk length"),
        (b"*9223372036854775808\r\n", "invalid multibulk length"),
        (b"*12345678901234567890", "too big mbulk count string"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"*1\r\n\r\n", "expected '$', got ' '"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$04\r\n", "invalid bulk length"),
        (b"*1\r\n$12345678901234567890", "too big bulk count string"),
        (b"*1\r\n$4\r\nPINGxx", "expected CRLF after bulk"),
        (b"*1\r\n$4\r\nPING\rx", "expected CRLF after bulk"),
        (b"\"abc\r\n", "unbalanced quotes in request"),
        (b"PING 'a'b\r\n", "unbalanced quotes in request"),
    ] {
        assert_eq!(error(bytes), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn what_is_more_than_may_be_is_refused_as_soon_as_it_is_announced() {
    let too_many = format!("*{}\r\n", PARTS_MAX + 1);
    assert_eq!(error(too_many.as_bytes()), "invalid multibulk length");
    let too_long = format!("*1\r\n${}\r\n", BULK_BYTES_MAX + 1);
    assert_eq!(error(too_long.as_bytes()), "invalid bulk length");
    let longest = vec![b'x'; BULK_BYTES_MAX];
    let parts = COMMAND_BYTES_MAX / BULK_BYTES_MAX + 1;
    let too_much = command(vec![&longest; parts]);
    assert_eq!(error(&too_much[..COMMAND_BYTES_MAX]), "too big request");
    assert_eq!(error(&vec![b'a'; INLINE_BYTES_MAX + 1]), "too big inline request");
    assert_eq!(
        error(&[&b"a ".repeat(PARTS_MAX + 1)[..], b"\n"].concat()),
        "too big inline request"
    );
}

#[test]
fn the_most_that_may_be_is_read() {
    let longest = vec![b'x'; BULK_BYTES_MAX];
    assert_eq!(parsed(&[&command([&longest])]).0, [vec![longest]]);
    let most = vec![b"x".to_vec(); PARTS_MAX];
    assert_eq!(parsed(&[&command(&most)]).0, [most]);
    let line = [&vec![b'a'; INLINE_BYTES_MAX - 1][..], b"\r\n"].concat();
    assert_eq!(parsed(&[&line]).0, [vec![vec![b'a'; INLINE_BYTES_MAX - 1]]]);
}
