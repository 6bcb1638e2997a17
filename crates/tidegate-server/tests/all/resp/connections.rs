//! Connections: halves of commands, long pipelines, nonsense, clients that are slow at either end, and
//! the end of it all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_server::resp::{self, OUTPUT_BYTES_MAX, RespSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::resp::talk::{RULES, Talk, command, replies};
use crate::support::Daemon;

/// How long anything may take before a test has failed.
const DEADLINE: Duration = Duration::from_mins(1);
const THROTTLED: &[u8] = b"*5\r\n:0\r\n:16\r\n:15\r\n:-1\r\n:2\r\n";

/// A daemon that listens, with these settings.
async fn listening(settings: RespSettings) -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let settings = Arc::new(settings);
    let serve = move |engine, stream, peer, drain| {
        resp::serve_with(engine, Arc::clone(&settings), stream, peer, drain)
    };
    let address = daemon.listen(serve).await;
    (daemon, address)
}

/// A client that waits for nothing longer than the deadline.
struct Client(TcpStream);

impl Client {
    async fn new(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.expect("a connection"))
    }

    async fn send(&mut self, bytes: &[u8]) {
        timeout(DEADLINE, self.0.write_all(bytes)).await.expect("in time").expect("sent");
    }

    /// The next bytes are these.
    async fn expect(&mut self, expected: &[u8]) {
        let mut bytes = vec![0; expected.len()];
        let read = timeout(DEADLINE, self.0.read_exact(&mut bytes)).await.expect("in time");
        read.expect("a reply");
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    /// All that comes before the end.
    async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = timeout(DEADLINE, self.0.read_to_end(&mut bytes)).await.expect("in time");
        read.expect("an end");
        bytes
    }
}

#[tokio::test]
async fn a_command_may_come_byte_by_byte() {
    let (_daemon, address) = listening(RespSettings::new()).await;
    let mut client = Client::new(address).await;
    client.0.set_nodelay(true).expect("a socket");
    for byte in command(["CL.THROTTLE", "user123", "15", "30", "60"]) {
        client.send(&[byte]).await;
    }
    client.expect(THROTTLED).await;
    for byte in b"PING hello\r\n" {
        client.send(&[*byte]).await;
    }
    client.expect(b"$5\r\nhello\r\n").await;
}

#[tokio::test]
async fn pipelines_of_thousands_are_answered_in_order() {
    const COMMANDS: usize = 20_000;
    let (_daemon, address) = listening(RespSettings::new()).await;
    let (mut reading, mut writing) = Client::new(address).await.0.into_split();
    let sender = tokio::spawn(async move {
        for number in 0..COMMANDS {
            let number = number.to_string();
            let both =
                [command(["CL.THROTTLE", &number, "15", "30", "60"]), command(["ECHO", &number])];
            writing.write_all(&both.concat()).await.expect("sent");
        }
        writing
    });
    for number in 0..COMMANDS {
        let text = number.to_string();
        let expected = [THROTTLED, format!("${}\r\n{text}\r\n", text.len()).as_bytes()].concat();
        let mut bytes = vec![0; expected.len()];
        let read = timeout(DEADLINE, reading.read_exact(&mut bytes)).await.expect("in time");
        read.expect("a reply");
        assert_eq!(bytes, expected, "command {number}");
    }
    drop(sender.await.expect("all sent"));
}

#[tokio::test]
async fn a_pipeline_is_answered_in_one_write() {
    const COMMANDS: usize = 64;
    let (_daemon, address) = listening(RespSettings::new()).await;
    let mut client = Client::new(address).await;
    client.0.set_nodelay(true).expect("a socket");
    // Several writes could end up in one read now and then, but not in every one of these.
    for round in 0..50 {
        let one = |number| command(["CL.THROTTLE", &format!("{round}:{number}"), "15", "30", "60"]);
        client.send(&(0..COMMANDS).flat_map(one).collect::<Vec<u8>>()).await;
        let mut bytes = vec![0; COMMANDS * THROTTLED.len()];
        let read = timeout(DEADLINE, client.0.read(&mut bytes)).await.expect("in time");
        assert_eq!(read.expect("replies"), bytes.len(), "round {round}");
        assert_eq!(bytes, THROTTLED.repeat(COMMANDS));
    }
}

#[tokio::test]
async fn nonsense_gets_an_error_and_the_connection_ends() {
    let (_daemon, address) = listening(RespSettings::new()).await;
    for (said, expected) in [
        (&b"PING\r\n*1\r\nnonsense"[..], "+PONG\r\n-ERR Protocol error: expected '$', got 'n'\r\n"),
        (b"*1\r\n$99999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*99999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (&vec![b'x'; 100_000], "-ERR Protocol error: too big inline request\r\n"),
        (&b"*1\r\n$65537\r\n".repeat(10_000), "-ERR Protocol error: invalid bulk length\r\n"),
        (b"PING\r\nQUIT\r\nPING\r\n", "+PONG\r\n+OK\r\n"),
    ] {
        let mut client = Client::new(address).await;
        client.send(said).await;
        assert_eq!(String::from_utf8_lossy(&client.rest().await), expected);
    }
}

#[tokio::test]
async fn random_bytes_end_in_an_error_or_in_silence_and_harm_nobody() {
    let (_daemon, address) = listening(RespSettings::new()).await;
    let mut good = Client::new(address).await;
    let mut state = 1_u64;
    for round in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..round * 8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.push((state >> 33) as u8);
        }
        let mut bad = Client::new(address).await;
        // It may be gone before all of it is sent, which is as it should be.
        let _ = bad.0.write_all(&bytes).await;
        let _ = bad.0.shutdown().await;
        let _ = timeout(DEADLINE, bad.0.read_to_end(&mut Vec::new())).await.expect("in time");
        good.send(b"PING\r\n").await;
        good.expect(b"+PONG\r\n").await;
    }
}

