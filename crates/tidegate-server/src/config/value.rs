//! Values of settings, from the text that people write. Flags, variables and the file all read them
//! here, so one text means one thing wherever it stands.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A text that is no such value; says what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError(String);

impl ValueError {
    pub(crate) fn new(what_to_write: impl Into<String>) -> Self {
        Self(what_to_write.into())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ValueError {}

/// So many bytes: `64MiB`, `1 GiB`, `500MB`, `1048576`.
///
/// `k`, `M` and `G` alone are powers of 1024, as systemd and container engines read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    bytes: usize,
}

impl Size {
    /// So many bytes.
    pub const fn from_bytes(bytes: usize) -> Self {
        Self { bytes }
    }

    /// How many bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }
}

impl FromStr for Size {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const WRITE: &str = "write a size such as `64MiB`, `1GiB` or `500MB`";
        let error = || ValueError::new(WRITE);
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text[digits.len()..].trim();
        let factor: usize = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            _ => return Err(error()),
        };
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let count: Option<usize> = digits.parse().ok().filter(|_| is_number);
        let bytes = count.and_then(|count| count.checked_mul(factor)).ok_or_else(error)?;
        Ok(Self { bytes })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let whole = |unit: usize| self.bytes >= unit && self.bytes.is_multiple_of(unit);
        match units.into_iter().find(|(unit, _)| whole(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.bytes / unit),
            None => write!(f, "{}B", self.bytes),
        }
    }
}

/// A length of time: `10s`, `250ms`, `1m30s`, or `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

impl Time {
    /// So long.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// How long.
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Time {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        // A rate has no period of nothing, so its grammar does not know this one.
        if matches!(text.trim(), "0" | "0s" | "0ms") {
            return Ok(Self(Duration::ZERO));
        }
        let period = tidegate_rules::parse_period(text);
        let write = "write a time such as `10s`, `250ms` or `1m30s`";
        period.map(|span| Self(span.into())).map_err(|_| ValueError::new(write))
    }
}

/// How many there may be, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(usize);

impl Count {
    /// How many.
    pub const fn number(self) -> usize {
        self.0
    }
}

impl FromStr for Count {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let number = text.parse().ok().filter(|number| *number > 0);
        let write = "write a number from 1 on, such as `1000`";
        number.map(Self).ok_or_else(|| ValueError::new(write))
    }
}

/// An enum of words, with the text of each.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every word, in the order of the help.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl FromStr for $name {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                match text.to_ascii_lowercase().as_str() {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(one_of(Self::WORDS)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

fn one_of(words: &[&str]) -> ValueError {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let (last, first) = quoted.split_last().map_or(("", &[][..]), |(last, rest)| (last, rest));
    ValueError::new(format!("write {} or {last}", first.join(", ")))
}

words! {
    /// Which rate limit headers answers carry.
    Headers {
        /// Those of the IETF draft, and the older ones.
        All = "all",
        /// `RateLimit` and `RateLimit-Policy` alone.
        Ietf = "ietf",
        /// `X-RateLimit-*` alone.
        XRateLimit = "x-ratelimit",
        /// None of them. `Retry-After` is no rate limit header and stays.
        None = "none",
    }
}

words! {
    /// Which headers Envoy is asked to add to its responses.
    EnvoyHeaders {
        /// None: Envoy can write its own.
        None = "none",
        /// `RateLimit-*`, as envoyproxy/ratelimit has them.
        Reference = "reference",
        /// `X-RateLimit-*`, and `Retry-After` on a denial.
        XRateLimit = "x-ratelimit",
    }
}

words! {
    /// What the lines of the log look like.
    LogFormat {
        /// For people.
        Text = "text",
        /// For programs: one object in each line.
        Json = "json",
    }
}

words! {
    /// How much is logged.
    Level {
        /// What keeps the daemon from doing what it was told.
        Error = "error",
        /// What somebody should look at.
        Warn = "warn",
        /// What happens to the daemon as a whole.
        Info = "info",
        /// What happens on single connections.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

words! {
    /// How exactly nodes share a limit, where a rule does not say.
    Consistency {
        /// Each node has its own.
        Local = "local",
        /// Every decision is one step in the shared store.
        Strict = "strict",
        /// Nodes reserve quota in the shared store and spend it by themselves.
        Leased = "leased",
    }
}

words! {
    /// What happens while the shared store cannot answer, where a rule does not say.
    OnStoreFailure {
        /// Requests pass.
        Allow = "allow",
        /// Requests are answered with an error that says so.
        Deny = "deny",
        /// The node decides alone, with its own share of the limit.
        Local = "local",
    }
}

words! {
    /// What happens to a key in the shared store that holds what somebody else wrote.
    StoreForeignState {
        /// It starts anew, with all of its quota.
        Reset = "reset",
        /// It is left as it is, and decided as while the store cannot answer.
        Refuse = "refuse",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("64MiB", 64 << 20),
            ("64mib", 64 << 20),
            ("64M", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("2g", 2 << 30),
            ("512k", 512 << 10),
            ("500MB", 500_000_000),
            ("1GB", 1_000_000_000),
            ("12b", 12),
        ] {
            assert_eq!(text.parse::<Size>().map(Size::bytes), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "MiB", "-1", "1.5GiB", "64 MB iB", "1TiBB", "99999999999999999999", "1e6", "٣"]
        {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert!(format!("{}GiB", usize::MAX).parse::<Size>().is_err(), "it must not wrap");
    }

    #[test]
    fn a_size_shows_as_it_can_be_written() {
        for (bytes, text) in [(64 << 20, "64MiB"), (1 << 30, "1GiB"), (1_536, "1536B"), (0, "0B")] {
            let size = Size::from_bytes(bytes);
            assert_eq!(size.to_string(), text);
            assert_eq!(text.parse(), Ok(size));
        }
    }

    #[test]
    fn times_have_a_unit_unless_they_are_nothing() {
        let time = |text: &str| text.parse().map(Time::duration);
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(time("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        for text in ["", "10", "ten seconds", "-1s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn words_are_read_in_any_case_and_listed_where_they_are_not_known() {
        assert_eq!("X-RateLimit".parse(), Ok(Headers::XRateLimit));
        let error = "fancy".parse::<LogFormat>().unwrap_err();
        assert_eq!(error.to_string(), "write `text` or `json`");
        let error = "loud".parse::<Level>().unwrap_err();
        assert_eq!(error.to_string(), "write `error`, `warn`, `info`, `debug` or `trace`");
    }
}
