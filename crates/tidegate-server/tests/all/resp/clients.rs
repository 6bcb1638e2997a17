//! Clients as people have them, unchanged: redis-cli, redis-py and redis-rs. And a Redis server, whose
//! words for mistakes are compared with ours.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tidegate_server::resp;

use crate::resp::talk::{RULES, Talk};
use crate::support::Daemon;

/// What to do where a program is missing.
const REMEDY: &str = "run `cargo xtask setup`, which installs what the tests start";

/// Where `cargo xtask setup` puts things: as it says, or beside what cargo has built.
fn tools() -> PathBuf {
    if let Some(folder) = std::env::var_os("TIDEGATE_TOOLS") {
        return folder.into();
    }
    let program = std::env::current_exe().expect("a program");
    let target = program.ancestors().find(|folder| folder.join("tools").is_dir());
    target.unwrap_or_else(|| panic!("there is no folder of tools; {REMEDY}")).join("tools")
}

/// A daemon that listens, in a runtime of its own until the test ends.
struct Listening {
    daemon: Daemon,
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

fn listening() -> Listening {
    listening_with(RULES)
}

fn listening_with(rules: &str) -> Listening {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let daemon = Daemon::new(rules);
    let address = runtime.block_on(daemon.listen(resp::serve));
    Listening { daemon, address, _runtime: runtime }
}

/// The output of a program that is to succeed.
fn output(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| {
        let program = command.get_program().display();
        panic!("{program} does not start ({error}); {REMEDY}")
    });
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{stderr}");
    String::from_utf8(stdout).expect("text")
}

fn redis_cli(to: SocketAddr, words: &str) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-h", &to.ip().to_string(), "-p", &to.port().to_string()]);
    output({
        command.args(words.split_whitespace());
        command
    })
}

#[test]
fn redis_cli_works_unchanged() {
    let listening = listening();
    let ask = |words| redis_cli(listening.address, words);
    assert_eq!(ask("PING"), "PONG\n");
    assert_eq!(ask("CL.THROTTLE user123 15 30 60"), "0\n16\n15\n-1\n2\n");
    assert_eq!(ask("-3 CL.THROTTLE user123 15 30 60"), "0\n16\n14\n-1\n4\n");
    let checked = ask("-3 --no-raw TG.CHECK api 1 path /login ip 192.0.2.7");
    assert!(checked.contains("\"allowed\" => (true)"), "{checked}");
    assert!(checked.contains("\"remaining\" => (integer) 1"), "{checked}");
    assert!(ask("CL.THROTTLE k x 1 1").starts_with("Cell error: Couldn't parse as integer: x"));
    assert!(ask("INFO").contains("server_name:tidegate"));
    // A session at the terminal begins with a question about all commands.
    let mut session = Command::new("redis-cli");
    session.args(["-h", "127.0.0.1", "-p", &listening.address.port().to_string()]);
    session.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut session = session.spawn().unwrap_or_else(|error| panic!("{error}; {REMEDY}"));
    let input = session.stdin.take();
    input.expect("an input").write_all(b"SELECT 0\nECHO hello\nCOMMAND COUNT\n").expect("written");
    let session = session.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&session.stdout), "OK\nhello\n19\n");
    // Commands in bulk, as `--pipe` sends them.
    let mut pipe = Command::new("redis-cli");
    pipe.args(["-p", &listening.address.port().to_string(), "--pipe"]);
    pipe.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut pipe = pipe.spawn().expect("redis-cli");
    let said = b"CL.THROTTLE piped 15 30 60\r\n".repeat(3_000);
    pipe.stdin.take().expect("an input").write_all(&said).expect("written");
    let piped = String::from_utf8(pipe.wait_with_output().expect("an end").stdout).expect("text");
    assert!(piped.contains("errors: 0, replies: 3000"), "{piped}");
}

/// What redis-py is asked to do; what does not hold fails the script.
const SCRIPT: &str = r#"
import asyncio, sys
import redis, redis.asyncio