#[tokio::test]
async fn slow_senders_are_sent_away_while_others_are_served() {
    let mut settings = RespSettings::new();
    settings.stall_timeout = Duration::from_millis(100);
    let (_daemon, address) = listening(settings).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut client = Client::new(address).await;
        client.send(b"*5\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser").await;
        slow.push(client);
    }
    let mut good = Client::new(address).await;
    let said = command(["CL.THROTTLE", "k", "1000000", "1", "1", "0"]);
    let served = tokio::spawn(async move {
        for _ in 0..1_000 {
            good.send(&said).await;
            good.expect(b"*5\r\n:0\r\n:1000001\r\n:1000001\r\n:-1\r\n:0\r\n").await;
        }
        good
    });
    for mut client in slow {
        assert_eq!(client.rest().await, b"", "half a command is answered with nothing");
    }
    // Between commands there is all the time in the world.
    let mut good = served.await.expect("all served");
    good.send(b"PING\r\n").await;
    good.expect(b"+PONG\r\n").await;
}

#[tokio::test]
async fn a_sender_that_never_finishes_is_sent_away_however_busy_it_looks() {
    let mut settings = RespSettings::new();
    settings.stall_timeout = Duration::from_millis(100);
    let (_daemon, address) = listening(settings).await;
    let mut client = Client::new(address).await;
    client.send(b"*1\r\n$60000\r\n").await;
    // A byte now and then: the server has to lose its patience before the command is whole.
    let gone = async {
        let mut ignored = [0; 1];
        loop {
            tokio::select! {
                read = client.0.read(&mut ignored) => return read,
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    let _ = client.0.try_write(b"x");
                }
            }
        }
    };
    let read = timeout(DEADLINE, gone).await.expect("in time");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn silence_ends_a_connection_only_where_it_is_set_to() {
    let mut settings = RespSettings::new();
    settings.idle_timeout = Some(Duration::from_millis(50));
    let (_daemon, address) = listening(settings).await;
    let mut client = Client::new(address).await;
    client.send(b"PING\r\n").await;
    client.expect(b"+PONG\r\n").await;
    assert_eq!(client.rest().await, b"");
}

#[test]
fn answers_wait_until_there_is_room_for_them() {
    let mut talk = Talk::new();
    let commands = 10_000;
    let said = command(["COMMAND", "DOCS"]).repeat(commands);
    let one = talk.asks("COMMAND DOCS").len();
    let most = talk.most_at_once(&said);
    assert!(most < OUTPUT_BYTES_MAX + one, "{most} bytes were answered at once");
    assert_eq!(replies(&talk.bytes(&said), 2), commands);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from_and_loses_nothing() {
    let (_daemon, address) = listening(RespSettings::new()).await;
    let (mut reading, mut writing) = Client::new(address).await.0.into_split();
    let one = command(["ECHO", &"x".repeat(1_000)]);
    let said = one.repeat(100);
    // It writes until nothing is taken any more: the server has stopped reading.
    let mut sent = 0;
    let stuck = Duration::from_millis(500);
    while let Ok(written) = timeout(stuck, writing.write(&said[sent % said.len()..])).await {
        sent += written.expect("written");
        assert!(sent < 64 << 20, "the server reads on, and keeps the answers to {sent} bytes");
    }
    drop(writing);
    let mut bytes = Vec::new();
    timeout(DEADLINE, reading.read_to_end(&mut bytes)).await.expect("in time").expect("an end");
    assert_eq!(replies(&bytes, 2), sent / one.len());
}

#[tokio::test]
async fn draining_answers_what_was_sent_and_then_closes() {
    let (daemon, address) = listening(RespSettings::new()).await;
    let (mut idle, mut half) = (Client::new(address).await, Client::new(address).await);
    idle.send(b"PING\r\n").await;
    idle.expect(b"+PONG\r\n").await;
    half.send(b"PING\r\n*1\r\n$4\r\nPI").await;
    half.expect(b"+PONG\r\n").await;
    let mut busy = Client::new(address).await;
    let said = b"COMMAND DOCS\r\n".repeat(1_000);
    busy.send(&said).await;
    // One byte of the first answer: the rest of what was sent is being answered, or waits.
    busy.expect(b"*").await;
    daemon.drain.cancel();
    assert_eq!(idle.rest().await, b"");
    assert_eq!(half.rest().await, b"");
    let answered = [b"*".to_vec(), busy.rest().await].concat();
    assert!(replies(&answered, 2) > 0, "answers are whole");
}
