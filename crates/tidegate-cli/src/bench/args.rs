//! What can be asked of `tidegate bench`, checked.

use clap::{Subcommand, value_parser};
use jiff::SignedDuration;
use tidegate::Span;

/// The most connections: each is a file that the system has to keep.
const CONNECTIONS_MAX: i64 = 20_000;
/// The most requests under way on one connection.
const PIPELINE_MAX: i64 = 10_000;
const THREADS_MAX: i64 = 256;
const RATE_MAX: u64 = 100_000_000;
const DURATION_MAX: Span = Span::DAY;

/// Put load on a running server, and see how long its answers take
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) protocol: Protocol,
}

const EXAMPLES: &str = "\
Examples:
  tidegate bench http                                     as fast as answers come, for 10 seconds
  tidegate bench http --rate 20000 --duration 1m          20,000 a second, whatever the server does
  tidegate bench http :8000 --http2 --pipeline 8          over HTTP/2, 8 streams on each connection
  tidegate bench grpc 192.0.2.7:8081 --connections 4 --pipeline 32
  tidegate bench resp --pipeline 64 --keys 1000000 --zipf 1.1
  tidegate bench resp 127.0.0.1:6379 --command 'INCR {key}' --json

Without --rate a slow server is asked less, which flatters it. With --rate the requests have fixed
times, and an answer counts from the time at which its request was due, also where it could not be
sent by then.

It ends with 0 where every request was answered, with 1 where there were errors or answers missing,
and with 2 where nothing could be measured.";

#[derive(Debug, Subcommand)]
pub(crate) enum Protocol {
    Http(HttpArgs),
    Grpc(GrpcArgs),
    Resp(RespArgs),
}

/// Over HTTP/1.1 or HTTP/2: `GET /limit/{key}` unless said otherwise
#[derive(Debug, clap::Args)]
pub(crate) struct HttpArgs {
    /// The server
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) address: String,
    /// What to get; `{key}` stands for the key
    #[arg(long, value_name = "PATH", default_value = "/limit/{key}", value_parser = path)]
    pub(crate) path: String,
    /// JSON to post instead; `{key}` stands for the key. Its answer denies by `"allowed":false`
    #[arg(long, value_name = "JSON")]
    pub(crate) body: Option<String>,
    /// Over HTTP/2, without TLS and without asking first. What is under way on a connection are streams
    #[arg(long)]
    pub(crate) http2: bool,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// Over gRPC: Envoy's `ShouldRateLimit`, one descriptor with one entry
#[derive(Debug, clap::Args)]
pub(crate) struct GrpcArgs {
    /// The server
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:8081", value_parser = address)]
    pub(crate) address: String,
    /// The domain of the requests
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) domain: String,
    /// The name of the entry that has the key for its value
    #[arg(long, value_name = "NAME", default_value = "key")]
    pub(crate) attribute: String,
    /// Which service is asked
    #[arg(long, value_enum, default_value_t = ServiceName::Envoy)]
    pub(crate) service: ServiceName,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ServiceName {
    /// `envoy.service.ratelimit.v3.RateLimitService`
    Envoy,
    /// `throttlecrab.RateLimiter`, with a limit that nobody reaches
    Throttlecrab,
}

/// Over the protocol of Redis: `CL.THROTTLE` unless said otherwise
#[derive(Debug, clap::Args)]
pub(crate) struct RespArgs {
    /// The server
    #[arg(value_name = "ADDR", default_value = "127.0.0.1:6390", value_parser = address)]
    pub(crate) address: String,
    /// What to send; `{key}` stands for the key
    #[arg(
        long,
        value_name = "WORDS",
        default_value = "CL.THROTTLE {key} 9 10 60",
        value_parser = command
    )]
    pub(crate) command: String,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// How much of it, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LoadArgs {
    /// How long, such as `10s`, `500ms` or `2m`
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Span,
    /// Connections
    #[arg(
        long, value_name = "N", default_value_t = 16,
        value_parser = value_parser!(u32).range(1..=CONNECTIONS_MAX)
    )]
    pub(crate) connections: u32,
    /// Requests under way on each connection, at most; over HTTP/2 and gRPC they are streams
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=PIPELINE_MAX)
    )]
    pub(crate) pipeline: u32,
    /// How many different keys
    #[arg(
        long, value_name = "N", default_value_t = 1_000_000,
        value_parser = value_parser!(u32).range(1..)
    )]
    pub(crate) keys: u32,
    /// Ask for some keys more than for others, by Zipf's law with this exponent
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    pub(crate) zipf: Option<f64>,
    /// Requests per second of all connections together, at fixed times; without it the next one is
    /// sent when an answer comes
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=RATE_MAX))]
    pub(crate) rate: Option<u64>,
    /// Threads that send; one is enough for most servers on as many cores as it has
    #[arg(
        long, value_name = "N", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=THREADS_MAX)
    )]
    pub(crate) threads: u32,
    /// Never sleep: takes all of the cores it runs on, and spares the server the work of waking it
    #[arg(long)]
    pub(crate) awake: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl BenchArgs {
    pub(crate) fn load(&self) -> &LoadArgs {
        match &self.protocol {
            Protocol::Http(args) => &args.load,
            Protocol::Grpc(args) => &args.load,
            Protocol::Resp(args) => &args.load,
        }
    }
}

/// A host and a port; a port alone is on this machine.
fn address(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    let (host, port) = text.rsplit_once(':').unwrap_or((text, ""));
    if port.parse::<u16>().ok().is_none_or(|port| port == 0) || host.contains('/') {
        return Err("write a host and a port, such as `127.0.0.1:8080`".to_owned());
    }
    Ok(if host.is_empty() { format!("127.0.0.1:{port}") } else { text.to_owned() })
}

fn path(text: &str) -> Result<String, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && is_plain {
        Ok(text.to_owned())
    } else {
        Err("write a path as it stands in a request, such as `/limit/{key}`".to_owned())
    }
}

fn command(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("write a command, such as `INCR {key}`".to_owned());
    }
    Ok(text.to_owned())
}

fn duration(text: &str) -> Result<Span, String> {
    let duration = text.parse::<SignedDuration>().ok();
    let micros = duration.and_then(|duration| u64::try_from(duration.as_micros()).ok());
    let span = micros.map(Span::from_micros).filter(|span| !span.is_zero());
    match span {
        Some(span) if span <= DURATION_MAX => Ok(span),
        Some(_) => Err("that is more than a day".to_owned()),
        None => Err("write a time such as `10s`, `500ms` or `2m`".to_owned()),
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.01..=10.0).contains(number));
    number.ok_or_else(|| "write a number from 0.01 to 10, such as `1.1`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        assert_eq!(address(":8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(address("http://localhost:8080/").as_deref(), Ok("localhost:8080"));
        assert_eq!(address("[::1]:8080").as_deref(), Ok("[::1]:8080"));
        for text in ["", "localhost", "8080", "localhost:0", "localhost:http", "a:1/b:2"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("500ms"), Ok(Span::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Span::from_secs(120)));
        for text in ["0s", "-1s", "10", "soon", "25h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_would_break_a_request_is_refused() {
        assert!(path("limit/{key}").is_err() && path("/a b").is_err() && path("/a\r\nb").is_err());
        assert!(command(" ").is_err());
        assert!(exponent("0").is_err() && exponent("NaN").is_err() && exponent("1.1").is_ok());
    }
}
