//! The command line: words in, a [`Command`] or a [`Misuse`] out. Nothing is run here.

use std::fmt;
use std::path::PathBuf;

/// What `cargo xtask help` prints.
pub(crate) const HELP: &str = "\
Tidegate's own commands

Usage: cargo xtask COMMAND

Commands:
  test                                   everything that must hold before a change lands
  tidy                                   layers, lengths, names, links: what the compiler cannot check
  setup                                  install the programs that the tests need, where missing
  bench NAME [--json FILE] [-- ARGS...]  one benchmark, peers beside ours
  long                                   ignored tests too, and many more property cases, optimised
  fuzz [TARGET] [--seconds N]            look for inputs that break a claim; without TARGET: list them
  sim [--seeds N] [--seed N]             the lease protocol in N simulated fleets, or in one of them
  help                                   this text

Examples:
  cargo xtask test
  cargo xtask tidy
  cargo xtask bench memory
  cargo xtask bench memory --json memory.json
  cargo xtask bench memory -- --quick
  cargo xtask bench wire
  cargo xtask bench edges
  cargo xtask bench shared
  cargo xtask fuzz rule_text --seconds 600
  cargo xtask sim --seeds 100000
";

const NAMES: [&str; 8] = ["test", "tidy", "setup", "bench", "long", "fuzz", "sim", "help"];

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Test,
    Tidy,
    Setup,
    Bench(Bench),
    Long,
    Fuzz(Fuzz),
    Sim(Sim),
    Help,
}

/// One run of `tidegate-bench`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bench {
    pub(crate) name: String,
    pub(crate) json: Option<PathBuf>,
    /// What stood after `--`, handed on as it is.
    pub(crate) rest: Vec<String>,
}

/// One run of a fuzzer, or the list of its targets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fuzz {
    pub(crate) target: Option<String>,
    pub(crate) seconds: u32,
}

/// Simulated fleets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sim {
    /// So many, from the first one on.
    Seeds(u64),
    /// The one of this number, told about.
    Seed(u64),
}

/// A command line that means nothing. It says what would.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Misuse {
    Unknown { word: String, nearest: Option<&'static str> },
    Surplus { command: &'static str, word: String },
    BenchUnnamed,
    JsonWithoutFile,
    SecondsWithoutNumber,
    SeedWithoutNumber { flag: &'static str },
}

impl Command {
    /// No words at all ask for help.
    pub(crate) fn parse(words: &[String]) -> Result<Self, Misuse> {
        let Some((first, rest)) = words.split_first() else { return Ok(Self::Help) };
        let (name, command) = match first.as_str() {
            "bench" => return Bench::parse(rest).map(Self::Bench),
            "fuzz" => return Fuzz::parse(rest),
            "sim" => return Sim::parse(rest),
            "help" | "--help" | "-h" => return Ok(Self::Help),
            "test" => ("test", Self::Test),
            "tidy" => ("tidy", Self::Tidy),
            "setup" => ("setup", Self::Setup),
            "long" => ("long", Self::Long),
            _ => return Err(Misuse::Unknown { word: first.clone(), nearest: nearest(first) }),
        };
        match rest.first() {
            None => Ok(command),
            Some(word) if word == "--help" || word == "-h" => Ok(Self::Help),
            Some(word) => Err(Misuse::Surplus { command: name, word: word.clone() }),
        }
    }
}

impl Bench {
    fn parse(words: &[String]) -> Result<Self, Misuse> {
        let (mut name, mut json, mut words) = (None, None, words.iter());
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => break,
                "--json" => json = Some(words.next().ok_or(Misuse::JsonWithoutFile)?.into()),
                other if name.is_none() && !other.starts_with('-') => name = Some(word.clone()),
                _ => return Err(Misuse::Surplus { command: "bench", word: word.clone() }),
            }
        }
        let name = name.ok_or(Misuse::BenchUnnamed)?;
        Ok(Self { name, json, rest: words.cloned().collect() })
    }
}

impl Fuzz {
    /// How long a run takes unless said.
    const SECONDS_DEFAULT: u32 = 60;

    fn parse(words: &[String]) -> Result<Command, Misuse> {
        let mut fuzz = Self { target: None, seconds: Self::SECONDS_DEFAULT };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Ok(Command::Help),
                "--seconds" => {
                    // libFuzzer takes 0 for no end at all.
                    let number = words.next().and_then(|number| number.parse().ok());
                    let number = number.filter(|number| *number > 0);
                    fuzz.seconds = number.ok_or(Misuse::SecondsWithoutNumber)?;
                }
                other if fuzz.target.is_none() && !other.starts_with('-') => {
                    fuzz.target = Some(word.clone());
                }
                _ => return Err(Misuse::Surplus { command: "fuzz", word: word.clone() }),
            }
        }
        Ok(Command::Fuzz(fuzz))
    }
}

impl Sim {
    /// How many fleets there are unless said.
    const SEEDS_DEFAULT: u64 = 10_000;

