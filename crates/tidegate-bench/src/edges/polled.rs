//! A loop around the system's poll, for servers that have no runtime, so that nothing is left to save but what the system
//! takes; and what both of them do with a connection.

use std::error::Error;
use std::io::{self, ErrorKind, Read as _, Write as _};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::wire::server::local;

/// How many connections belong to one of a client at most, itself included.
const STREAMS_MAX: usize = 2;
/// The most bytes that come together and are waited for to be whole.
const PART_BYTES_MAX: usize = 8 << 10;

/// A connection of a client, and those that belong to it.
pub(super) trait Served {
    /// All of them, in an order that stays.
    fn streams(&mut self) -> Vec<&mut TcpStream>;

    /// One of them has something to read. An error is the end of all.
    fn read(&mut self, which: usize) -> io::Result<()>;
}

/// Serves until the process is ended.
pub(super) fn serve<S: Served>(
    port: &str,
    accepted: impl Fn(TcpStream) -> io::Result<S>,
) -> Result<(), Box<dyn Error>> {
    const EVENTS_MAX: usize = 256;
    const LISTENER: Token = Token(usize::MAX);
    let mut listener = TcpListener::bind(local(port.parse()?))?;
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(EVENTS_MAX));
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut all: Vec<Option<S>> = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Some(stream) = accept(&listener)? {
                    let free = all.iter().position(Option::is_none);
                    let place = free.unwrap_or(all.len());
                    if free.is_none() {
                        all.push(None);
                    }
                    let taken = all[place].insert(accepted(stream)?);
                    for (which, stream) in taken.streams().into_iter().enumerate() {
                        let token = Token(place * STREAMS_MAX + which);
                        poll.registry().register(stream, token, Interest::READABLE)?;
                    }
                }
                continue;
            }
            let Token(token) = event.token();
            let place = &mut all[token / STREAMS_MAX];
            let broke = place.as_mut().is_some_and(|it| it.read(token % STREAMS_MAX).is_err());
            // A connection that breaks was the other end's to keep.
            if broke || event.is_read_closed() {
                *place = None;
            }
        }
    }
}

/// `None` where nobody waits any more.
fn accept(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((stream, _)) => {
            stream.set_nodelay(true)?;
            Ok(Some(stream))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has come over a connection and is not whole.
pub(super) struct Parts {
    bytes: Vec<u8>,
    length: usize,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; PART_BYTES_MAX], length: 0 }
    }

    /// Reads once where that is all there is, and hands over what has come as soon as it is whole. The end of a connection
    /// is an error.
    pub(super) fn read(
        &mut self,
        stream: &mut TcpStream,
        is_whole: impl Fn(&[u8]) -> bool,
        mut take: impl FnMut(&mut TcpStream, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            let room = self.bytes.len() - self.length;
            let read = match stream.read(&mut self.bytes[self.length..]) {
                Ok(0) if room == 0 => {
                    eprintln!("a message is longer than {PART_BYTES_MAX} bytes");
                    return Err(ErrorKind::InvalidData.into());
                }
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.length += read;
            let come = &self.bytes[..self.length];
            if is_whole(come) {
                take(stream, come)?;
                self.length = 0;
            }
            // The system tells of more.
            if read < room {
                return Ok(());
            }
        }
    }
}

pub(super) fn write(stream: &mut TcpStream, mut left: &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        match stream.write(left) {
            Ok(written) => left = &left[written..],
            // Whoever is at the other end reads all the time, so that this is soon over.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
