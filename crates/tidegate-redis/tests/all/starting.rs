//! What is wrong with a store is known at its start, by name; and one that may be missing then is used
//! as soon as it is there.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::support::{
    Certificates, Cluster, Kind, PATIENCE, Sentinels, Server, TlsFront, block_on, connect, until,
};
use tidegate_core::{Decision, Key, Limit, Operation, Rate, Span, Timestamp, TokenBucket};
use tidegate_redis::{ConnectError, RedisConfig, RedisStore};
use tidegate_store::{Answers, Charge, Request, Store, StoreError};

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url).unwrap().deadline(PATIENCE).connect_timeout(PATIENCE)
}

/// Why there is no store at that address.
fn refused(url: &str) -> ConnectError {
    block_on(RedisStore::connect(config(url))).err().unwrap_or_else(|| panic!("{url} is a store"))
}

fn take(store: &RedisStore) -> Result<Decision, StoreError> {
    let limit: Limit = TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), 1 << 20).unwrap().into();
    let key = Key::from_hash(1 << 100);
    let charges = [Charge { limit: &limit, key, operation: Operation::Take { cost: 1 } }];
    let mut answers = Answers::new();
    let request = Request { now: Timestamp::ZERO, charges: &charges };
    block_on(store.decide(&[request], &mut answers));
    answers.iter().next().expect("an answer").map(|decisions| decisions[0])
}

/// Somebody who answers every connection with these bytes, and waits.
fn somebody_who_says(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            if !answer.is_empty() {
                let _ = stream.read(&mut [0; 64]);
                let _ = stream.write_all(answer);
            }
            open.push(stream);
        }
    });
    format!("127.0.0.1:{}", address.port())
}

macro_rules! assert_refused {
    ($url:expr, $wrong:pat) => {
        let error = refused(&$url);
        assert!(matches!(error, $wrong), "{error:?}");
    };
}

#[test]
fn nobody_and_somebody_who_is_silent_are_told_apart() {
    assert_refused!("redis+unix:///no/such/socket", ConnectError::Unreachable(_));
    assert_refused!(
        format!("redis://{}", tidegate_testing::free_address()),
        ConnectError::Unreachable(_)
    );
    assert_refused!("redis://no-such-host.invalid", ConnectError::Unreachable(_));
    // A server without TLS waits for the rest of what it takes for a command.
    let plain = Server::start_tcp(Kind::Redis, &[]);
    let plain = format!("rediss://127.0.0.1:{}", plain.port());
    let nobody = somebody_who_says(b"");
    for silent in [format!("redis://{nobody}"), format!("rediss://{nobody}"), plain] {
        let config = config(&silent).connect_timeout(Duration::from_millis(200));
        let error = block_on(RedisStore::connect(config)).err().unwrap();
        assert!(matches!(error, ConnectError::Silent), "{error:?}");
    }
}

