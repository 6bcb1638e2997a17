//! A conversation without a socket: what is said, and the bytes that come back.

use std::sync::Arc;

use redis_protocol::{resp2, resp3};
use tidegate_server::resp::RespSettings;
use tidegate_server::resp::conversation::{Conversation, Desk, Next};

use crate::support::Daemon;

/// Rules of the kinds that answers differ by.
pub(crate) const RULES: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [ip], limit: 2/minute }
  - { name: jobs, match: { path: /jobs }, per: [user], limit: 2 at once for 30s }
  - { name: trial, match: { path: /trial }, limit: 1/hour, mode: shadow }
  - { name: queue, match: { path: /queue }, limit: { rate: 1/s, algorithm: leaky-bucket, burst: 2 } }
";

pub(crate) struct Talk {
    pub(crate) daemon: Daemon,
    conversation: Conversation,
    desk: Desk,
    pub(crate) next: Next,
}

impl Talk {
    pub(crate) fn new() -> Self {
        Self::with(RespSettings::new())
    }

    pub(crate) fn with(settings: RespSettings) -> Self {
        let daemon = Daemon::new(RULES);
        let conversation = Conversation::new(Arc::clone(&daemon.engine), Arc::new(settings), None);
        Self { daemon, conversation, desk: Desk::default(), next: Next::Listen }
    }

    /// One that speaks version 3.
    pub(crate) fn three() -> Self {
        let mut talk = Self::new();
        assert!(talk.says(b"HELLO 3\r\n").starts_with("%7\r\n"));
        talk
    }

    /// What these bytes are answered with, all of it.
    pub(crate) fn bytes(&mut self, said: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        self.next = self.conversation.hear(&mut said.to_vec(), &mut self.desk);
        loop {
            output.append(&mut self.desk.output);
            if self.next != Next::Resume {
                return output;
            }
            self.next = self.conversation.hear(&mut [], &mut self.desk);
        }
    }

    /// The most bytes that these are answered with before the answers are to be written.
    pub(crate) fn most_at_once(&mut self, said: &[u8]) -> usize {
        let mut most = 0;
        self.next = self.conversation.hear(&mut said.to_vec(), &mut self.desk);
        loop {
            most = most.max(self.desk.output.len());
            self.desk.output.clear();
            if self.next != Next::Resume {
                return most;
            }
            self.next = self.conversation.hear(&mut [], &mut self.desk);
        }
    }

    /// What these bytes are answered with, as text.
    pub(crate) fn says(&mut self, said: &[u8]) -> String {
        String::from_utf8(self.bytes(said)).expect("text")
    }

    /// What a command of these words is answered with.
    pub(crate) fn asks(&mut self, words: &str) -> String {
        self.says(&command(words.split_whitespace()))
    }
}

/// A command as clients send it.
pub(crate) fn command<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let words: Vec<W> = words.into_iter().collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// How many replies these bytes are, as another implementation reads them.
pub(crate) fn replies(bytes: &[u8], version: u8) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < bytes.len() {
        let len = if version == 2 {
            resp2::decode::decode(&bytes[at..]).expect("a reply").map(|(_, len)| len)
        } else {
            resp3::decode::complete::decode(&bytes[at..]).expect("a reply").map(|(_, len)| len)
        };
        at += len.expect("a whole reply");
        count += 1;
    }
    count
}