port = int(sys.argv[1])
for protocol in (2, 3):
    client = redis.Redis(port=port, protocol=protocol, client_name=f"tester-{protocol}")
    assert client.ping()
    assert client.client_getname() in (f"tester-{protocol}", f"tester-{protocol}".encode())
    assert client.info("server")["server_name"] == "tidegate"
    key = f"key-{protocol}"
    assert client.execute_command("CL.THROTTLE", key, 15, 30, 60) == [0, 16, 15, -1, 2]
    pipeline = client.pipeline(transaction=False)
    for _ in range(100):
        pipeline.execute_command("CL.THROTTLE", key, 15, 30, 60)
    answers = pipeline.execute()
    assert [answer[0] for answer in answers] == [0] * 15 + [1] * 85, answers
    answer = client.execute_command("TG.CHECK", "api", 1, "path", "/login", "ip", f"192.0.2.{protocol}")
    if protocol == 2:
        assert answer[0] == 1 and answer[1] == b"login" and answer[3] == 1, answer
    else:
        assert answer[b"allowed"] is True and answer[b"rule"] == b"login", answer
        assert answer[b"remaining"] == 1 and answer[b"reason"] is None, answer
    try:
        client.execute_command("CL.THROTTLE", key, "many", 30, 60)
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "Couldn't parse as integer: many" in str(error), error
    try:
        client.get("key")
        raise SystemExit("no error")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
    client.close()

async def together():
    client = redis.asyncio.Redis(port=port)
    ask = lambda: client.execute_command("CL.THROTTLE", "shared", 9, 1, 3600)
    answers = await asyncio.gather(*(ask() for _ in range(50)))
    assert sum(answer[0] == 0 for answer in answers) == 10, answers
    await client.aclose()

asyncio.run(together())
print(redis.__version__)
"#;

#[test]
fn redis_py_works_unchanged() {
    let listening = listening();
    let python = tools().join("python/bin/python");
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT, &listening.address.port().to_string()]);
    assert!(!output(command).is_empty());
}

#[test]
fn redis_rs_works_unchanged() {
    let listening = listening();
    let address = listening.address;
    for protocol in ["resp2", "resp3"] {
        let client = redis::Client::open(format!("redis://{address}/0?protocol={protocol}"));
        let client = client.expect("a client");
        let mut connection = client.get_connection().expect("a connection");
        let throttle = |key: &str| {
            let mut command = redis::cmd("CL.THROTTLE");
            command.arg(key).arg(15).arg(30).arg(60);
            command
        };
        let answer: [i64; 5] = throttle(protocol).query(&mut connection).expect("an answer");
        assert_eq!(answer, [0, 16, 15, -1, 2]);
        let mut pipeline = redis::pipe();
        for _ in 0..100 {
            pipeline.add_command(throttle(protocol));
        }
        let answers: Vec<[i64; 5]> = pipeline.query(&mut connection).expect("answers");
        assert_eq!(answers.iter().filter(|answer| answer[0] == 0).count(), 15);
        let wrong: redis::RedisResult<[i64; 5]> =
            redis::cmd("CL.THROTTLE").arg("k").query(&mut connection);
        assert!(wrong.expect_err("an error").to_string().contains("Usage"), "{protocol}");
    }
    // Many calls at a time over one connection.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = redis::Client::open(format!("redis://{address}/")).expect("a client");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let mut connection = connection.clone();
            calls.spawn(async move {
                let mut command = redis::cmd("CL.THROTTLE");
                command.arg("shared").arg(9).arg(1).arg(3600);
                let answer: [i64; 5] =
                    command.query_async(&mut connection).await.expect("an answer");
                answer[0] == 0
            });
        }
        let allowed = calls.join_all().await.into_iter().filter(|allowed| *allowed).count();
        assert_eq!(allowed, 10);
    });
    assert!(listening.daemon.engine.limiter().stats().expect("memory").keys > 0);
}

/// A Redis server on a socket of its own, until the test ends.
struct RedisServer {
    child: Child,
    folder: PathBuf,
}