#[test]
fn a_server_that_is_not_redis_is_known_for_it() {
    let http = somebody_who_says(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    assert_refused!(format!("redis://{http}"), ConnectError::NotRedis(_));
    assert_refused!(format!("redis://:password@{http}"), ConnectError::NotRedis(_));
    assert_refused!(format!("redis-cluster://{http}"), ConnectError::NotRedis(_));
    assert_refused!(format!("redis-sentinel://{http}/limits"), ConnectError::NotRedis(_));
    assert_refused!(format!("rediss://{http}"), ConnectError::Certificate(_));
}

#[test]
fn a_wrong_password_and_a_user_without_rights_are_known_for_it() {
    for kind in KINDS {
        let server = Server::start_tcp(kind, &["--requirepass", "open sesame"]);
        let host = format!("127.0.0.1:{}", server.port());
        let acl = |words: &[&str]| {
            redis::cmd("ACL").arg("SETUSER").arg(words).exec(&mut server.client()).unwrap();
        };
        acl(&["limiter", "on", ">let me in", "~t{*", "+@all"]);
        acl(&["reader", "on", ">let me in", "~*", "+@read", "+ping", "+auth"]);
        for wrong in
            ["", ":wrong@", "limiter:wrong@", "nobody:open%20sesame@", "reader:let%20me%20in@"]
        {
            assert_refused!(format!("redis://{wrong}{host}"), ConnectError::Credentials(_));
        }
        for right in [":open%20sesame@", "default:open%20sesame@", "limiter:let%20me%20in@"] {
            assert!(take(&connect(config(&format!("redis://{right}{host}")))).is_ok(), "{right}");
        }
        let socket = server.socket().display();
        assert_refused!(format!("redis+unix://{socket}"), ConnectError::Credentials(_));
        let right = format!("redis+unix://{socket}?pass=open%20sesame");
        assert!(take(&connect(config(&right))).is_ok());
        let unasked = Server::start_tcp(kind, &[]);
        let url = format!("redis://me:secret@127.0.0.1:{}", unasked.port());
        assert_refused!(url, ConnectError::Credentials(_));
    }
}

#[test]
fn a_user_needs_few_rights() {
    for kind in KINDS {
        let server = Server::start_tcp(kind, &[]);
        let rights = ["+evalsha", "+script|load", "+ping", "+time", "+get", "+set", "+del"];
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg(&["limiter", "on", ">let me in", "~t{*"][..]).arg(&rights[..]);
        acl.exec(&mut server.client()).unwrap();
        let host = format!("127.0.0.1:{}", server.port());
        assert!(take(&connect(config(&format!("redis://limiter:let%20me%20in@{host}")))).is_ok());
        // The server would let others in without a name, but not this one without its password.
        assert_refused!(format!("redis://limiter@{host}"), ConnectError::Credentials(_));
    }
}

#[test]
fn sentinels_can_have_a_password_of_their_own() {
    for kind in KINDS {
        let sentinels = Sentinels::start_guarded(kind, Some("secret"), Some("guarded"));
        let url = sentinels.url().replace("://", "://:secret@");
        assert_refused!(url, ConnectError::Credentials(_));
        assert_refused!(format!("{url}?sentinel-password=secret"), ConnectError::Credentials(_));
        let store = connect(config(&format!("{url}?sentinel-password=guarded")));
        assert!(take(&store).is_ok());
        let wrong = sentinels.url().replace("://", "://:wrong@");
        let wrong = format!("{wrong}?sentinel-password=guarded");
        assert_refused!(wrong, ConnectError::Credentials(_));
    }
}

#[test]
fn a_database_that_is_not_there_is_known_for_it() {
    for kind in KINDS {
        let server = Server::start_tcp(kind, &["--databases", "4"]);
        let url = format!("redis://127.0.0.1:{}", server.port());
        assert_refused!(format!("{url}/4"), ConnectError::Database(_));
        assert!(take(&connect(config(&format!("{url}/3")))).is_ok());
        let in_the_first: u64 = redis::cmd("DBSIZE").query(&mut server.client()).unwrap();
        assert_eq!(in_the_first, 0);
    }
}

#[test]
fn a_certificate_that_is_not_to_be_trusted_is_known_for_it() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let elsewhere = Certificates::naming(&["elsewhere.test"]);
    let server = Server::start_tls(&ours, &["--requirepass", "secret"]);
    let valkey = Server::start_with(Kind::Valkey, &["--requirepass", "secret"]);
    let front = TlsFront::start(&valkey, &ours);
    for port in [server.port(), front.port()] {
        let url = |ca: &Certificates| {
            format!("rediss://:secret@127.0.0.1:{port}?ca={}", ca.ca().display())
        };
        assert!(take(&connect(config(&url(&ours)))).is_ok());
        assert_refused!(url(&others), ConnectError::Certificate(_));
        assert_refused!(format!("rediss://127.0.0.1:{port}"), ConnectError::Certificate(_));
        assert_refused!(
            format!("redis://127.0.0.1:{port}"),
            ConnectError::NotRedis(_) | ConnectError::Unreachable(_)
        );
        assert_refused!(format!("rediss://127.0.0.1:{port}?ca=/none.pem"), ConnectError::File(_));
    }
    let misnamed = TlsFront::start(&valkey, &elsewhere);
    let url = format!("rediss://127.0.0.1:{}?ca={}", misnamed.port(), elsewhere.ca().display());
    assert_refused!(url, ConnectError::Certificate(_));
}

