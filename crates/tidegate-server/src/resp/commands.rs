//! The commands that there are: their names, what they take, and what `COMMAND` says about them.

use std::fmt::Write as _;

use super::parse::Command;
use super::reply::{Reply, Shown};

/// A command, as clients ask about it.
#[derive(Debug)]
pub(super) struct Spec {
    /// In capitals, as it is dispatched by.
    pub(super) name: &'static str,
    pub(super) verb: Verb,
    /// The number of parts, the name included; negative where more may follow.
    arity: i64,
    flags: &'static [&'static str],
    group: &'static str,
    summary: &'static str,
}

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Throttle,
    Check,
    Peek,
    Debit,
    Refund,
    Release,
    Renew,
    Reset,
    Ping,
    Echo,
    Hello,
    Auth,
    Select,
    Client,
    CommandTable,
    Info,
    Config,
    Quit,
    ResetConnection,
    /// Not one that we have, and whoever sends it should know why.
    Refused {
        lacks: &'static str,
    },
}

impl Verb {
    /// Whether somebody may ask for it who has not said the password.
    pub(super) const fn is_for_all(self) -> bool {
        matches!(self, Self::Auth | Self::Hello | Self::Quit | Self::ResetConnection)
    }
}

/// Its arity is checked by what decides it, which has words of its own for a mistake.
pub(super) const THROTTLE: Spec = Spec {
    name: "CL.THROTTLE",
    verb: Verb::Throttle,
    arity: -1,
    flags: &["write", "fast"],
    group: "tidegate",
    summary: "Takes from a token bucket whose numbers come with the command",
};

/// Those that decide come first, since they are looked for most.
const COMMANDS: [Spec; 19] = [
    THROTTLE,
    rules("TG.CHECK", Verb::Check, -3, "Takes the cost of a call under the rules of a domain"),
    rules("TG.PEEK", Verb::Peek, -3, "Answers as TG.CHECK would, and takes nothing"),
    rules("TG.DEBIT", Verb::Debit, -3, "Takes the cost whether it is there or not"),
    rules("TG.REFUND", Verb::Refund, -4, "Gives back what an equal call took"),
    rules("TG.RELEASE", Verb::Release, -3, "Gives back a lease of a concurrency limit"),
    rules("TG.RENEW", Verb::Renew, -3, "Counts a lease of a concurrency limit as taken now"),
    rules("TG.RESET", Verb::Reset, -2, "Forgets what calls like this one took"),
    connection("PING", Verb::Ping, -1, "Answers PONG, or what it is given"),
    connection("ECHO", Verb::Echo, 2, "Answers what it is given"),
    connection("HELLO", Verb::Hello, -1, "Chooses the version of the protocol"),
    connection("AUTH", Verb::Auth, -2, "Says the password"),
    connection("SELECT", Verb::Select, 2, "Chooses database 0, the only one"),
    connection("CLIENT", Verb::Client, -2, "Names the connection, and tells about it"),
    server("COMMAND", Verb::CommandTable, -1, "Tells which commands there are"),
    server("INFO", Verb::Info, -1, "Tells about the server"),
    server("CONFIG", Verb::Config, -2, "Answers that there is nothing to configure"),
    connection("QUIT", Verb::Quit, -1, "Ends the connection"),
    connection("RESET", Verb::ResetConnection, 1, "Makes the connection as good as new"),
];

/// Commands of Redis that would change what later commands mean, and what is not supported, with its verb.
const REFUSED: [(&[&str], &str); 4] = [
    (&["MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"], "transactions are"),
    (
        &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PUBLISH"],
        "channels are",
    ),
    (&["MONITOR"], "watching other clients is"),
    (&["SYNC", "PSYNC", "REPLICAOF", "SLAVEOF", "REPLCONF"], "replication is"),
];

const fn rules(name: &'static str, verb: Verb, arity: i64, summary: &'static str) -> Spec {
    Spec { name, verb, arity, flags: &["write", "fast"], group: "tidegate", summary }
}

const fn connection(name: &'static str, verb: Verb, arity: i64, summary: &'static str) -> Spec {
    let flags: &[&str] = if verb.is_for_all() { &["fast", "no_auth"] } else { &["fast"] };
    Spec { name, verb, arity, flags, group: "connection", summary }
}

const fn server(name: &'static str, verb: Verb, arity: i64, summary: &'static str) -> Spec {
    Spec { name, verb, arity, flags: &["loading", "stale"], group: "server", summary }
}

/// What a command of this name does; `None` for one that nobody knows.
pub(super) fn verb(name: &[u8]) -> Option<Verb> {
    if let Some(spec) = spec(name) {
        return Some(spec.verb);
    }
    let is_named = |names: &[&str]| names.iter().any(|known| is(name, known));
    let (_, lacks) = REFUSED.iter().find(|(names, _)| is_named(names))?;
    Some(Verb::Refused { lacks })
}

fn spec(name: &[u8]) -> Option<&'static Spec> {
    COMMANDS.iter().find(|spec| is(name, spec.name))
}