    fn parse(words: &[String]) -> Result<Command, Misuse> {
        let (mut sim, mut words) = (Self::Seeds(Self::SEEDS_DEFAULT), words.iter());
        while let Some(word) = words.next() {
            let mut number = |flag| {
                let number = words.next().and_then(|number| number.parse().ok());
                number.ok_or(Misuse::SeedWithoutNumber { flag })
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(Command::Help),
                "--seeds" => sim = Self::Seeds(number("--seeds")?),
                "--seed" => sim = Self::Seed(number("--seed")?),
                _ => return Err(Misuse::Surplus { command: "sim", word: word.clone() }),
            }
        }
        Ok(Command::Sim(sim))
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { word, nearest: Some(nearest) } => {
                write!(f, "cargo xtask: no command `{word}`: did you mean `{nearest}`?")?;
            }
            Self::Unknown { word, nearest: None } => {
                write!(f, "cargo xtask: no command `{word}`; there is {}", NAMES.join(", "))?;
            }
            Self::Surplus { command, word } => {
                write!(f, "cargo xtask {command}: `{word}` means nothing here")?;
            }
            Self::BenchUnnamed => {
                f.write_str("cargo xtask bench: which one? Try `cargo xtask bench memory`")?;
            }
            Self::JsonWithoutFile => {
                f.write_str("cargo xtask bench: --json needs the file to write")?;
            }
            Self::SecondsWithoutNumber => {
                f.write_str("cargo xtask fuzz: --seconds needs a whole number above zero")?;
            }
            Self::SeedWithoutNumber { flag } => {
                write!(f, "cargo xtask sim: {flag} needs a whole number")?;
            }
        }
        f.write_str("\n`cargo xtask help` lists the commands.")
    }
}

/// The command that a slip of the fingers away from `word` would be.
fn nearest(word: &str) -> Option<&'static str> {
    const SLIPS_MAX: usize = 2;
    let (slips, name) = NAMES.into_iter().map(|name| (distance(word, name), name)).min()?;
    (slips <= SLIPS_MAX).then_some(name)
}

/// How many letters to insert, delete or replace to get from `a` to `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (above, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (column, right) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Misuse> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Command::parse(&words)
    }

    #[test]
    fn every_command_of_the_help_text_is_understood() {
        for name in NAMES {
            let line = if name == "bench" { "bench memory" } else { name };
            assert!(parse(line).is_ok(), "{line}");
            assert!(HELP.contains(&format!("\n  {name} ")), "{name} is not in the help text");
        }
        assert_eq!(parse(""), Ok(Command::Help));
        assert_eq!(parse("tidy --help"), Ok(Command::Help));
    }

    #[test]
    fn a_slip_of_the_fingers_gets_the_nearest_command() {
        for (word, meant) in [("tst", "test"), ("tidi", "tidy"), ("stup", "setup")] {
            let misuse = parse(word).unwrap_err();
            assert_eq!(misuse, Misuse::Unknown { word: word.into(), nearest: Some(meant) });
        }
        assert_eq!(
            parse("deploy").unwrap_err().to_string().lines().next(),
            Some(
                "cargo xtask: no command `deploy`; there is test, tidy, setup, bench, long, fuzz, sim, help"
            )
        );
    }

    #[test]
    fn bench_hands_on_what_stands_after_the_dashes() {
        let expected = Bench {
            name: "memory".into(),
            json: Some("out.json".into()),
            rest: vec!["--quick".into(), "--json".into()],
        };
        assert_eq!(
            parse("bench memory --json out.json -- --quick --json"),
            Ok(Command::Bench(expected))
        );
    }

    #[test]
    fn fuzz_takes_a_target_and_a_time_in_any_order() {
        let fuzz = |target: Option<&str>, seconds| {
            Ok(Command::Fuzz(Fuzz { target: target.map(Into::into), seconds }))
        };
        assert_eq!(parse("fuzz"), fuzz(None, 60));
        assert_eq!(parse("fuzz path"), fuzz(Some("path"), 60));
        assert_eq!(parse("fuzz --seconds 5 path"), fuzz(Some("path"), 5));
        for line in ["fuzz path --seconds", "fuzz path --seconds soon", "fuzz path --seconds 0"] {
            assert_eq!(parse(line), Err(Misuse::SecondsWithoutNumber), "{line}");
        }
        let surplus = Misuse::Surplus { command: "fuzz", word: "again".into() };
        assert_eq!(parse("fuzz path again"), Err(surplus));
    }

    #[test]
    fn sim_takes_a_number_of_fleets_or_one_of_them() {
        assert_eq!(parse("sim"), Ok(Command::Sim(Sim::Seeds(10_000))));
        assert_eq!(parse("sim --seeds 7"), Ok(Command::Sim(Sim::Seeds(7))));
        assert_eq!(parse("sim --seed 7"), Ok(Command::Sim(Sim::Seed(7))));
        assert_eq!(parse("sim --seed"), Err(Misuse::SeedWithoutNumber { flag: "--seed" }));
        let surplus = Misuse::Surplus { command: "sim", word: "7".into() };
        assert_eq!(parse("sim 7"), Err(surplus));
    }

    #[test]
    fn bench_says_what_is_missing_or_surplus() {
        assert_eq!(parse("bench"), Err(Misuse::BenchUnnamed));
        assert_eq!(parse("bench memory --json"), Err(Misuse::JsonWithoutFile));
        let surplus = |word: &str| Misuse::Surplus { command: "bench", word: word.into() };
        assert_eq!(parse("bench memory again"), Err(surplus("again")));
        assert_eq!(parse("bench memory --jsn x"), Err(surplus("--jsn")));
    }
}
