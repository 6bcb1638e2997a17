//! What a connection knows about its client, and the small commands that client libraries send when
//! they connect.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::RespSettings;
use super::commands::{fits, help, is, unknown_subcommand, wrong_number};
use super::parse::Command;
use super::reply::{Reply, Shown, Version};
use crate::listen::Peer;

/// The version of Redis whose commands and words these are. Clients choose by it what they send.
const REDIS_VERSION: &str = "7.2.4";
/// The only user there is.
const USER: &[u8] = b"default";
/// The most bytes of a name that a client gives to its connection, or to its library.
const NAME_BYTES_MAX: usize = 128;
/// The most bytes of an option that an error repeats.
const SHOWN_BYTES_MAX: usize = 128;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";
const HELLO_FIRST: &str = "NOAUTH HELLO must be called with the client already authenticated, \
                           otherwise the HELLO AUTH <user> <pass> option can be used to \
                           authenticate the client and select the RESP protocol version at the same \
                           time";

/// What a connection knows about its client.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    peer: Peer,
    pub(super) version: Version,
    /// Whether it may ask for decisions.
    pub(super) is_known: bool,
    name: Option<Box<str>>,
    library: Option<Box<str>>,
    library_version: Option<Box<str>>,
}

impl Session {
    pub(super) fn new(peer: Peer, settings: &RespSettings) -> Self {
        // Clients tell connections apart by it, so no two have the same.
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        // ORDERING: the number is all that matters; nothing else is read by it.
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            id,
            peer,
            version: Version::Two,
            is_known: !settings.has_password(),
            name: None,
            library: None,
            library_version: None,
        }
    }

    /// Makes it as good as new.
    pub(super) fn reset(&mut self, settings: &RespSettings) {
        (self.version, self.name) = (Version::Two, None);
        self.is_known = !settings.has_password();
    }

    /// Answers `AUTH [user] password`.
    pub(super) fn auth(
        &mut self,
        command: &Command<'_>,
        settings: &RespSettings,
        reply: &mut Reply<'_>,
    ) {
        let (user, password) = match (command.part(1), command.part(2), command.len()) {
            (Some(_), None, _) if !settings.has_password() => {
                return reply.error(format_args!("{NO_PASSWORD}"));
            }
            (Some(password), None, _) => (USER, password),
            (Some(user), Some(password), 3) => (user, password),
            _ => return reply.error(format_args!("ERR syntax error")),
        };
        if self.log_in(user, password, settings) {
            reply.simple("OK");
        } else {
            reply.error(format_args!("{WRONG_PASSWORD}"));
        }
    }

    /// Where no password is set, any will do. Somebody who is known stays so after a mistake.
    fn log_in(&mut self, user: &[u8], password: &[u8], settings: &RespSettings) -> bool {
        let is_right = user == USER && settings.accepts(password);
        self.is_known |= is_right;
        is_right
    }

    /// Answers `HELLO [version [AUTH user password] [SETNAME name]]`.
    pub(super) fn hello(
        &mut self,
        command: &Command<'_>,
        settings: &RespSettings,
        out: &mut Vec<u8>,
    ) {
        match self.greet(command, settings) {
            // In the version that was just chosen.
            Ok(()) => self.introduce(&mut Reply::new(out, self.version)),
            Err(error) => Reply::new(out, self.version).error(format_args!("{error}")),
        }
    }

    fn greet(&mut self, command: &Command<'_>, settings: &RespSettings) -> Result<(), String> {
        let mut parts = command.parts_from(1);
        let version = match parts.next().map(number) {
            None => self.version,
            Some(Some(2)) => Version::Two,
            Some(Some(3)) => Version::Three,
            Some(Some(_)) => return Err("NOPROTO unsupported protocol version".into()),
            Some(None) => {
                return Err("ERR Protocol version is not an integer or out of range".into());
            }
        };
        let mut name = None;
        let mut login = None;
        while let Some(option) = parts.next() {
            match parts.len() {
                2.. if is(option, "AUTH") => login = parts.next().zip(parts.next()),
                1.. if is(option, "SETNAME") => name = parts.next(),
                _ => {
                    let shown = Shown { bytes: option, bytes_max: SHOWN_BYTES_MAX };
                    return Err(format!("ERR Syntax error in HELLO option '{shown}'"));
                }
            }
        }
        if let Some((user, password)) = login
            && !self.log_in(user, password, settings)
        {
            return Err(WRONG_PASSWORD.into());
        }
        if !self.is_known {
            return Err(HELLO_FIRST.into());
        }
        if let Some(name) = name {
            self.name = label(name, "Client names")?;
        }
        self.version = version;
        Ok(())
    }

    fn introduce(&self, reply: &mut Reply<'_>) {
        reply.map(7);
        for (name, text) in [("server", "tidegate"), ("version", REDIS_VERSION)] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"proto");
        reply.integer(match self.version {
            Version::Two => 2,
            Version::Three => 3,
        });
        reply.bulk(b"id");
        reply.integer(self.id);
        for (name, text) in [("mode", "standalone"), ("role", "master")] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        reply.bulk(b"modules");
        reply.array(0);
    }

    /// Answers `CLIENT` and what can follow it.
    pub(super) fn client(&mut self, command: &Command<'_>, reply: &mut Reply<'_>) {
        const SUBCOMMANDS: [(&str, i64, Client); 11] = [
            ("setinfo", 4, Client::SetInfo),
            ("setname", 3, Client::SetName),
            ("getname", 2, Client::Name),
            ("id", 2, Client::Id),
            ("info", 2, Client::Info),
            ("tracking", -3, Client::Tracking),
            ("trackinginfo", 2, Client::TrackingInfo),
            ("no-evict", 3, Client::Ignored),
            ("no-touch", 3, Client::Ignored),
            ("reply", 3, Client::Reply),
            ("help", 2, Client::Help),
        ];
        let word = command.part(1).unwrap_or_default();
        let Some((name, arity, client)) = SUBCOMMANDS.iter().find(|(name, ..)| is(word, name))
        else {
            return unknown_subcommand(command, "CLIENT", reply);
        };
        if !fits(command.len(), *arity) {
            return wrong_number(&format!("client|{name}"), reply);
        }
        let [first, second] = [2, 3].map(|index| command.part(index).unwrap_or_default());
        match client {
            Client::SetInfo => done(self.set_info(first, second), reply),
            Client::SetName => {
                done(label(first, "Client names").map(|name| self.name = name), reply);
            }
            Client::Name => reply.bulk_or_null(self.name.as_deref().map(str::as_bytes)),
            Client::Id => reply.integer(self.id),
            Client::Info => reply.text(&self.line()),
            Client::Tracking => switch(first, "OFF", "CLIENT TRACKING ON", reply),
            Client::Reply => switch(first, "ON", "CLIENT REPLY OFF", reply),
            Client::TrackingInfo => tracking_info(reply),
            Client::Ignored => reply.simple("OK"),
            Client::Help => {
                let names: Vec<String> =
                    SUBCOMMANDS.iter().map(|(name, ..)| name.to_ascii_uppercase()).collect();
                help(&names.iter().map(String::as_str).collect::<Vec<_>>(), "CLIENT", reply);
            }
        }
    }

    fn set_info(&mut self, option: &[u8], value: &[u8]) -> Result<(), String> {
        if is(option, "LIB-NAME") {
            self.library = label(value, "lib-name")?;
        } else if is(option, "LIB-VER") {
            self.library_version = label(value, "lib-ver")?;
        } else {
            let shown = Shown { bytes: option, bytes_max: SHOWN_BYTES_MAX };
            return Err(format!("ERR Unrecognized option '{shown}'"));
        }
        Ok(())
    }

    /// What `CLIENT INFO` shows, which is what this client has said itself.
    fn line(&self) -> String {
        let text = |text: &Option<Box<str>>| text.clone().unwrap_or_default();
        let (name, library) = (text(&self.name), text(&self.library));
        let mut line = format!("id={} addr=", self.id);
        if let Some(peer) = self.peer {
            // Writing to a string does not fail.
            let _ = write!(line, "{peer}");
        }
        let resp = if self.version == Version::Two { 2 } else { 3 };
        let library_version = text(&self.library_version);
        let _ = writeln!(
            line,
            " name={name} db=0 user=default resp={resp} lib-name={library} lib-ver={library_version}"
        );
        line
    }
}