impl RedisServer {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-resp-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let socket = folder.join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).current_dir(&folder).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{error}; {REMEDY}"));
        let server = Self { child, folder };
        // It is there when its socket is: a real process, so there is nothing to be told by.
        for _ in 0..600 {
            if UnixStream::connect(&socket).is_ok() {
                return server;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("redis-server does not listen")
    }

    /// What this is answered with, up to the end, which it is to bring about itself.
    fn asks(&self, said: &[u8]) -> String {
        let mut stream = UnixStream::connect(self.folder.join("redis.sock")).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        stream.write_all(said).expect("sent");
        let mut answer = Vec::new();
        // Where Redis closes over bytes that it has not read, the end is an error. What came, came.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Nothing can be done about a process that does not end, or a folder that stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What is said to both, a line each.
const LINES: &str = "\
PING
PING a
PING a b
ECHO
ECHO a
FOO
foo bar
Foo 'a b' c
SELECT 0
SELECT 99
SELECT x
SELECT
AUTH x
AUTH default x
AUTH bob x
AUTH
AUTH a b c
HELLO 4
HELLO x
HELLO 3 FOO
HELLO 3 AUTH a
CLIENT
CLIENT FOO
CLIENT SETNAME
CLIENT SETNAME 'a b'
CLIENT SETNAME a
CLIENT GETNAME
CLIENT GETNAME x
CLIENT TRACKING off
CLIENT TRACKINGINFO
CLIENT NO-EVICT on
CONFIG
CONFIG FOO
CONFIG GET nothing
CONFIG GET
COMMAND FOO
COMMAND DOCS foo
COMMAND INFO foo
INFO nothing
RESET
RESET x
QUIT x
'
PING 'a'b";

#[test]
fn mistakes_are_worded_as_redis_words_them() {
    let redis = RedisServer::start();
    for line in LINES.lines() {
        for version in ["", "HELLO 3\r\n"] {
            let said = format!("{version}{line}\r\nQUIT\r\n");
            let (theirs, ours) = (redis.asks(said.as_bytes()), Talk::new().says(said.as_bytes()));
            // The introductions differ, and are looked at elsewhere.
            let after = |answer: &str| match version {
                "" => answer.to_owned(),
                _ => answer.split_once("modules\r\n*0\r\n").expect("an introduction").1.to_owned(),
            };
            assert_eq!(after(&ours), after(&theirs), "{line:?} after {version:?}");
        }
    }
    for said in [
        &b"*x\r\n"[..],
        b"*\r\n",
        b"*01\r\n",
        b"*+1\r\n",
        b"*1\r\nfoo\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$04\r\n",
        b"*1\r\n$999999999999\r\n",
        b"*0\r\nQUIT\r\n",
        b"*-1\r\nQUIT\r\n",
        b"\r\n\nQUIT\r\n",
        b"POST / HTTP/1.1\r\n",
        &vec![b'a'; 70_000],
    ] {
        let ours = Talk::new().says(said);
        assert_eq!(ours, redis.asks(said), "{}", said[..said.len().min(40)].escape_ascii());
    }
}

/// The blocks of a document that begin with this fence.
fn blocks<'d>(document: &'d str, fence: &str) -> impl Iterator<Item = &'d str> {
    let begin = format!("```{fence}\n");
    let parts: Vec<&str> = document.split(&begin).skip(1).collect();
    parts.into_iter().map(|part| part.split_once("```").expect("an end").0)
}

#[test]
fn the_examples_of_the_documentation_are_what_redis_cli_prints() {
    let document = include_str!("../../../../../docs/resp.md");
    let rules = blocks(document, "yaml").next().expect("rules");
    let listening = listening_with(rules);
    let mut examples = 0;
    for block in blocks(document, "console") {
        for example in block.split("$ redis-cli").skip(1) {
            let (words, expected) = example.split_once('\n').expect("a line");
            let words = words.replace("-p 6390", "--no-raw");
            let printed = redis_cli(listening.address, &words);
            let lines = |text: &str| {
                text.trim_end().lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(lines(&printed), lines(expected), "redis-cli{words}");
            examples += 1;
        }
    }
    assert!(examples > 5, "{examples} examples");
}
