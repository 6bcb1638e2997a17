//! Where settings come from, and what a person is told about those that cannot be used, word for word.

mod daemon;
mod run;

use std::net::TcpListener;

use daemon::{Daemon, FREE_PORTS, Folder, command, serve};
use run::Ran;

/// Runs a daemon that cannot start.
fn refused(flags: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = command();
    command
        .arg("serve")
        .args(FREE_PORTS.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten());
    command.args(flags).envs(variables.iter().copied());
    let output = command.output().expect("the command starts");
    Ran {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[track_caller]
fn assert_refused(flags: &[&str], stderr: &str) {
    let ran = refused(flags, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{flags:?}: {}", ran.stderr);
    assert_eq!(ran.stderr, stderr, "{flags:?}");
}

#[test]
fn a_flag_goes_before_a_variable_and_both_before_the_file() {
    let folder = Folder::new("layers");
    let socket = |name: &str| format!("unix:{}", folder.file(name));
    let text = format!(
        "http: {}\ngrpc: {}\nresp: {}\nadmin: off\n",
        socket("file-http"),
        socket("file-grpc"),
        socket("file-resp")
    );
    let file = folder.write("tidegate.yaml", &text);
    let mut command = command();
    command.args(["serve", "--json", "--config", &file, "--http", &socket("flag-http")]);
    command.env("TIDEGATE_HTTP", socket("variable-http"));
    command.env("TIDEGATE_GRPC", socket("variable-grpc"));
    let daemon = Daemon::start(command);
    assert_eq!(daemon.address("http"), socket("flag-http"));
    assert_eq!(daemon.address("grpc"), socket("variable-grpc"));
    assert_eq!(daemon.address("resp"), socket("file-resp"));
    assert!(daemon.ready["addresses"]["admin"].is_null());
    daemon.stop();
}

#[test]
fn a_variable_holds_several_paths_of_rules() {
    let folder = Folder::new("paths");
    let rule = |domain: &str| {
        format!("{{ domain: {domain}, rules: [{{ name: a, per: [ip], limit: 1/s }}] }}")
    };
    let (one, two) =
        (folder.write("one.yaml", &rule("one")), folder.write("two.yaml", &rule("two")));
    let mut command = command();
    command.args(["serve", "--json", "--log-format", "json"]).args(FREE_PORTS);
    command.env("TIDEGATE_RULES", format!("{one}:{two}"));
    let mut daemon = Daemon::start(command);
    let line = daemon.wait_for("\"ready\"");
    assert!(line.contains("\"rules\":2"), "{line}");
    daemon.stop();
}

#[test]
fn an_address_in_use_names_the_flag_to_change() {
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    for (service, flag) in
        [("http", "--http"), ("grpc", "--grpc"), ("resp", "--resp"), ("admin", "--admin")]
    {
        let expected = format!(
            "error: {service} cannot listen at {address}: something else listens there: stop it, or choose \
             another address with {flag}\n"
        );
        assert_refused(&[flag, &address], &expected);
    }
}

#[test]
fn an_address_that_this_machine_does_not_have_is_told() {
    assert_refused(
        &["--http", "192.0.2.1:8080"],
        "error: http cannot listen at 192.0.2.1:8080: this machine does not have that address: choose one of \
         its own with --http\n",
    );
}

#[test]
fn an_admin_address_that_others_reach_needs_a_token() {
    let ran = refused(&["--admin", "0.0.0.0:0"], &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("error: --admin 0.0.0.0:"), "{}", ran.stderr);
    assert!(
        ran.stderr.ends_with(
            " can be reached from other machines, and asks for nothing: give it a token with \
             --admin-token-file or TIDEGATE_ADMIN_TOKEN, or listen at 127.0.0.1\n"
        ),
        "{}",
        ran.stderr
    );
    let folder = Folder::new("token");
    let token = folder.write("token", "open-sesame-please\n");
    serve(&["--admin", "0.0.0.0:0", "--admin-token-file", &token]).stop();
    let mut command = command();
    command.args(["serve", "--json", "--http", ":0", "--grpc", "off", "--resp", "off"]);
    command.args(["--admin", "0.0.0.0:0"]).env("TIDEGATE_ADMIN_TOKEN", "open-sesame-please");
    Daemon::start(command).stop();
    // One that could be guessed is none.
    let ran = refused(&["--admin", "0.0.0.0:0"], &[("TIDEGATE_ADMIN_TOKEN", "sesame")]);
    let expected =
        "error: --admin-token-file or TIDEGATE_ADMIN_TOKEN: a token has at least 16 characters\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, expected));
}

#[test]
fn every_bad_setting_is_told_in_a_line() {
    let folder = Folder::new("bad");
    let empty = folder.write("empty", "\n");
    for (flags, stderr) in [
        (
            &["--store", "redis://localhost"][..],
            "error: --store: nodes that share limits hash keys with one secret, and this one has none: make it once \
             with `openssl rand -hex 32`, and give the same to every node, with --secret-file or TIDEGATE_SECRET\n",
        ),
        (
            &["--consistency", "leased"],
            "error: --consistency: `strict` and `leased` need a store that several nodes share: name one \
             with --store, or write `local`\n",
        ),
        (
            &["--limit", "1/s per ip", "--rules", "rules.yaml"],
            "error: there are rules from files and one from --limit: move that one into a file, or leave one of \
             them out\n",
        ),
        (
            &["--http", "off", "--grpc", "off", "--resp", "off"],
            "error: --http, --grpc and --resp are all off: nobody could ask anything; leave one on\n",
        ),
        (
            &["--http", ":7", "--grpc", ":7"],
            "error: --http and --grpc are both 127.0.0.1:7: give each its own address, or turn one `off`\n",
        ),
        (&["--max-delay", "61s"], "error: --max-delay is too long: at most 60s\n"),
        (
            &["--admin-token-file", &empty],
            &format!("error: --admin-token-file: {empty}: it is empty: write the secret into it\n"),
        ),
        (
            &["--state", "/nowhere/at/all/state"],
            "error: --state: /nowhere/at/all cannot be used: No such file or directory (os error 2)\n",
        ),
    ] {
        assert_refused(flags, stderr);
    }
}

#[test]
fn a_value_that_cannot_be_read_says_what_to_write() {
    for (flags, words) in [
        (&["--http", "localhost"][..], "write an address and a port (`127.0.0.1:8080`"),
        (&["--memory", "lots"], "write a size such as `64MiB`, `1GiB` or `500MB`"),
        (&["--memory", "1KiB"], "--memory"),
        (&["--limit", "10/minute"], "say per what: `10/minute per ip`"),
        (&["--drain-timeout", "ten"], "write a time such as `10s`, `250ms` or `1m30s`"),
        (&["--max-connections", "0"], "write a number from 1 on"),
        (&["--headers", "fancy"], "[possible values: all, ietf, x-ratelimit, none]"),
        (&["--log-level", "loud"], "[possible values: error, warn, info, debug, trace]"),
        (&["--shadow=perhaps"], "--shadow"),
        (&["--config", "/nowhere.yaml"], "--config: /nowhere.yaml: No such file"),
        (&["--admin-token", "sesame"], "unexpected argument '--admin-token'"),
    ] {
        let ran = refused(flags, &[]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{flags:?}");
        assert!(ran.stderr.starts_with("error: "), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(words), "{flags:?}: {}", ran.stderr);
    }
}

#[test]
fn mistakes_in_the_settings_file_are_shown_with_their_lines() {
    let folder = Folder::new("mistakes");
    let file = folder.write("tidegate.yaml", "http: 127.0.0.1:0\nmemroy: 1GiB\n");
    let expected = format!(
        "error: unknown field `memroy`
 --> {file}:2:1
  |
2 | memroy: 1GiB
  | ^^^^^^
  = help: did you mean `memory`?

1 error: the settings cannot be used
"
    );
    assert_refused(&["--config", &file], &expected);
    let ran = refused(&["--config", &file, "--json"], &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (2, ""));
    assert_eq!(ran.json()["diagnostics"][0]["line"], 2);
}

#[test]
fn mistakes_in_the_rules_are_shown_as_validate_shows_them() {
    let folder = Folder::new("rules");
    let file = folder.write("rules.yaml", "{ domain: api, key: ip }\n");
    let ran = refused(&["--rules", &file], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("rules.yaml:1:1\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("\n1 error: the rules cannot be used\n"), "{}", ran.stderr);
    let ran = refused(&["--rules", "/nowhere.yaml"], &[]);
    assert!(ran.stderr.starts_with("error: /nowhere.yaml: does not exist"), "{}", ran.stderr);
}

#[test]
fn a_variable_that_is_nearly_a_setting_is_told() {
    let mut command = command();
    command.args(["serve", "--json"]).args(FREE_PORTS).env("TIDEGATE_HTPP", ":1");
    let (_, log) = Daemon::start(command).stop();
    let expected = "warning: the variable TIDEGATE_HTPP is no setting: did you mean TIDEGATE_HTTP?";
    assert_eq!(log[0], expected);
}

#[test]
fn a_secret_given_twice_is_told() {
    let ran = refused(&["--admin-token-file", "a"], &[("TIDEGATE_ADMIN_TOKEN", "open sesame")]);
    let expected = "error: the secret comes from --admin-token-file and from TIDEGATE_ADMIN_TOKEN: leave one out\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, expected));
    assert!(!ran.stderr.contains("sesame"));
}