/// Whether a word is this one; capitals and small letters are the same.
#[inline]
pub(super) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Whether a command has as many parts as it should. Where not, the error is written.
pub(super) fn has_its_parts(command: &Command<'_>, reply: &mut Reply<'_>) -> bool {
    let Some(spec) = command.part(0).and_then(spec) else { return true };
    let fits = fits(command.len(), spec.arity);
    if !fits {
        wrong_number(&spec.name.to_ascii_lowercase(), reply);
    }
    fits
}

pub(super) fn fits(parts: usize, arity: i64) -> bool {
    let wanted = arity.unsigned_abs() as usize;
    if arity < 0 { parts >= wanted } else { parts == wanted }
}

pub(super) fn wrong_number(name: &str, reply: &mut Reply<'_>) {
    reply.error(format_args!("ERR wrong number of arguments for '{name}' command"));
}

/// In the words of Redis, which repeat the beginning of the command.
pub(super) fn unknown(command: &Command<'_>, reply: &mut Reply<'_>) {
    const SHOWN_BYTES_MAX: usize = 128;
    let mut arguments = String::new();
    for bytes in command.parts_from(1) {
        if arguments.len() >= SHOWN_BYTES_MAX {
            break;
        }
        let bytes_max = SHOWN_BYTES_MAX - arguments.len();
        // Writing to a string does not fail.
        let _ = write!(arguments, "'{}' ", Shown { bytes, bytes_max });
    }
    let name = Shown { bytes: command.part(0).unwrap_or_default(), bytes_max: SHOWN_BYTES_MAX };
    reply
        .error(format_args!("ERR unknown command '{name}', with args beginning with: {arguments}"));
}

pub(super) fn unknown_subcommand(command: &Command<'_>, of: &str, reply: &mut Reply<'_>) {
    const SHOWN_BYTES_MAX: usize = 128;
    let name = Shown { bytes: command.part(1).unwrap_or_default(), bytes_max: SHOWN_BYTES_MAX };
    reply.error(format_args!("ERR unknown subcommand '{name}'. Try {of} HELP."));
}

/// Answers `COMMAND` and what can follow it.
pub(super) fn table(command: &Command<'_>, reply: &mut Reply<'_>) {
    let Some(subcommand) = command.part(1) else { return all(reply, describe) };
    let names = || command.parts_from(2);
    if is(subcommand, "COUNT") && command.len() == 2 {
        reply.integer(COMMANDS.len());
    } else if is(subcommand, "LIST") && command.len() == 2 {
        all(reply, |spec, reply| reply.bulk(lower(spec).as_bytes()));
    } else if is(subcommand, "INFO") && names().len() == 0 {
        all(reply, describe);
    } else if is(subcommand, "INFO") {
        reply.array(names().len());
        for name in names() {
            match spec(name) {
                Some(spec) => describe(spec, reply),
                None => reply.null(),
            }
        }
    } else if is(subcommand, "DOCS") {
        let asked = |of: &&Spec| names().len() == 0 || names().any(|name| is(name, of.name));
        reply.map(COMMANDS.iter().filter(asked).count());
        COMMANDS.iter().filter(asked).for_each(|spec| document(spec, reply));
    } else if is(subcommand, "HELP") {
        help(&["COUNT", "DOCS [<command> ...]", "INFO [<command> ...]", "LIST"], "COMMAND", reply);
    } else {
        unknown_subcommand(command, "COMMAND", reply);
    }
}

/// Answers `… HELP`.
pub(super) fn help(lines: &[&str], of: &str, reply: &mut Reply<'_>) {
    reply.array(lines.len() + 1);
    reply.simple(&format!("{of} <subcommand> [<arg> ...]. Subcommands are:"));
    for line in lines {
        reply.simple(line);
    }
}

fn all(reply: &mut Reply<'_>, each: impl Fn(&Spec, &mut Reply<'_>)) {
    reply.array(COMMANDS.len());
    for spec in &COMMANDS {
        each(spec, reply);
    }
}

fn lower(spec: &Spec) -> String {
    spec.name.to_ascii_lowercase()
}

/// The ten parts that Redis 7 describes a command with. Cluster clients learn from it where the key is.
fn describe(spec: &Spec, reply: &mut Reply<'_>) {
    let key = i64::from(spec.verb == Verb::Throttle);
    reply.array(10);
    reply.bulk(lower(spec).as_bytes());
    reply.integer(spec.arity);
    reply.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| reply.simple(flag));
    (0..3).for_each(|_| reply.integer(key));
    (0..4).for_each(|_| reply.set(0));
}

/// A pair of a map: the name, and what is said about it.
fn document(spec: &Spec, reply: &mut Reply<'_>) {
    reply.bulk(lower(spec).as_bytes());
    reply.map(3);
    for (name, text) in
        [("summary", spec.summary), ("since", env!("CARGO_PKG_VERSION")), ("group", spec.group)]
    {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
}
