//! A server that only answers: it waits for sockets, reads, finds where a request ends, and sends the same bytes back. It has
//! no runtime, so that nothing is left to save but what the system takes. Behind a gateway it is the upstream, since one
//! that does more would be measured with whatever stands in front of it. In the gateway's place, with the gateway's own
//! bytes, it shows what reading and writing cost whoever answers.

use std::error::Error;
use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

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
    const EVENTS_MAX: usize = 256;
    const LISTENER: Token = Token(usize::MAX);
    let mut given = Vec::new();
    io::stdin().read_to_end(&mut given)?;
    let mut listener = TcpListener::bind(local(port.parse()?))?;
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(EVENTS_MAX));
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut connections: Vec<Option<Connection>> = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Some(connection) = Connection::accept(&listener)? {
                    let free = connections.iter().position(Option::is_none);
                    let place = free.unwrap_or(connections.len());
                    if free.is_none() {
                        connections.push(None);
                    }
                    let taken = connections[place].insert(connection);
                    let registry = poll.registry();
                    registry.register(&mut taken.stream, Token(place), Interest::READABLE)?;
                }
                continue;
            }
            let place = &mut connections[event.token().0];
            let broke = place.as_mut().is_some_and(|connection| connection.answer(&given).is_err());
            // A connection that breaks was the other end's to keep.
            if broke || event.is_read_closed() {
                *place = None;
            }
        }
    }
}

/// A connection, and what has come over it of requests that are not answered.
struct Connection {
    stream: TcpStream,
    heads: Vec<u8>,
    length: usize,
    answers: Vec<u8>,
}

impl Connection {
    /// `None` where nobody waits any more.
    fn accept(listener: &TcpListener) -> io::Result<Option<Self>> {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nodelay(true)?;
                let heads = vec![0; HEADS_BYTES_MAX];
                Ok(Some(Self { stream, heads, length: 0, answers: Vec::new() }))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads once where that is all there is, and answers once. The end of a connection is an error.
    fn answer(&mut self, given: &[u8]) -> io::Result<()> {
        loop {
            let room = self.heads.len() - self.length;
            let read = match self.stream.read(&mut self.heads[self.length..]) {
                Ok(0) if room == 0 => {
                    eprintln!("a request is longer than {HEADS_BYTES_MAX} bytes");
                    return Err(ErrorKind::InvalidData.into());
                }
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.length += read;
            let requests = &self.heads[..self.length];
            // They have no bodies. One of which a part has come waits for the rest, and so do those before it.
            if requests.ends_with(EMPTY_LINE) {
                let ends = requests.windows(EMPTY_LINE.len()).filter(|four| *four == EMPTY_LINE);
                let count = ends.count();
                self.length = 0;
                self.send(given, count)?;
            }
            // The system tells of more.
            if read < room {
                return Ok(());
            }
        }
    }

    fn send(&mut self, given: &[u8], count: usize) -> io::Result<()> {
        let Self { stream, answers, .. } = self;
        let mut left = if count == 1 {
            given
        } else {
            answers.clear();
            (0..count).for_each(|_| answers.extend_from_slice(given));
            answers
        };
        while !left.is_empty() {
            match stream.write(left) {
                Ok(written) => left = &left[written..],
                // Whoever puts load on it reads all the time, so that this is soon over.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
