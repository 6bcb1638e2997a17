//! Certificates: those that the gateway shows, which can be exchanged while it runs, and those that it
//! trusts its upstreams by.

pub(crate) mod validity;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tidegate::Timestamp;
use validity::{Standing, Validity};

/// The protocols that are offered, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, as PEM, the server's own certificate first.
    pub certificate: PathBuf,
    /// Its key, as PEM.
    pub key: PathBuf,
}

/// The certificates that the gateway shows, and the files they are from.
#[derive(Debug)]
pub(crate) struct Certificates {
    files: Vec<CertificateFiles>,
    shown: Arc<Shown>,
    /// Whoever reads the files holds it until they are in force, so that nobody brings back what they held before.
    reloading: Mutex<()>,
    /// What was last said of each.
    told: Mutex<Vec<Standing>>,
}

/// What is in force. A client that names none of the hosts is shown the first.
#[derive(Debug)]
struct Shown(ArcSwap<Vec<Arc<CertifiedKey>>>);

impl Certificates {
    /// Reads the files.
    pub(crate) fn read(files: Vec<CertificateFiles>) -> Result<Self, TlsError> {
        let keys = read_all(&files)?;
        let shown = Arc::new(Shown(ArcSwap::from_pointee(keys)));
        Ok(Self { files, shown, reloading: Mutex::default(), told: Mutex::default() })
    }

    /// How connections are served with them.
    pub(crate) fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unusable)?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::clone(&self.shown) as Arc<_>);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Arc::new(config))
    }

    /// Reads the files again, and says whether something has changed. On an error what was in force stays.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let _alone = self.reloading.lock();
        let new = read_all(&self.files)?;
        let old = self.shown.0.load();
        let is_same =
            old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| old.cert == new.cert);
        if !is_same {
            self.shown.0.store(Arc::new(new));
        }
        Ok(!is_same)
    }

    /// Tells of those that clients refuse, or soon will: once, and again where `is_anew` or where something else is to be
    /// said of one than before.
    pub(crate) fn warn(&self, now: Timestamp, is_anew: bool) {
        let mut told = self.told.lock();
        if is_anew {
            told.clear();
        }
        told.resize(self.files.len(), Standing::Valid);
        for ((certificate, validity), told) in self.validities().zip(told.iter_mut()) {
            let Some(validity) = validity else { continue };
            let (standing, certificate) = (validity.standing(now), certificate.display());
            if std::mem::replace(told, standing) == standing {
                continue;
            }
            let Validity { from, until } = validity;
            match standing {
                Standing::Valid => {}
                Standing::Early => tracing::warn!(
                    %certificate,
                    "a certificate is valid from {from}Z on, and clients refuse it until then"
                ),
                Standing::Ending => {
                    tracing::warn!(%certificate, "a certificate expires soon, at {until}Z");
                }
                Standing::Expired => {
                    tracing::warn!(%certificate, "a certificate expired at {until}Z, and clients refuse it");
                }
            }
        }
    }

    /// When each expires, in seconds since 1970, by the name of its file.
    pub(crate) fn expiries_s(&self) -> Vec<(String, i64)> {
        let known = self.validities().filter_map(|(path, validity)| Some((path, validity?)));
        known.map(|(path, validity)| (path.display().to_string(), validity.until_s())).collect()
    }

    /// What is in force by the name of its file: the certificate itself, and not those that vouch for it.
    fn validities(&self) -> impl Iterator<Item = (&Path, Option<Validity>)> {
        let keys = self.shown.0.load_full();
        self.files.iter().enumerate().map(move |(index, files)| {
            let own = keys.get(index).and_then(|key| key.cert.first());
            (&*files.certificate, own.and_then(|own| Validity::of(own)))
        })
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.load();
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named = name.filter(|_| keys.len() > 1).and_then(|name| {
            keys.iter().find(|key| {
                let parsed = key.end_entity_cert().ok().map(ParsedCertificate::try_from);
                matches!(parsed, Some(Ok(parsed)) if verify_server_name(&parsed, &name).is_ok())
            })
        });
        named.or_else(|| keys.first()).cloned()
    }
}

/// How upstreams are connected to: trusting what this file says, or the system.
pub(crate) fn client(ca: Option<&Path>) -> Result<Arc<ClientConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in chain(path)? {
                roots.add(certificate).map_err(TlsError::Unusable)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn read_all(files: &[CertificateFiles]) -> Result<Vec<Arc<CertifiedKey>>, TlsError> {
    files.iter().map(|files| read_one(files).map(Arc::new)).collect()
}

fn read_one(files: &CertificateFiles) -> Result<CertifiedKey, TlsError> {
    let chain = chain(&files.certificate)?;
    let unreadable = |error| TlsError::File { path: files.key.clone(), error };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(unreadable)?;
    let path = &files.certificate;
    let unfit = |error| TlsError::Pair { path: path.clone(), error };
    CertifiedKey::from_der(chain, key, &provider()).map_err(unfit)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |error| TlsError::File { path: path.to_path_buf(), error };
    let certificates = CertificateDer::pem_file_iter(path).map_err(unreadable)?;
    let chain: Vec<_> = certificates.collect::<Result<_, _>>().map_err(unreadable)?;
    if chain.is_empty() { Err(TlsError::Empty { path: path.to_path_buf() }) } else { Ok(chain) }
}

/// Why certificates cannot be used. What was in force stays.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is no PEM.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: rustls::pki_types::pem::Error,
    },
    /// There is no certificate in a file.
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// A certificate and its key do not go together.
    Pair {
        /// The file of the certificate.
        path: PathBuf,
        /// Why.
        error: rustls::Error,
    },
    /// The system trusts nobody.
    NoRoots,
    /// The library refuses it.
    Unusable(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Empty { path } => write!(f, "{}: there is no certificate in it", path.display()),
            Self::Pair { path, error } => {
                write!(f, "{}: certificate and key do not go together: {error}", path.display())
            }
            Self::NoRoots => {
                f.write_str("no certificate authority is trusted: name a file of them")
            }
            Self::Unusable(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TlsError {}
