//! The daemon over HTTP with 100 hot keys, each of which is asked for hundreds of times a second: with leases, beside the same daemon in memory. The store
//! of the leases shares a core with the daemons, so that what leasing takes of it counts as well.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use super::redis;
use crate::targets::Figure;
use crate::wire::load::Driver;
use crate::wire::scenario::Scenario;
use crate::wire::server::{Cores, Server};
use crate::wire::{Effort, entrant};

const KEYS: &str = "100";

const OURS: &str = "tidegate, leased";
const MEMORY: &str = "memory mode";

/// Everything, by the best rounds, and what is to be known about it.
pub(super) fn figures(
    tidegate: &Path,
    cores: &Cores,
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let redis = redis(cores.server)?;
    let secret = SecretFile::write()?;
    let flags = [
        format!("--store=redis://127.0.0.1:{}", redis.port),
        "--consistency=leased".to_owned(),
        format!("--secret-file={}", secret.0.display()),
    ];
    let leased = Server::tidegate_with(tidegate, "http", cores.server, &flags)?;
    let memory = Server::tidegate(tidegate, "http", cores.server)?;
    let entrants = vec![
        entrant(OURS, &leased, &["http"], None),
        entrant(MEMORY, &memory, &["http"], Some(0.9)),
    ];
    let driver = Driver { tidegate: tidegate.to_owned(), core: cores.load, keys: KEYS };
    let scenario = Scenario::closed("HTTP /limit/{key}, 100 hot keys", 16, 1, entrants);
    let tried = scenario.run(&driver, Effort::of(quick))?;
    Ok((tried.throughput(), tried.idle_servers()))
}

/// A file with a secret, for as long as it is needed.
struct SecretFile(PathBuf);

impl SecretFile {
    fn write() -> Result<Self, Box<dyn Error>> {
        let name = format!("tidegate-bench-secret-{}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        fs::write(&file.0, "a secret of a benchmark\n")?;
        Ok(file)
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
