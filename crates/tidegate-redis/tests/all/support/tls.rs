//! Certificates that a test makes for itself, and TLS in front of servers that were built without it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::server::{Server, new_folder};
use super::{block_on, runtime};

/// An authority of the test's own, with a certificate for a server at 127.0.0.1 and one for a client,
/// as files.
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// For a server that is reached as 127.0.0.1 or localhost.
    pub fn new() -> Self {
        Self::naming(&["127.0.0.1", "localhost"])
    }

    /// For a server that is reached by these names.
    pub fn naming(names: &[&str]) -> Self {
        let folder = new_folder();
        let mut authority = CertificateParams::new([]).expect("no names");
        // One name for two would make the second look as if it had signed itself.
        authority.distinguished_name.push(DnType::CommonName, "authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, key()).expect("an authority");
        std::fs::write(folder.join("ca.pem"), issuer.pem()).expect("a file");
        let client = ["client.test"];
        for (file, names) in [("server", names), ("client", &client[..])] {
            let key = key();
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            let mut subject = CertificateParams::new(names).expect("names");
            subject.distinguished_name.push(DnType::CommonName, file);
            let certificate = subject.signed_by(&key, &issuer).expect("a certificate").pem();
            std::fs::write(folder.join(format!("{file}.pem")), certificate).expect("a file");
            std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem())
                .expect("a file");
        }
        Self { folder }
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The certificate and the key of a client.
    pub fn client(&self) -> (PathBuf, PathBuf) {
        (self.folder.join("client.pem"), self.folder.join("client.key"))
    }

    /// The certificate, the key and the authority, as a server's options take them.
    pub fn server_files(&self) -> (String, String, String) {
        let file = |name: &str| self.folder.join(name).display().to_string();
        (file("server.pem"), file("server.key"), file("ca.pem"))
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// TLS on a free port, in front of a server's socket. The servers of some packages have none.
pub struct TlsFront {
    port: u16,
    task: JoinHandle<()>,
}

impl TlsFront {
    /// Asks clients for a certificate, and does without.
    pub fn start(server: &Server, certificates: &Certificates) -> Self {
        let acceptor = TlsAcceptor::from(Arc::new(server_config(certificates)));
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let socket = server.socket().to_owned();
        let task = runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(acceptor.clone(), stream, socket.clone()));
            }
        });
        Self { port, task }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Carries bytes until one side has had enough.
async fn carry(acceptor: TlsAcceptor, stream: TcpStream, socket: PathBuf) {
    let _ = stream.set_nodelay(true);
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let Ok(mut server) = UnixStream::connect(socket).await else { return };
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
}

fn server_config(certificates: &Certificates) -> ServerConfig {
    let (certificate, key, ca) = certificates.server_files();
    let mut roots = RootCertStore::empty();
    roots.add(read_certificate(Path::new(&ca))).expect("an authority");
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).allow_unauthenticated();
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    ServerConfig::builder()
        .with_client_cert_verifier(clients.build().expect("a verifier"))
        .with_single_cert(vec![read_certificate(Path::new(&certificate))], key)
        .expect("a certificate and its key")
}

fn read_certificate(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).expect("a certificate")
}
