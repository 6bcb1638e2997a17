//! The script without us: one call as we send it, taken from the wire, and `redis-benchmark` sending the
//! same again and again.
//!
//! Our argument has bytes that `redis-benchmark` cannot send. So it stands in the script that it runs,
//! and what is sent in its place is as long.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use tidegate_core::{Key, Operation, Timestamp};
use tidegate_store::{Answers, Charge, Request, Store};

use super::callers;
use crate::wire::server::{local, pinned};

/// A call of the script.
pub(super) struct Call {
    port: u16,
    /// The name that the server has for the script with our argument in it.
    script: String,
    argument_bytes: usize,
    /// What its keys begin with: scripts must not find each other's states.
    prefix: char,
}

/// Has a store decide once, and takes what it sent for it.
pub(super) fn capture(port: u16) -> Result<Call, Box<dyn Error>> {
    let listener = TcpListener::bind(local(0))?;
    let ours = listener.local_addr()?.port();
    let listening = thread::spawn(move || listen(&listener, port).ok());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = callers::store(ours).await?;
        let limit = callers::limit()?;
        let key = Key::from_hash(u128::MAX / 3);
        let charges = [Charge { limit: &limit, key, operation: Operation::Take { cost: 1 } }];
        let mut answers = Answers::new();
        store.decide(&[Request { now: Timestamp::ZERO, charges: &charges }], &mut answers).await;
        Ok::<(), Box<dyn Error>>(())
    })?;
    drop(runtime);
    let sent = listening.join().ok().flatten().ok_or("nothing was sent")?;
    let [.., argument] = &after(&sent, b"EVALSHA", 4)?[..] else { return Err("no call".into()) };
    let [source] = &after(&sent, b"LOAD", 1)?[..] else { return Err("no script".into()) };
    let bytes: Vec<String> = argument.iter().map(|byte| format!("\\{byte:03}")).collect();
    let head = format!("local ARGV = {{'{}'}}\n", bytes.concat());
    let source = [head.as_bytes(), source].concat();
    Ok(Call { port, script: load(port, &source)?, argument_bytes: argument.len(), prefix: 't' })
}

/// The arguments behind the last command, or part of one, of this name.
fn after(sent: &[u8], name: &[u8], count: usize) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let word = [name, b"\r\n"].concat();
    let start = sent.windows(word.len()).rposition(|bytes| bytes == word);
    let start = start.ok_or("a command was not sent")? + word.len();
    words(&sent[start..], count).ok_or_else(|| "a command has other arguments".into())
}

/// Has the server keep a script.
fn load(port: u16, source: &[u8]) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(local(port))?;
    let head = format!("*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n", source.len());
    stream.write_all(&[head.as_bytes(), source, b"\r\n"].concat())?;
    let mut reply = [0; 47];
    stream.read_exact(&mut reply)?;
    let name = words(&reply, 1).ok_or("the server did not keep the script")?;
    Ok(String::from_utf8(name.concat())?)
}

/// Stands between a store and the server, and gives all that the store sends.
fn listen(listener: &TcpListener, port: u16) -> std::io::Result<Vec<u8>> {
    let (mut client, _) = listener.accept()?;
    let mut server = TcpStream::connect(local(port))?;
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || std::io::copy(&mut from, &mut to));
    let (mut sent, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = client.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            break;
        }
        sent.extend(&buffer[..read]);
        server.write_all(&buffer[..read])?;
    }
    server.shutdown(std::net::Shutdown::Both)?;
    let _ = back.join();
    Ok(sent)
}

/// So many bulk strings that follow each other.
fn words(mut bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..count {
        let rest = bytes.strip_prefix(b"$")?;
        let end = rest.iter().position(|byte| *byte == b'\r')?;
        let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        words.push(rest.get(end + 2..end + 2 + length)?.to_vec());
        bytes = rest.get(end + 2 + length + 2..)?;
    }
    Some(words)
}

/// A script that only does what any limiter has to for each of its keys: it asks for the time, reads each
/// and writes it with an expiry.
const LEAST: &str = "
redis.call('TIME')
for i = 1, #KEYS do
  redis.call('GET', KEYS[i])
  redis.call('SET', KEYS[i], '12345678901', 'PX', 86400000)
end
return '12345678901234567890123456'
";

/// A call of that script.
pub(super) fn least(port: u16) -> Result<Call, Box<dyn Error>> {
    Ok(Call { port, script: load(port, LEAST.as_bytes())?, argument_bytes: 1, prefix: 'l' })
}

impl Call {
    /// Has `redis-benchmark` send it about so often, with so many keys. Gives how many are answered in a
    /// second.
    pub(super) fn run(
        &self,
        core: usize,
        keys: usize,
        pipeline: u32,
        calls: f64,
    ) -> Result<f64, Box<dyn Error>> {
        let mut command = pinned(core, Path::new("redis-benchmark"));
        command.args(["--csv", "-p", &self.port.to_string(), "-c", "1"]);
        command.args(["-P", &pipeline.to_string(), "-n", &format!("{calls:.0}")]);
        command.args(["-r", &super::strict::KEYS.to_string(), "EVALSHA", &self.script]);
        command.arg(keys.to_string());
        // As short as it can make them, which is four bytes longer than ours.
        let name = |number| format!("{}{number}__rand_int__", self.prefix);
        command.args((0..keys).map(name));
        command.arg("a".repeat(self.argument_bytes));
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = text.lines().last().and_then(|line| line.rsplit("\",\"").nth(6));
        let rate = rate.and_then(|rate| rate.trim_matches('"').parse().ok());
        rate.ok_or_else(|| {
            format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr)).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_command_are_read_whatever_bytes_they_have() {
        let sent = b"*3\r\n$1\r\na\r\n$4\r\n\r\n\0$\r\n$0\r\n\r\n$1";
        assert_eq!(after(sent, b"a", 2).unwrap(), [&b"\r\n\0$"[..], b""]);
        assert!(after(sent, b"a", 3).is_err());
    }
}
