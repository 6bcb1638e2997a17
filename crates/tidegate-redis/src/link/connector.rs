//! How one connection comes about: the address, TLS, who we are, and whether the server is one that can
//! be used. Every step has its own error, since whoever starts a store wants to know which one failed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ErrorKind,
    IntoConnectionInfo, RedisError, ServerErrorKind, TlsCertificates, Value,
};

use super::ConnectError;
use crate::config::{Access, Address, Deployment, Password, RedisConfig, Tls};
use crate::script;

/// Makes connections to one server, or to whoever is the primary when it is asked.
pub(crate) struct Connector {
    config: Arc<RedisConfig>,
    target: Target,
    /// The Sentinel that answered last. The next question goes to it first.
    sentinel: AtomicUsize,
}

/// Whom the connections lead to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Server(Address),
    /// Whoever the Sentinels say it is.
    Primary {
        sentinels: Vec<Address>,
        service: String,
    },
}

/// Who asks: the Sentinels can have other passwords than the servers.
#[derive(Clone, Copy)]
enum Who {
    ToServer,
    ToSentinel,
}

impl Connector {
    pub(crate) fn new(config: Arc<RedisConfig>, target: Target) -> Self {
        Self { config, target, sentinel: AtomicUsize::new(0) }
    }

    /// A connection to a primary that keeps the script, and the script's name there.
    pub(crate) async fn connect(&self) -> Result<(MultiplexedConnection, Arc<str>), ConnectError> {
        match &self.target {
            Target::Server(address) => self.connect_to(address).await,
            Target::Primary { sentinels, service } => {
                self.connect_to_primary(sentinels, service).await
            }
        }
    }

    /// A connection that has said who it is, and nothing else.
    pub(crate) async fn greet(
        config: &RedisConfig,
        address: &Address,
    ) -> Result<MultiplexedConnection, ConnectError> {
        within(config, open(config, address, Who::ToServer)).await
    }

    async fn connect_to(
        &self,
        address: &Address,
    ) -> Result<(MultiplexedConnection, Arc<str>), ConnectError> {
        within(&self.config, async {
            let mut connection = open(&self.config, address, Who::ToServer).await?;
            let cluster = matches!(self.config.deployment, Deployment::Cluster { .. });
            check_role(&mut connection, cluster).await?;
            let script = load_script(&mut connection).await.map_err(ConnectError::of)?;
            Ok((connection, script))
        })
        .await
    }