/// What can follow `CLIENT`.
#[derive(Clone, Copy)]
enum Client {
    SetInfo,
    SetName,
    Name,
    Id,
    Info,
    Tracking,
    TrackingInfo,
    /// What says how keys are kept, of which there are none.
    Ignored,
    Reply,
    Help,
}

/// A name to remember; nothing is the same as none.
fn label(bytes: &[u8], what: &str) -> Result<Option<Box<str>>, String> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(format!("ERR {what} cannot be longer than {NAME_BYTES_MAX} bytes."));
    }
    match std::str::from_utf8(bytes) {
        Ok("") => Ok(None),
        Ok(name) if bytes.iter().all(u8::is_ascii_graphic) => Ok(Some(name.into())),
        Ok(_) | Err(_) => {
            Err(format!("ERR {what} cannot contain spaces, newlines or special characters."))
        }
    }
}

fn done(outcome: Result<(), String>, reply: &mut Reply<'_>) {
    match outcome {
        Ok(()) => reply.simple("OK"),
        Err(error) => reply.error(format_args!("{error}")),
    }
}

/// A switch that stands where it stands.
fn switch(word: &[u8], stands: &str, moved: &str, reply: &mut Reply<'_>) {
    if is(word, stands) {
        reply.simple("OK");
    } else {
        reply.error(format_args!("ERR {moved} is not supported"));
    }
}

