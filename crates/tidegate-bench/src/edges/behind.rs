//! A server that only answers: it reads, finds where a request ends, and sends the same bytes back, without a runtime.
//! Behind a gateway it is the upstream, since one that does more would be measured with whatever stands in front of it.
//! In the gateway's place, with the gateway's own bytes, it shows what reading and writing cost whoever answers.

use std::error::Error;
use std::io::{self, Read as _};

use mio::net::TcpStream;

use super::polled::{self, Parts, Served};
use crate::wire::server::{Server, free_port};

/// How the benchmark starts it: with this word, a port, and the answer on standard input.
pub(crate) const SUBCOMMAND: &str = "edge-answer";

/// How long the answers of an upstream are, without their heads.
const BODY_BYTES: usize = 1024;
pub(super) const EMPTY_LINE: &[u8] = b"\r\n\r\n";

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
    let mut given = Vec::new();
    io::stdin().read_to_end(&mut given)?;
    let given = &given[..];
    polled::serve(port, |stream| {
        Ok(Connection { stream, requests: Parts::new(), given, answers: Vec::new() })
    })
}

struct Connection<'a> {
    stream: TcpStream,
    requests: Parts,
    given: &'a [u8],
    answers: Vec<u8>,
}

impl Served for Connection<'_> {
    fn streams(&mut self) -> Vec<&mut TcpStream> {
        vec![&mut self.stream]
    }

    fn read(&mut self, _which: usize) -> io::Result<()> {
        let Self { stream, requests, given, answers } = self;
        // They have no bodies. One of which a part has come waits for the rest, and so do those before it.
        let are_whole = |come: &[u8]| come.ends_with(EMPTY_LINE);
        requests.read(stream, are_whole, |stream, come| {
            let ends = come.windows(EMPTY_LINE.len()).filter(|four| *four == EMPTY_LINE);
            let count = ends.count();
            if count == 1 {
                return polled::write(stream, given);
            }
            answers.clear();
            (0..count).for_each(|_| answers.extend_from_slice(given));
            polled::write(stream, answers)
        })
    }
}