    /// Asks one Sentinel after the other, until one names a server that says itself that it is the
    /// primary. In the middle of a failover they do not all know the same.
    async fn connect_to_primary(
        &self,
        sentinels: &[Address],
        service: &str,
    ) -> Result<(MultiplexedConnection, Arc<str>), ConnectError> {
        // ORDERING: where to begin; any will do.
        let first = self.sentinel.load(Ordering::Relaxed);
        let mut last = ConnectError::Service;
        let mut tried = Vec::new();
        for offset in 0..sentinels.len() {
            let index = (first + offset) % sentinels.len();
            let asked = ask_sentinel(&self.config, &sentinels[index], service);
            let connected = match within(&self.config, asked).await {
                // One that is silent would be so again, and each time costs the whole timeout.
                Ok(address) if tried.contains(&address) => continue,
                Ok(address) => {
                    let connected = self.connect_to(&address).await;
                    tried.push(address);
                    connected
                }
                Err(error) => Err(error),
            };
            match connected {
                Ok(connected) => {
                    // ORDERING: as above.
                    self.sentinel.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Has it done in the time that one server has to answer.
async fn within<T>(
    config: &RedisConfig,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::time::timeout(config.connect_timeout, work).await.unwrap_or(Err(ConnectError::Silent))
}

/// Connects, and says who we are.
async fn open(
    config: &RedisConfig,
    address: &Address,
    who: Who,
) -> Result<MultiplexedConnection, ConnectError> {
    let access = &config.access;
    let (user, password, database) = match who {
        Who::ToServer => (&access.user, &access.password, access.database),
        Who::ToSentinel => (&access.sentinel_user, &access.sentinel_password, 0),
    };
    let password = read_password(password.as_ref()).await?;
    // A user without a password is one all the same, and not whoever the server takes others for.
    let password = password.or_else(|| user.as_ref().map(|_| String::new()));
    let client = client(access, address).await?;
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&settings);
    let mut connection = connecting.await.map_err(ConnectError::of)?;
    // A server that gets no certificate and wants one says so only now, or says nothing at all.
    let hung_up = |error: RedisError| match ConnectError::of(error) {
        ConnectError::Unreachable(error) if access.tls.is_some() => {
            ConnectError::Certificate(error)
        }
        other => other,
    };
    if let Some(password) = password {
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = user {
            auth.arg(user);
        }
        // Whatever a server of Redis says against it, it is about who we are. All else is another matter.
        ask(&mut connection, auth.arg(password)).await.map_err(|error| match error.kind() {
            ErrorKind::Server(ServerErrorKind::BusyLoading) => ConnectError::NotReady(error),
            ErrorKind::Server(_) | ErrorKind::Extension => ConnectError::Credentials(error),
            _ => hung_up(error),
        })?;
    }
    // A server that needs a password closes the connection on a long command without one, so a short
    // one comes first.
    ask(&mut connection, &redis::cmd("PING")).await.map_err(hung_up)?;
    if database != 0 {
        let select = ask(&mut connection, redis::cmd("SELECT").arg(database)).await;
        select.map_err(|error| match error.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError) => ConnectError::Database(error),
            _ => ConnectError::of(error),
        })?;
    }
    Ok(connection)
}

async fn client(access: &Access, address: &Address) -> Result<Client, ConnectError> {
    let place = match (address, &access.tls) {
        (Address::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Address::Tcp { host, port }, None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Address::Tcp { host, port }, Some(_)) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
    };
    let info = place.into_connection_info().map_err(ConnectError::Unsuitable)?;
    // Who we are is said by ourselves, to know which of it is wrong.
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    // Without it an answer can wait for 40 ms for the next packet.
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    match &access.tls {
        Some(tls) if matches!(address, Address::Tcp { .. }) => {
            Client::build_with_tls(info, read_certificates(tls).await?)
                .map_err(ConnectError::Certificate)
        }
        _ => Client::open(info).map_err(ConnectError::Unsuitable),
    }
}

async fn read_certificates(tls: &Tls) -> Result<TlsCertificates, ConnectError> {
    let root_cert = match &tls.ca {
        Some(file) => Some(read_file(file.clone()).await?),
        None => None,
    };
    let client_tls = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => Some(ClientTlsConfig {
            client_cert: read_file(certificate.clone()).await?,
            client_key: read_file(key.clone()).await?,
        }),
        _ => None,
    };
    Ok(TlsCertificates { client_tls, root_cert })
}

async fn read_password(password: Option<&Password>) -> Result<Option<String>, ConnectError> {
    match password {
        None => Ok(None),
        Some(Password::Text(text)) => Ok(Some(text.clone())),
        Some(Password::File(file)) => {
            let bytes = read_file(file.clone()).await?;
            let text = String::from_utf8(bytes).map_err(|_| {
                ConnectError::File(io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
            })?;
            Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
    }
}

/// Reads a file without holding up what else runs here, should it be on a slow disk. An error names it.
async fn read_file(file: PathBuf) -> Result<Vec<u8>, ConnectError> {
    let reading = tokio::task::spawn_blocking(move || {
        std::fs::read(&file)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
    });
    reading.await.map_err(io::Error::other).flatten().map_err(ConnectError::File)
}

/// Whether the server may write, and is of the kind that the settings say. A user who may not ask for
/// it is believed; the first write will tell.
async fn check_role(
    connection: &mut MultiplexedConnection,
    cluster: bool,
) -> Result<(), ConnectError> {
    if let Ok(Value::Array(role)) = ask(connection, &redis::cmd("ROLE")).await {
        match role.first().and_then(text) {
            Some("slave" | "replica") => return Err(ConnectError::ReadOnly),
            Some("sentinel") => return Err(ConnectError::IsSentinel),
            _ => {}
        }
    }
    let info = ask(connection, redis::cmd("INFO").arg("cluster")).await;
    let info = info.as_ref().ok().and_then(text).unwrap_or_default();
    if cluster && info.contains("cluster_enabled:0") {
        Err(ConnectError::IsNoCluster)
    } else if !cluster && info.contains("cluster_enabled:1") {
        Err(ConnectError::IsCluster)
    } else {
        Ok(())
    }
}

/// What each of the Sentinels says that the address of the primary is.
pub(crate) async fn ask_sentinels(config: &RedisConfig) -> Vec<Result<Address, ConnectError>> {
    let Deployment::Sentinel { sentinels, service } = &config.deployment else { return Vec::new() };
    let mut answers = Vec::with_capacity(sentinels.len());
    for sentinel in sentinels {
        answers.push(within(config, ask_sentinel(config, sentinel, service)).await);
    }
    answers
}

/// Asks a Sentinel for the address of the primary.
async fn ask_sentinel(
    config: &RedisConfig,
    sentinel: &Address,
    service: &str,
) -> Result<Address, ConnectError> {
    let mut connection = open(config, sentinel, Who::ToSentinel).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let answer = ask(&mut connection, &question).await.map_err(|error| match error.kind() {
        ErrorKind::Server(ServerErrorKind::ResponseError) => ConnectError::IsNoSentinel,
        _ => ConnectError::of(error),
    })?;
    let Value::Array(parts) = answer else { return Err(ConnectError::Service) };
    let mut parts = parts.iter().map(text);
    let (Some(Some(host)), Some(Some(port))) = (parts.next(), parts.next()) else {
        return Err(ConnectError::Service);
    };
    let port = port.parse().map_err(|_| ConnectError::Service)?;
    Ok(Address::Tcp { host: host.to_owned(), port })
}

/// Has the server keep the script, and gives the name that it has there.
pub(crate) async fn load_script(
    connection: &mut MultiplexedConnection,
) -> Result<Arc<str>, RedisError> {
    let mut load = Cmd::new();
    load.arg("SCRIPT").arg("LOAD").arg(script::SOURCE);
    let loaded = ask(connection, &load).await?;
    let no_name = || (ErrorKind::UnexpectedReturnType, "SCRIPT LOAD gave no name").into();
    text(&loaded).map(Arc::from).ok_or_else(no_name)
}

/// One command, and its reply; what the server says against it is an error.
pub(crate) async fn ask(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    connection.send_packed_command(command).await?.extract_error()
}

/// A reply that is text.
pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
