//! A server that only answers: it finds where a request ends, sends the same bytes back, and does nothing else. Behind
//! a gateway it is the upstream, since one that does more would be measured with whatever stands in front of it. In the
//! gateway's place, with the gateway's own bytes, it shows what reading and writing cost whoever answers.

use std::error::Error;
use std::io::{ErrorKind, Read as _};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::wire::server::{Server, free_port, local};

/// How the benchmark starts it: with this word, a port, and the answer on standard input.
pub(crate) const SUBCOMMAND: &str = "edge-answer";

/// How long the answers of an upstream are, without their heads.
const BODY_BYTES: usize = 1024;
/// The most bytes of requests that come together.
const HEADS_BYTES_MAX: usize = 8 << 10;
const EMPTY_LINE: &[u8] = b"\r\n\r\n";

/// Starts it in a process of its own, on this core alone.
pub(super) fn start(name: &str, core: usize, answer: &[u8]) -> Result<Server, Box<dyn Error>> {
    let port = free_port()?;
    let words = [SUBCOMMAND.to_owned(), port.to_string()];
    Server::start(name, &std::env::current_exe()?, &words, port, core, answer)
}

/// What an upstream answers.
pub(super) fn kilobyte() -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {BODY_BYTES}\r\n\
         date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
    );
    [head.as_bytes(), &[b'x'; BODY_BYTES]].concat()
}

/// Serves until the process is ended.
pub(crate) fn serve(port: &str) -> Result<(), Box<dyn Error>> {
    let address = local(port.parse()?);
    let mut given = Vec::new();
    std::io::stdin().read_to_end(&mut given)?;
    let given: Arc<[u8]> = given.into();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let given = Arc::clone(&given);
            tokio::spawn(async move {
                // A connection that breaks was the other end's to keep.
                if let Err(error) = answer(stream, &given).await
                    && error.kind() == ErrorKind::InvalidData
                {
                    eprintln!("a request is longer than {HEADS_BYTES_MAX} bytes");
                }
            });
        }
    })
}

async fn answer(mut stream: TcpStream, given: &[u8]) -> std::io::Result<()> {
    let (mut buffer, mut length) = (vec![0; HEADS_BYTES_MAX], 0);
    let mut several = Vec::new();
    loop {
        let read = stream.read(&mut buffer[length..]).await?;
        if read == 0 {
            // Either the other end has closed, or it sends more than anybody measures here.
            return if length < buffer.len() { Ok(()) } else { Err(ErrorKind::InvalidData.into()) };
        }
        length += read;
        let requests = &buffer[..length];
        // They have no bodies. One of which a part has come waits for the rest, and so do those before it.
        if !requests.ends_with(EMPTY_LINE) {
            continue;
        }
        let count = requests.windows(EMPTY_LINE.len()).filter(|four| *four == EMPTY_LINE).count();
        if count == 1 {
            stream.write_all(given).await?;
        } else {
            several.clear();
            (0..count).for_each(|_| several.extend_from_slice(given));
            stream.write_all(&several).await?;
        }
        length = 0;
    }
}
