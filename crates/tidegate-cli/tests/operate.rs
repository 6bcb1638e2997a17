//! The commands that ask a running daemon over its admin address: what they change, print, and end with.

mod run;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use run::{Ran, scratch};
use tidegate::{Call, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::Source;
use tidegate_server::admin::{Admin, AdminSettings, Token};
use tidegate_server::controls::Controls;
use tidegate_server::listen::Listener;
use tidegate_server::{Does, Engine, EngineClock, Protocol};
use tokio_util::sync::CancellationToken;

const RULES: &str = "{ domain: default, rules: [ { name: all, per: [user], limit: 2/hour } ] }";

/// An engine and its admin address, for as long as this lives.
struct Daemon {
    engine: Arc<Engine>,
    address: SocketAddr,
    runtime: tokio::runtime::Runtime,
}

impl Daemon {
    fn new(controls: Controls, token: Option<&str>) -> Self {
        let checked = RuleSet::parse(
            &[Source::new("rules", RULES)],
            &tidegate_rules::ParseOptions::default(),
        );
        let limiter =
            RuleLimiter::builder(checked.expect("rules").rules).clock(EngineClock::System).build();
        let identity = Identity::new(IdentityConfig::new([7; 16])).expect("an identity");
        let engine = Arc::new(Engine::new(limiter.expect("a limiter"), identity, controls));
        let mut settings = AdminSettings::default();
        settings.token = token.map(|token| Token::new(token).expect("a token"));
        let admin = Admin::new(Arc::clone(&engine), settings);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            let listener = Listener::Tcp(listener);
            while let Ok((stream, peer)) = listener.accept().await {
                let admin = admin.clone();
                tokio::spawn(
                    async move { admin.serve(stream, peer, CancellationToken::new()).await },
                );
            }
        });
        Self { engine, address, runtime }
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(args, &[("TIDEGATE_ADMIN", &format!("http://{}", self.address))])
    }

    fn is_allowed(&self, user: &str) -> bool {
        let attributes = [("user", user).into()];
        let call = Call::new("default", &attributes);
        let answer = self.runtime.block_on(self.engine.check(&call, Does::Take, Protocol::Http));
        answer.expect("a decision").is_allowed()
    }
}