fn tracking_info(reply: &mut Reply<'_>) {
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.integer(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
}

/// Answers `PING [message]`.
pub(super) fn ping(command: &Command<'_>, reply: &mut Reply<'_>) {
    match (command.part(1), command.len()) {
        (None, _) => reply.simple("PONG"),
        (Some(message), 2) => reply.bulk(message),
        _ => wrong_number("ping", reply),
    }
}

/// Answers `SELECT`: there is one database.
pub(super) fn select(command: &Command<'_>, reply: &mut Reply<'_>) {
    match command.part(1).and_then(number) {
        Some(0) => reply.simple("OK"),
        Some(_) => reply.error(format_args!("ERR DB index is out of range")),
        None => reply.error(format_args!("ERR value is not an integer or out of range")),
    }
}

/// Answers `CONFIG`: there is nothing that can be read or set this way.
pub(super) fn config(command: &Command<'_>, reply: &mut Reply<'_>) {
    let subcommand = command.part(1).unwrap_or_default();
    if is(subcommand, "GET") && command.len() > 2 {
        reply.map(0);
    } else if is(subcommand, "GET") {
        wrong_number("config|get", reply);
    } else if is(subcommand, "HELP") {
        help(&["GET <pattern> [<pattern> ...]"], "CONFIG", reply);
    } else {
        unknown_subcommand(command, "CONFIG", reply);
    }
}

/// Answers `INFO [section ...]`: there is one section.
pub(super) fn info(command: &Command<'_>, reply: &mut Reply<'_>) {
    const HAVING_IT: [&str; 4] = ["server", "default", "all", "everything"];
    let names_it = |section: &[u8]| HAVING_IT.iter().any(|name| is(section, name));
    if command.len() > 1 && !command.parts_from(1).any(names_it) {
        return reply.text("");
    }
    let lines = [
        ("redis_version", REDIS_VERSION),
        ("server_name", "tidegate"),
        ("tidegate_version", env!("CARGO_PKG_VERSION")),
        ("redis_mode", "standalone"),
        ("os", std::env::consts::OS),
        ("arch", std::env::consts::ARCH),
        ("process_id", &std::process::id().to_string()),
    ];
    let mut text = String::from("# Server\r\n");
    for (name, value) in lines {
        // Writing to a string does not fail.
        let _ = write!(text, "{name}:{value}\r\n");
    }
    reply.text(&text);
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
