//! One step of a suite: what it runs, how it is announced, and what to type to run it again.

use std::fmt;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::Context;

use crate::workspace::{Workspace, cargo};

/// Something that passes or fails, under a name.
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) action: Action,
}

/// What a step does.
pub(crate) enum Action {
    /// A cargo command in the root folder.
    Cargo { arguments: Vec<String>, variables: Vec<(&'static str, String)> },
    /// A program that cargo has built, in the root folder.
    Program(PathBuf),
    /// One of our own commands, which can also be typed as `cargo xtask NAME`.
    Own { name: &'static str, run: fn(&Workspace) -> anyhow::Result<bool> },
}

impl Step {
    /// A step that runs cargo with these words.
    pub(crate) fn cargo(name: &str, words: &str) -> Self {
        let arguments = words.split_whitespace().map(String::from).collect();
        Self { name: name.into(), action: Action::Cargo { arguments, variables: Vec::new() } }
    }

    /// A step that runs a program.
    pub(crate) fn program(name: &str, path: PathBuf) -> Self {
        Self { name: name.into(), action: Action::Program(path) }
    }

    pub(crate) fn own(name: &'static str, run: fn(&Workspace) -> anyhow::Result<bool>) -> Self {
        Self { name: name.into(), action: Action::Own { name, run } }
    }

    /// The same step with an environment variable set. Only cargo steps have any.
    pub(crate) fn with(mut self, variable: &'static str, value: String) -> Self {
        if let Action::Cargo { variables, .. } = &mut self.action {
            variables.push((variable, value));
        }
        self
    }
}

/// What to type to do the same by hand.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cargo { arguments, variables } => {
                for (name, value) in variables {
                    write!(f, "{name}=\"{value}\" ")?;
                }
                write!(f, "cargo {}", arguments.join(" "))
            }
            Self::Program(path) => write!(f, "{}", path.display()),
            Self::Own { name, .. } => write!(f, "cargo xtask {name}"),
        }
    }
}

/// Runs the steps in order up to the first that fails, and says whether all passed.
pub(crate) fn run_all(title: &str, workspace: &Workspace, steps: &[Step]) -> anyhow::Result<bool> {
    let began = Stopwatch::start();
    for (index, step) in steps.iter().enumerate() {
        println!("\n=== {}/{} {}: {}", index + 1, steps.len(), step.name, step.action);
        let step_began = Stopwatch::start();
        if !run_one(workspace, &step.action)? {
            println!("\n--- {} FAILED after {step_began}", step.name);
            println!("{title}: stopped at step {} of {}", index + 1, steps.len());
            println!("To run this step again: {}", step.action);
            println!("{index} passed, 1 failed");
            return Ok(false);
        }
        println!("--- {} passed in {step_began}", step.name);
    }
    println!("\n{} passed, 0 failed", steps.len());
    println!("{title}: all {} steps passed in {began}", steps.len());
    Ok(true)
}

fn run_one(workspace: &Workspace, action: &Action) -> anyhow::Result<bool> {
    match action {
        Action::Own { run, .. } => run(workspace),
        Action::Program(path) => passes(Command::new(path).current_dir(&workspace.root)),
        Action::Cargo { arguments, variables } => {
            let mut command = cargo();
            command.args(arguments).envs(variables.iter().cloned());
            passes(command.current_dir(&workspace.root))
        }
    }
}

/// Runs a program to its end, its output going where ours goes.
pub(crate) fn passes(command: &mut Command) -> anyhow::Result<bool> {
    if !std::io::stderr().is_terminal() && std::env::var_os("CARGO_TERM_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
        // rustfmt colours its differences by this alone, into a file as well.
        command.env("TERM", "dumb");
    }
    let program = command.get_program().to_owned();
    let status =
        command.status().with_context(|| format!("could not start {}", program.display()))?;
    Ok(status.success())
}

/// How long something took, for people to read.
struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "this times builds; it decides nothing")]
impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now())
    }
}

#[expect(clippy::disallowed_methods, reason = "this times builds; it decides nothing")]
impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} s", self.0.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace() -> Workspace {
        Workspace { root: ".".into(), target: "target".into(), packages: Vec::new() }
    }

    #[test]
    fn a_failing_step_stops_the_suite() {
        let steps = [
            Step::own("good", |_| Ok(true)),
            Step::own("bad", |_| Ok(false)),
            Step::own("never", |_| panic!("a step ran after one that failed")),
        ];
        assert!(!run_all("suite", &workspace(), &steps).unwrap());
    }

    #[test]
    fn a_step_prints_the_line_that_runs_it_again() {
        let step = Step::cargo("docs", "doc --no-deps").with("RUSTDOCFLAGS", "-D warnings".into());
        assert_eq!(step.action.to_string(), "RUSTDOCFLAGS=\"-D warnings\" cargo doc --no-deps");
        assert_eq!(Step::own("tidy", |_| Ok(true)).action.to_string(), "cargo xtask tidy");
    }
}