#[test]
fn a_server_that_wants_a_certificate_of_the_client_gets_it() {
    let (ours, others) = (Certificates::new(), Certificates::new());
    let server = Server::start_tls(&ours, &["--tls-auth-clients", "yes"]);
    let url = format!("rediss://localhost:{}?ca={}", server.port(), ours.ca().display());
    assert_refused!(url, ConnectError::Certificate(_));
    let with = |(certificate, key): (std::path::PathBuf, std::path::PathBuf)| {
        format!("{url}&cert={}&key={}", certificate.display(), key.display())
    };
    assert!(take(&connect(config(&with(ours.client())))).is_ok());
    assert_refused!(with(others.client()), ConnectError::Certificate(_));
}

#[test]
fn a_server_of_another_kind_than_the_url_says_is_known_for_it() {
    for kind in KINDS {
        let cluster = Cluster::start(kind);
        let member = format!("127.0.0.1:{}", cluster.servers[0].port());
        assert_refused!(format!("redis://{member}"), ConnectError::IsCluster);
        let sentinels = Sentinels::start(kind);
        let [primary, replica] = &sentinels.servers[..] else { panic!("two servers") };
        let sentinel = sentinels.addresses();
        let sentinel = sentinel.split(',').next().unwrap();
        assert_refused!(format!("redis://{sentinel}"), ConnectError::IsSentinel);
        assert_refused!(format!("redis://127.0.0.1:{}", replica.port()), ConnectError::ReadOnly);
        assert_refused!(format!("redis-sentinel://{sentinel}/others"), ConnectError::Service);
        assert_refused!(
            format!("redis-sentinel://127.0.0.1:{}/limits", primary.port()),
            ConnectError::IsNoSentinel
        );
        assert_refused!(
            format!("redis-cluster://127.0.0.1:{}", primary.port()),
            ConnectError::IsNoCluster
        );
    }
}

#[test]
fn a_server_that_keeps_no_scripts_is_known_for_it() {
    let server = Server::start_with(Kind::Redis, &["--rename-command", "SCRIPT", "NONE"]);
    let url = format!("redis+unix://{}", server.socket().display());
    assert_refused!(url, ConnectError::Unsuitable(_));
}

#[test]
fn a_store_that_is_opened_before_its_server_is_used_as_soon_as_it_is_there() {
    for kind in KINDS {
        let server = Server::start(kind);
        let socket = server.socket().to_owned();
        drop(server);
        let url = format!("redis+unix://{}", socket.display());
        let store = block_on(async { RedisStore::open(config(&url)) });
        assert_eq!(take(&store), Err(StoreError::Unreachable));
        let _server = Server::start_at(kind, &socket, &[]);
        let _ = until("the store is used", || take(&store).ok());
        let cluster = Cluster::start(kind);
        let store = block_on(async { RedisStore::open(config(&cluster.url())) });
        assert!(take(&store).is_ok(), "a cluster that is there is used at the first call");
    }
}

#[test]
fn a_password_in_a_file_can_be_changed_without_a_restart() {
    for kind in KINDS {
        let server = Server::start_tcp(kind, &["--requirepass", "first"]);
        let file = server.socket().with_file_name("password");
        std::fs::write(&file, "first\n").unwrap();
        let url = format!("redis://127.0.0.1:{}", server.port());
        let store = connect(config(&url).password_file(&file));
        assert!(take(&store).is_ok());
        let mut client = server.client();
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("second").exec(&mut client).unwrap();
        assert!(take(&store).is_ok(), "who is known stays known");
        std::fs::write(&file, "second\n").unwrap();
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").exec(&mut client).unwrap();
        let _ = until("the new password is used", || take(&store).ok());
    }
}
