//! What keys take in the server, as it counts by itself.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidegate_core::{Key, Operation, Timestamp};
use tidegate_store::{Answers, Charge, Request, Store};

use super::{callers, ratio, redis, told};
use crate::targets::{Figure, Target};
use crate::wire::server::{Cores, local};

/// As many keys as fill the server's table of keys to the brim.
const KEYS: u32 = 32_768;

/// A token bucket's state beside a key and a value that are as short as they can be.
pub(super) fn figures(cores: &Cores) -> Result<Vec<Figure>, Box<dyn Error>> {
    let ours = of_token_buckets(redis(cores.server)?.port)?;
    let smallest = of_smallest_keys(redis(cores.server)?.port)?;
    let name = "memory in the server, token bucket";
    Ok(vec![
        told(name.to_owned(), ours, "bytes a key"),
        told("memory in the server, smallest key".to_owned(), smallest, "bytes a key"),
        ratio(name, ours / smallest, "the smallest key", Target::AtMost(1.15)),
    ])
}

/// Bytes for each token bucket.
fn of_token_buckets(port: u16) -> Result<f64, Box<dyn Error>> {
    let empty = used(port)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = callers::store(port).await?;
        let limit = callers::limit()?;
        let operation = Operation::Take { cost: 1 };
        let charges: Vec<_> = (0..KEYS)
            .map(|number| [Charge { limit: &limit, key: key(number), operation }])
            .collect();
        let now = Timestamp::ZERO;
        let batch: Vec<_> = charges.iter().map(|charges| Request { now, charges }).collect();
        let mut answers = Answers::new();
        store.decide(&batch, &mut answers).await;
        match answers.iter().find_map(Result::err) {
            Some(error) => Err(Box::<dyn Error>::from(error)),
            None => Ok(()),
        }
    })?;
    drop(runtime);
    Ok((used(port)? - empty) / f64::from(KEYS))
}

/// Bytes for each key of 128 bits with an expiry and a state of 7 bytes.
fn of_smallest_keys(port: u16) -> Result<f64, Box<dyn Error>> {
    let empty = used(port)?;
    let mut stream = TcpStream::connect(local(port))?;
    for number in 0..KEYS {
        let state = &1_790_553_600_000_000_u64.to_be_bytes()[1..];
        let name = key(number).as_hash().to_be_bytes();
        let words: [&[u8]; 5] = [b"SET", &name, state, b"PX", b"86400000"];
        let mut command = b"*5\r\n".to_vec();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).bytes());
            command.extend(word);
            command.extend(b"\r\n");
        }
        stream.write_all(&command)?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        if &reply != b"+OK\r\n" {
            return Err("the server did not keep a key".into());
        }
    }
    drop(stream);
    Ok((used(port)? - empty) / f64::from(KEYS))
}

fn key(number: u32) -> Key {
    let odd = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    Key::from_hash((u128::from(number) + 1).wrapping_mul(odd))
}

/// What the server has taken, in bytes.
fn used(port: u16) -> Result<f64, Box<dyn Error>> {
    let mut stream = TcpStream::connect(local(port))?;
    stream.write_all(b"INFO memory\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let used = text.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(used.ok_or("the server does not tell its memory")?.trim().parse()?)
}
