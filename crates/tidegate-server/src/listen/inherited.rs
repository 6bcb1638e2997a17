//! Sockets that a service manager has opened before the daemon was started: systemd's socket activation.
//! They are told apart by their names, `http`, `grpc`, `resp`, `admin` and `gateway`, or, where no socket has one of
//! these, by that order.

use std::fmt;
use std::io;

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use super::{Listener, Service};

/// The variable with the names of the sockets.
const NAMES: &str = "LISTEN_FDNAMES";

/// The sockets, each with what it is for.
#[derive(Debug, Default)]
pub struct Inherited {
    sockets: Vec<(Service, Socket)>,
}

#[derive(Debug)]
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Inherited {
    /// The sockets that the environment tells of. Call it once, before anything else opens files.
    pub fn from_env() -> Result<Self, InheritedError> {
        let mut given = ListenFd::from_env();
        let names = std::env::var(NAMES).unwrap_or_default();
        let services = services(&names, given.len())?;
        let sockets = services.into_iter().enumerate();
        let sockets = sockets.map(|(index, service)| Ok((service, take(&mut given, index)?)));
        sockets.collect::<Result<_, _>>().map(|sockets| Self { sockets })
    }

    /// No sockets.
    pub fn none() -> Self {
        Self::default()
    }

    /// The socket for a service, if there is one. Must be called within a runtime.
    pub fn take(&mut self, service: Service) -> Option<io::Result<Listener>> {
        let at = self.sockets.iter().position(|(known, _)| *known == service)?;
        Some(match self.sockets.swap_remove(at).1 {
            Socket::Tcp(socket) => socket
                .set_nonblocking(true)
                .and_then(|()| TcpListener::from_std(socket))
                .map(Listener::Tcp),
            Socket::Unix(socket) => socket
                .set_nonblocking(true)
                .and_then(|()| UnixListener::from_std(socket))
                .map(Listener::Unix),
        })
    }
}

fn take(given: &mut ListenFd, index: usize) -> Result<Socket, InheritedError> {
    if let Ok(Some(socket)) = given.take_tcp_listener(index) {
        return Ok(Socket::Tcp(socket));
    }
    match given.take_unix_listener(index) {
        Ok(Some(socket)) => Ok(Socket::Unix(socket)),
        Ok(None) | Err(_) => Err(InheritedError::Kind { index }),
    }
}

/// What each of `count` sockets is for.
fn services(names: &str, count: usize) -> Result<Vec<Service>, InheritedError> {
    let all = || Service::ALL.into_iter().chain([Service::Gateway]);
    let named = |name: &str| all().find(|service| service.name() == name);
    let names: Vec<&str> = names.split(':').collect();
    let services: Vec<Service> = if names.iter().any(|name| named(name).is_some()) {
        let each = names.iter().map(|name| {
            named(name).ok_or_else(|| InheritedError::Name { name: (*name).to_owned() })
        });
        each.collect::<Result<_, _>>()?
    } else {
        Service::ALL.into_iter().take(count).collect()
    };
    if services.len() != count {
        return Err(InheritedError::Count { count });
    }
    match services.iter().enumerate().find(|(index, one)| services[..*index].contains(one)) {
        Some((_, service)) => Err(InheritedError::Twice { service: *service }),
        None => Ok(services),
    }
}

/// Why the sockets of a service manager cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InheritedError {
    /// There are more sockets than services, or not as many as names.
    Count {
        /// How many there are.
        count: usize,
    },
    /// One has a name that says nothing, and others have one that does.
    Name {
        /// The name.
        name: String,
    },
    /// Two are for one service.
    Twice {
        /// The service.
        service: Service,
    },
    /// One is neither a TCP socket nor a stream socket in the file system.
    Kind {
        /// Which one, counted from 0.
        index: usize,
    },
}

impl fmt::Display for InheritedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sockets of the service manager cannot be used: ")?;
        let name = "name each with FileDescriptorName=http, grpc, resp or admin";
        match self {
            Self::Count { count } => write!(f, "there are {count}: {name}"),
            Self::Name { name: unknown } => {
                write!(f, "one is called `{}`: {name}", unknown.escape_debug())
            }
            Self::Twice { service } => write!(f, "two are called `{}`: {name}", service.name()),
            Self::Kind { index } => {
                write!(f, "number {index} is no stream socket: use ListenStream=")
            }
        }
    }
}

impl std::error::Error for InheritedError {}

#[cfg(test)]
mod tests {
    use super::*;
    use Service::{Admin, Grpc, Http, Resp};

    #[test]
    fn sockets_are_told_apart_by_their_names() {
        assert_eq!(services("admin:http", 2), Ok(vec![Admin, Http]));
        assert_eq!(services("resp", 1), Ok(vec![Resp]));
    }

    #[test]
    fn without_names_the_order_counts() {
        assert_eq!(services("", 0), Ok(vec![]));
        assert_eq!(services("", 2), Ok(vec![Http, Grpc]));
        // What systemd calls sockets whose unit says nothing.
        assert_eq!(services("tidegate.socket:tidegate.socket", 2), Ok(vec![Http, Grpc]));
        assert_eq!(services("unknown", 1), Ok(vec![Http]));
        assert_eq!(services("", 4), Ok(vec![Http, Grpc, Resp, Admin]));
    }

    #[test]
    fn what_is_unclear_is_refused() {
        let name = "other".to_owned();
        assert_eq!(services("http:other", 2), Err(InheritedError::Name { name }));
        assert_eq!(services("http:http", 2), Err(InheritedError::Twice { service: Http }));
        assert_eq!(services("", 5), Err(InheritedError::Count { count: 5 }));
        assert_eq!(services("http:grpc", 3), Err(InheritedError::Count { count: 3 }));
    }
}