fn run(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env_remove("CLICOLOR_FORCE");
    for variable in ["TIDEGATE_ADMIN", "TIDEGATE_ADMIN_TOKEN", "TIDEGATE_ADMIN_TOKEN_FILE"] {
        command.env_remove(variable);
    }
    let output = command.envs(variables.iter().copied()).output().expect("the command runs");
    Ran {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[test]
fn a_ban_is_made_listed_and_lifted() {
    let path = scratch("operate-ban").join("state.controls.json");
    let daemon = Daemon::new(Controls::load(&path).expect("none yet"), None);
    assert_eq!(daemon.run(&["ban", "user=42"]), Ran::yes("banned user=42\n"));
    assert!(!daemon.is_allowed("42") && daemon.is_allowed("43"));
    let ran = daemon.run(&[
        "ban",
        "192.0.2.7/24",
        "--for",
        "1h",
        "--domain",
        "api",
        "--note",
        "scrapes",
        "--json",
    ]);
    assert_eq!((ran.code, &ran.json()["entry"]["target"]), (0, &serde_json::json!("192.0.2.0/24")));
    let listed = daemon.run(&["ban", "--list"]);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!((listed.code, lines[0]), (0, "user=42"));
    assert!(
        lines[1].starts_with("192.0.2.0/24 in domain api until 2")
            && lines[1].ends_with("Z: scrapes"),
        "{lines:?}"
    );
    assert_eq!(daemon.run(&["ban", "--lift", "user=42"]), Ran::yes("lifted user=42\n"));
    assert!(daemon.is_allowed("42"));
    let again = daemon.run(&["ban", "--lift", "user=42"]);
    assert_eq!((again.code, again.stdout.as_str()), (1, ""));
    assert!(again.stderr.starts_with("error: there is no such entry"), "{}", again.stderr);
    // And all of it is in the file that the next start reads.
    let kept = Controls::load(&path).expect("what was written");
    assert_eq!(kept.counts(daemon.engine.limiter().now()).bans, 1);
}

#[test]
fn the_allow_list_has_the_same_commands_and_forgetting_is_told() {
    let daemon = Daemon::new(Controls::default(), None);
    let ran = daemon.run(&["allow", "user=42"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "allowed user=42\n"));
    assert!(ran.stderr.starts_with("warning: a restart forgets it"), "{}", ran.stderr);
    assert!((0..5).all(|_| daemon.is_allowed("42")));
    assert_eq!(daemon.run(&["allow", "--list"]), Ran::yes("user=42\n"));
    assert_eq!(daemon.run(&["allow", "--lift", "user=42", "--json"]).json()["lifted"], true);
    let empty = daemon.run(&["allow", "--list"]);
    assert_eq!(
        (empty.code, empty.stdout.as_str(), empty.stderr.as_str()),
        (0, "", "the allow-list is empty\n")
    );
}

#[test]
fn switches_say_whether_they_are_on_with_their_exit_code() {
    let daemon = Daemon::new(Controls::default(), None);
    for (switch, meaning) in
        [("bypass", "on: everything is let through\n"), ("shadow", "on: all rules are in shadow\n")]
    {
        let off = daemon.run(&[switch]);
        assert_eq!((off.code, off.stdout.as_str()), (1, "off\n"));
        assert_eq!(daemon.run(&[switch, "on"]).stdout, meaning);
        assert!((0..5).all(|_| daemon.is_allowed("42")));
        let on = daemon.run(&[switch, "status"]);
        assert_eq!((on.code, on.stdout.as_str()), (0, meaning));
        let off = daemon.run(&[switch, "off"]);
        assert_eq!((off.code, off.stdout.as_str()), (0, "off\n"));
    }
}

#[test]
fn a_key_is_peeked_at_reset_and_at_the_top() {
    let daemon = Daemon::new(Controls::default(), None);
    assert_eq!(daemon.run(&["peek", "user=42"]).code, 0);
    assert_eq!((0..5).filter(|_| daemon.is_allowed("42")).count(), 2);
    let denied = daemon.run(&["peek", "user=42"]);
    assert_eq!(denied.code, 1);
    assert!(
        denied.stdout.starts_with("would be denied (over-limit), and passes in "),
        "{}",
        denied.stdout
    );
    assert!(denied.stdout.ends_with("  all: 2/hour, 0 of 2 left\n"), "{}", denied.stdout);
    let top = daemon.run(&["top", "--json"]);
    assert_eq!((top.code, &top.json()["keys"][0]["count"]), (0, &serde_json::json!(3)));
    let top = daemon.run(&["top", "--by", "requests", "--count", "3"]);
    assert!(top.stdout.starts_with("         5  default/all  "), "{}", top.stdout);
    assert!(top.stderr.starts_with("requests since 2"), "{}", top.stderr);
    assert_eq!(daemon.run(&["reset", "user=42"]), Ran::yes("1 counter reset\n"));
    assert!(daemon.is_allowed("42"));
    assert_eq!(daemon.run(&["reset", "--domain", "nowhere", "user=42"]).code, 1);
}

#[test]
fn a_token_comes_from_a_file_or_the_environment() {
    const TOKEN: &str = "correct-horse-battery";
    let daemon = Daemon::new(Controls::default(), Some(TOKEN));
    let refused = daemon.run(&["bypass", "on"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("TIDEGATE_ADMIN_TOKEN"), "{}", refused.stderr);
    let file = scratch("operate-token").join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("a file");
    let file = file.to_str().expect("a plain name");
    assert_eq!(daemon.run(&["bypass", "on", "--admin-token-file", file]).code, 0);
    let admin = format!("http://{}", daemon.address);
    let variables = [("TIDEGATE_ADMIN", admin.as_str()), ("TIDEGATE_ADMIN_TOKEN", TOKEN)];
    assert_eq!(run(&["bypass", "off"], &variables).code, 0);
    let help = run(&["bypass", "--help"], &variables);
    assert!(help.code == 0 && !help.stdout.contains(TOKEN), "{}", help.stdout);
    let missing = daemon.run(&["bypass", "--admin-token-file", "/nowhere/token"]);
    assert_eq!(missing.code, 2);
}

#[test]
fn what_cannot_be_asked_ends_with_2_and_says_what_to_do() {
    let daemon = Daemon::new(Controls::default(), None);
    for args in [
        &["ban", "somebody"][..],
        &["ban", "0.0.0.0/0"],
        &["ban"],
        &["ban", "--lift"],
        &["ban", "user=42", "--for", "a while"],
        &["ban", "--list", "user=42"],
        &["bypass", "maybe"],
        &["peek", "user"],
        &["top", "--count", "1000"],
    ] {
        let ran = daemon.run(args);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.starts_with("error: "), "{args:?}: {}", ran.stderr);
    }
    let json = daemon.run(&["ban", "user=42", "--for", "a while", "--json"]);
    assert!(
        json.json()["error"].as_str().is_some_and(|error| error.starts_with("for: ")),
        "{}",
        json.stdout
    );
    let port = tidegate_testing::free_port();
    let ran = run(&["bypass", "--admin", &format!(":{port}")], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("say where it is with --admin"), "{}", ran.stderr);
}
