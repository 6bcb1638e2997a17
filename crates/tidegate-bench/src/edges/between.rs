//! A server that only forwards: it reads a request, sends the same bytes on, and sends back what is answered, without a
//! runtime. It looks at nothing, and each of its connections has one of its own to the server behind. What it takes is
//! what reading and writing cost whoever stands between two.

use std::error::Error;
use std::io;
use std::net::SocketAddr;

use mio::net::TcpStream;

use super::behind::{EMPTY_LINE, kilobyte};
use super::polled::{self, Parts, Served};
use crate::wire::server::{Server, free_port};

/// How the benchmark starts it: with this word, a port, and the address of the server behind.
pub(crate) const SUBCOMMAND: &str = "edge-forward";

const CLIENT: usize = 0;

/// Starts it in a process of its own, on this core alone.
pub(super) fn start(name: &str, core: usize, behind: &Server) -> Result<Server, Box<dyn Error>> {
    let port = free_port()?;
    let words = [SUBCOMMAND.to_owned(), port.to_string(), behind.address().to_string()];
    Server::start(name, &std::env::current_exe()?, &words, port, core, &[])
}

/// Serves until the process is ended.
pub(crate) fn serve(port: &str, behind: &str) -> Result<(), Box<dyn Error>> {
    let (behind, answer_bytes) = (behind.parse::<SocketAddr>()?, kilobyte().len());
    polled::serve(port, |client| {
        let upstream = std::net::TcpStream::connect(behind)?;
        upstream.set_nodelay(true)?;
        upstream.set_nonblocking(true)?;
        let upstream = TcpStream::from_std(upstream);
        let [requests, answers] = [Parts::new(), Parts::new()];
        Ok(Pair { client, upstream, requests, answers, answer_bytes })
    })
}

struct Pair {
    client: TcpStream,
    upstream: TcpStream,
    requests: Parts,
    answers: Parts,
    answer_bytes: usize,
}

impl Served for Pair {
    fn streams(&mut self) -> Vec<&mut TcpStream> {
        vec![&mut self.client, &mut self.upstream]
    }

    fn read(&mut self, which: usize) -> io::Result<()> {
        let Self { client, upstream, requests, answers, answer_bytes } = self;
        if which == CLIENT {
            let is_whole = |come: &[u8]| come.ends_with(EMPTY_LINE);
            requests.read(client, is_whole, |_, come| polled::write(upstream, come))
        } else {
            let is_whole = |come: &[u8]| come.len() == *answer_bytes;
            answers.read(upstream, is_whole, |_, come| polled::write(client, come))
        }
    }
}
