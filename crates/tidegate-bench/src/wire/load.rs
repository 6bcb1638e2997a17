//! One measurement: load on the other core, by `tidegate bench` or by `redis-benchmark`.

use std::error::Error;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::server::{Server, pinned};

/// What puts load on servers.
pub(crate) struct Driver {
    pub(crate) tidegate: PathBuf,
    pub(crate) core: usize,
    /// Among how many keys it draws.
    pub(crate) keys: &'static str,
}

/// What a server is asked.
pub(crate) enum Asks {
    /// By `tidegate bench` with these words: the protocol, the address, and what else there is.
    ByTidegate(Vec<String>),
    /// The same, where everything is to be denied.
    ToBeDenied(Vec<String>),
    /// By `redis-benchmark` with this command.
    ByRedisBenchmark { port: u16, words: Vec<String> },
}

/// How hard.
#[derive(Clone, Copy)]
pub(crate) struct Pressure {
    pub(crate) connections: u32,
    pub(crate) pipeline: u32,
    /// Requests per second at fixed times; as fast as answers come where there is none.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// Whether the load shares its core with somebody, who would not run while it never sleeps.
    pub(crate) is_sharing: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) answers: f64,
    pub(crate) per_second: f64,
    /// The median and the 99.9th percentile; `redis-benchmark` does not tell them.
    pub(crate) p50_us: f64,
    pub(crate) p999_us: f64,
}

/// More keys than stay in a cache.
pub(crate) const KEYS: &str = "1000000";

impl Asks {
    /// The protocol is the first of the words.
    pub(crate) fn new(server: &Server, words: &[&str]) -> Self {
        let mut words = owned(words);
        words.insert(1, server.address().to_string());
        Self::ByTidegate(words)
    }
}

pub(crate) fn owned(words: &[&str]) -> Vec<String> {
    words.iter().copied().map(ToOwned::to_owned).collect()
}

impl Driver {
    /// `expected` is about how many requests per second it will be, for what counts requests and not
    /// time.
    pub(crate) fn sample(
        &self,
        asks: &Asks,
        pressure: Pressure,
        expected: f64,
    ) -> Result<Sample, Box<dyn Error>> {
        match asks {
            Asks::ByTidegate(words) => sample_of(&self.by_tidegate(words, pressure)?, "allowed"),
            Asks::ToBeDenied(words) => {
                // Who denies asks nobody else, so the load has its core to itself.
                let alone = Pressure { is_sharing: false, ..pressure };
                sample_of(&self.by_tidegate(words, alone)?, "denied")
            }
            Asks::ByRedisBenchmark { port, words } => {
                self.by_redis_benchmark(*port, words, pressure, expected)
            }
        }
    }

    fn by_tidegate(&self, words: &[String], pressure: Pressure) -> Result<Value, Box<dyn Error>> {
        let mut command = pinned(self.core, &self.tidegate);
        // A server that has to wake its client pays for it, and the more the faster the client is done
        // with an answer. Nobody is to pay for that here.
        command.arg("bench").args(words).args(["--json", "--keys", self.keys]);
        if !pressure.is_sharing {
            command.arg("--awake");
        }
        command.args(["--connections", &pressure.connections.to_string()]);
        command.args(["--pipeline", &pressure.pipeline.to_string()]);
        command.args(["--duration", &format!("{:.0}ms", pressure.seconds * 1e3)]);
        if let Some(rate) = pressure.rate {
            command.args(["--rate", &format!("{rate:.0}")]);
        }
        let output = command.output()?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            format!("tidegate bench failed: {}", String::from_utf8_lossy(&output.stderr)).into()
        })
    }

    fn by_redis_benchmark(
        &self,
        port: u16,
        words: &[String],
        pressure: Pressure,
        expected: f64,
    ) -> Result<Sample, Box<dyn Error>> {
        let mut command = pinned(self.core, Path::new("redis-benchmark"));
        command.args(["--csv", "-r", self.keys, "-p", &port.to_string()]);
        let answers = (expected * pressure.seconds).round();
        command.args(["-n", &answers.to_string()]);
        command.args(["-c", &pressure.connections.to_string()]);
        command.args(["-P", &pressure.pipeline.to_string()]);
        let output = command.args(words).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let per_second = rate_of_csv(&text).ok_or_else(|| {
            format!("redis-benchmark: {text}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(Sample { answers, per_second, p50_us: f64::NAN, p999_us: f64::NAN })
    }
}

/// Numbers mean something only where all requests were answered, and nearly all as they were to be.
fn sample_of(json: &Value, verdict: &str) -> Result<Sample, Box<dyn Error>> {
    const AGREED_LEAST: f64 = 0.99;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let agreed = number(&json[verdict]) / number(&json["answers"]);
    let unmet = number(&json["errors"]) + number(&json["unanswered"]);
    if unmet > 0.0 || agreed.is_nan() || agreed < AGREED_LEAST {
        return Err(format!("the answers are not what is to be measured: {json:#}").into());
    }
    Ok(Sample {
        answers: number(&json["answers"]),
        per_second: number(&json["answers_per_second"]),
        p50_us: number(&json["latency_us"]["p50"]),
        p999_us: number(&json["latency_us"]["p99.9"]),
    })
}

/// `"test","rps",…` and then a line with the numbers.
fn rate_of_csv(text: &str) -> Option<f64> {
    let line = text.lines().rfind(|line| line.starts_with('"') && !line.starts_with("\"test\""))?;
    let (_, numbers) = line.split_once("\",\"")?;
    numbers.split('"').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rate_of_redis_benchmark_is_read() {
        let text = "\"test\",\"rps\",\"avg_latency_ms\"\n\
                    \"INCR key:__rand_int__\",\"1298701.25\",\"0.600\"\n";
        assert_eq!(rate_of_csv(text), Some(1_298_701.25));
        assert_eq!(rate_of_csv("WARNING: nothing"), None);
    }

    #[test]
    fn a_run_with_errors_or_denials_is_no_measurement() {
        let good = json!({
            "answers": 100, "allowed": 100, "errors": 0, "unanswered": 0,
            "answers_per_second": 5.0, "latency_us": { "p99.9": 7 },
        });
        assert!(sample_of(&good, "denied").is_err());
        assert!(sample_of(&good, "allowed").is_ok_and(|sample| sample.per_second > 4.9));
        for (name, value) in [("errors", 1), ("unanswered", 1), ("allowed", 90)] {
            let mut bad = good.clone();
            bad[name] = json!(value);
            assert!(sample_of(&bad, "allowed").is_err(), "{name}");
        }
    }
}
