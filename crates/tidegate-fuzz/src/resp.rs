//! The protocol of Redis: any bytes are the same commands however they arrive, an array that is read is
//! spelled in one way, and whatever is said gets whole replies, at most as much at once as may be.
//!
//! The first byte of the input says how the rest is cut into reads.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::{ParseOptions, Source};
use tidegate_server::controls::Controls;
use tidegate_server::resp::conversation::{Conversation, Desk, Next};
use tidegate_server::resp::parse::{Bounds, COMMAND_BYTES_MAX, Parser, ProtocolError};
use tidegate_server::resp::{OUTPUT_BYTES_MAX, RespSettings};
use tidegate_server::{Engine, EngineClock};

/// More than any one reply is, but for one that repeats what it was given.
const REPLY_BYTES_MAX: usize = 16 << 10;
/// The deepest that replies are nested, and some more.
const DEPTH_MAX: usize = 8;

const RULES: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [ip], limit: 2/minute }
  - { name: jobs, match: { path: /jobs }, per: [user], limit: 2 at once for 30s }
  - { name: all, per: [user], limits: [ 10/s, 100/minute ] }
";

static ENGINE: LazyLock<Arc<Engine>> = LazyLock::new(|| {
    let checked = RuleSet::parse(&[Source::new("rules.yaml", RULES)], &ParseOptions::default());
    let rules = checked.unwrap_or_else(|report| panic!("{report}")).rules;
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    let limiter = RuleLimiter::builder(rules).clock(EngineClock::Manual(clock)).build();
    let limiter = limiter.unwrap_or_else(|error| panic!("{error}"));
    let identity = Identity::new(IdentityConfig::new(*b"any secret at al"));
    let identity = identity.unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Engine::new(limiter, identity, Controls::default()))
});

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let size = usize::from(size).max(1);
    let whole = commands(bytes, bytes.len().max(1));
    assert_eq!(commands(bytes, size), whole, "cut at every {size}");
    converse(bytes, size);
}

type Commands = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// The commands of a stream that arrives in pieces of `size`, and what ended it.
fn commands(bytes: &[u8], size: usize) -> Commands {
    let (mut parser, mut kept, mut read) = (Parser::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(size) {
        kept.extend_from_slice(piece);
        loop {
            let before = kept.clone();
            let used = match parser.next(&mut kept, &Bounds::default()) {
                Ok(None) => break,
                Err(error) => return (read, Some(error)),
                Ok(Some(command)) => {
                    let used = command.bytes();
                    assert!((1..=COMMAND_BYTES_MAX + 2).contains(&used), "{used} bytes");
                    let parts: Vec<Vec<u8>> = command.parts_from(0).map(<[u8]>::to_vec).collect();
                    if before[0] == b'*' && !parts.is_empty() {
                        assert_eq!(array(&parts), before[..used]);
                    }
                    read.push(parts);
                    used
                }
            };
            kept.drain(..used);
        }
        assert!(kept.len() <= COMMAND_BYTES_MAX, "{} bytes of half a command", kept.len());
    }
    (read, None)
}

fn array(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        bytes.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Says it all to a server, and reads what comes back.
fn converse(bytes: &[u8], size: usize) {
    let settings = Arc::new(RespSettings::new());
    let mut conversation = Conversation::new(Arc::clone(&ENGINE), settings, None);
    let mut desk = Desk::default();
    let output_max = OUTPUT_BYTES_MAX + REPLY_BYTES_MAX + bytes.len();
    let mut pieces = bytes.chunks(size);
    let mut next = Next::Listen;
    loop {
        next = match next {
            Next::Close => return,
            Next::Resume => conversation.hear(&mut [], &mut desk),
            Next::Listen => match pieces.next() {
                Some(piece) => conversation.hear(&mut piece.to_vec(), &mut desk),
                None => return,
            },
        };
        assert!(desk.output.len() <= output_max, "{} bytes at once", desk.output.len());
        let mut rest = &desk.output[..];
        while !rest.is_empty() {
            let after = reply(rest, DEPTH_MAX);
            rest = after.unwrap_or_else(|| panic!("no reply: {}", rest.escape_ascii()));
        }
        desk.output.clear();
    }
}

/// What follows the reply that begins the bytes; `None` where there is no whole one.
fn reply(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let (&mark, rest) = bytes.split_first()?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&rest[..end], &rest[end + 2..]);
    let number = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let several = |count: usize| {
        let depth = depth.checked_sub(1)?;
        (0..count).try_fold(rest, |rest, _| reply(rest, depth))
    };
    match mark {
        b'+' | b'-' => Some(rest),
        b':' => number().map(|_| rest),
        b'_' => line.is_empty().then_some(rest),
        b'#' => matches!(line, b"t" | b"f").then_some(rest),
        b'$' if line == b"-1" => Some(rest),
        b'$' | b'=' => {
            let len = usize::try_from(number()?).ok()?;
            rest.get(len..)?.strip_prefix(b"\r\n")
        }
        b'*' | b'~' => several(usize::try_from(number()?).ok()?),
        b'%' => several(2 * usize::try_from(number()?).ok()?),
        _ => None,
    }
}
