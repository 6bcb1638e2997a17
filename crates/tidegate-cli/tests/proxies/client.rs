//! A client of one proxy, from an address of its own.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// Longer than any answer takes, so that a proxy that hangs fails its test.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Whoever is on this machine has a whole network of addresses.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) from: Ipv4Addr,
    pub(crate) port: u16,
}

/// A connection that is kept from one request to the next.
pub(crate) struct Connection(BufReader<TcpStream>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn get(self, path: &str) -> Answer {
        self.send("GET", path, &[], "")
    }

    pub(crate) fn post(self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[], body)
    }

    /// One request over a connection of its own.
    pub(crate) fn send(
        self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let answer = self.connect().and_then(|mut there| there.send(method, path, headers, body));
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn connect(self) -> io::Result<Connection> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((self.from, 0)).into())?;
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)).into())?;
        socket.set_read_timeout(Some(ANSWER_WITHIN))?;
        Ok(Connection(BufReader::new(socket.into())))
    }
}

impl Connection {
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        write!(bytes, "{method} {path} HTTP/1.1\r\nHost: shop.example\r\n")?;
        for (name, value) in headers {
            write!(bytes, "{name}: {value}\r\n")?;
        }
        write!(bytes, "Content-Length: {}\r\n\r\n{body}", body.len())?;
        self.0.get_mut().write_all(&bytes)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Answer> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut answer =
            Answer { status: status.ok_or_else(bad)?, headers: Vec::new(), body: String::new() };
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(bad)?;
            answer.headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        if answer.header("transfer-encoding").is_some() {
            loop {
                let length = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
                answer.body += &self.text(length)?;
                self.line()?;
                if length == 0 {
                    break;
                }
            }
        } else {
            let length = answer.header("content-length").unwrap_or("0");
            answer.body = self.text(length.parse().map_err(io::Error::other)?)?;
        }
        Ok(answer)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn text(&mut self, length: usize) -> io::Result<String> {
        let mut bytes = vec![0; length];
        self.0.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(io::Error::other)
    }
}

impl Answer {
    /// The value of a header that must be there at most once.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(found, _)| found == name);
        let value = values.next();
        assert_eq!(values.next(), None, "two of one header in {self:#?}");
        value.map(|(_, value)| value.as_str())
    }
}
