//! An address to a socket that listens. Sockets in the file system are made for one group of users, take
//! the place of one that nobody answers on, and are removed again.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use super::{Address, Listener, Service};

/// How many connections the system keeps for us before they are accepted. It has a bound of its own, which
/// is often lower.
const BACKLOG: i32 = 4096;
/// Who may connect to a socket in the file system: its user and its group.
const UNIX_MODE: u32 = 0o660;

/// A socket that listens, and what to remove when it does not any more.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub listener: Listener,
    /// Where it is in the file system.
    pub file: Option<SocketFile>,
}

/// Listens at an address; `None` where that is nowhere.
pub fn bind(service: Service, address: &Address) -> Result<Option<Bound>, BindError> {
    let bound = match address {
        Address::Off => return Ok(None),
        Address::Tcp(tcp) => {
            bind_tcp(*tcp).map(|listener| Bound { listener: Listener::Tcp(listener), file: None })
        }
        Address::Unix(path) => bind_unix(path)
            .map(|(listener, file)| Bound { listener: Listener::Unix(listener), file: Some(file) }),
    };
    bound.map(Some).map_err(|error| BindError { service, address: address.clone(), error })
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    // A daemon that starts again must not wait for its old connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // Nobody can connect before it listens, so there is no moment with other permissions.
    let file = SocketFile::at(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(UNIX_MODE))?;
    socket.listen(BACKLOG)?;
    Ok((UnixListener::from_std(socket.into())?, file))
}

/// Removes a socket that nobody answers on, as a daemon leaves it that was killed. What answers, or is no
/// socket, is somebody's, and stays.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is there, and no socket"));
        }
        Ok(_) => {}
    }
    match BlockingStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
}

/// A socket in the file system, removed with this value, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_path_buf(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // There is nobody left to tell it to where this fails, and the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Why a service cannot listen.
#[derive(Debug)]
pub struct BindError {
    service: Service,
    address: Address,
    error: io::Error,
}

impl BindError {
    /// Which service it is.
    pub fn service(&self) -> Service {
        self.service
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { service, address, error } = self;
        let (name, flag) = (service.name(), service.flag());
        write!(f, "{name} cannot listen at {address}: ")?;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "something else listens there: stop it, or choose another address with {flag}"
            ),
            io::ErrorKind::PermissionDenied => write!(
                f,
                "this user may not: choose another address with {flag}, a port above 1023 for instance"
            ),
            io::ErrorKind::AddrNotAvailable => write!(
                f,
                "this machine does not have that address: choose one of its own with {flag}"
            ),
            _ => write!(f, "{error}: choose another address with {flag}"),
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty folder, removed with this value.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("tidegate-bind-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn bound(path: &Path) -> Result<Bound, BindError> {
        bind(Service::Http, &Address::Unix(path.to_path_buf())).map(Option::unwrap)
    }

    #[tokio::test]
    async fn a_socket_is_for_its_group_and_goes_with_its_listener() {
        let folder = Folder::new("mode");
        let path = folder.0.join("s");
        let bound = bound(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UNIX_MODE);
        assert_eq!(bound.listener.address().unwrap(), Address::Unix(path.clone()));
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_answers_on_is_replaced() {
        let folder = Folder::new("stale");
        let path = folder.0.join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "it is left behind");
        assert!(bound(&path).is_ok());
    }

    #[tokio::test]
    async fn a_socket_that_somebody_answers_on_stays() {
        let folder = Folder::new("answered");
        let path = folder.0.join("s");
        let other = bound(&path).unwrap();
        let error = bound(&path).unwrap_err().to_string();
        assert!(error.contains("something else listens there"), "{error}");
        assert!(error.ends_with("with --http"), "{error}");
        assert!(path.exists());
        drop(other);
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let folder = Folder::new("file");
        let path = folder.0.join("s");
        fs::write(&path, "precious").unwrap();
        assert!(bound(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[tokio::test]
    async fn the_socket_of_a_successor_is_not_removed() {
        let folder = Folder::new("successor");
        let path = folder.0.join("s");
        let first = bound(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _second = bound(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }
}
