//! Tables for people and JSON for programs.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::footprint::Footprint;
use crate::harness::Timing;
use crate::targets::{Figure, Target, times_as_fast};

/// Every workload with every contender, and what is to be known about them.
pub(crate) fn print_timings(timings: &[Timing], notes: &[String]) {
    let mut table = Table::new(&["ns per decision", "best", "median", "to tidegate, &str"]);
    let mut last = None;
    for timing in timings {
        if last.replace(timing.workload) != Some(timing.workload) {
            table.section(&timing.workload.name());
        }
        let ratio = times_as_fast(timings, timing);
        table.row([
            format!("  {}", timing.contender),
            format!("{:.1}", timing.best_ns()),
            format!("{:.1}", timing.median_ns()),
            ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        ]);
    }
    table.print();
    for note in notes {
        println!("Note: {note}.\n");
    }
}

/// The parts of a decision on one hot key.
pub(crate) fn print_anatomy(parts: &[Timing]) {
    let mut table = Table::new(&["where a hot decision goes, ns", "best", "median"]);
    for part in parts {
        table.row([
            part.contender.to_owned(),
            format!("{:.1}", part.best_ns()),
            format!("{:.1}", part.median_ns()),
        ]);
    }
    table.print();
}

/// Bytes per key.
pub(crate) fn print_footprints(footprints: &[Footprint]) {
    let mut table = Table::new(&["resident memory", "keys", "bytes per key", "live keys dropped"]);
    for footprint in footprints {
        let dropped = match footprint.dropped {
            0.0 => "0".to_owned(),
            dropped => format!("1 in {:.0}", 1.0 / dropped),
        };
        table.row([
            footprint.subject.to_owned(),
            footprint.keys.to_string(),
            format!("{:.1}", footprint.bytes_per_key),
            dropped,
        ]);
    }
    table.print();
}

/// Every figure.
pub(crate) fn print_figures(figures: &[Figure]) {
    let mut table = Table::new(&["figure", "value", "unit"]);
    for figure in figures {
        table.row([figure.figure.clone(), number(figure.value), figure.unit.to_owned()]);
    }
    table.print();
}

/// The figures that have a target.
pub(crate) fn print_targets(figures: &[Figure]) {
    let mut table = Table::new(&["target", "against", "value", "asked", "met"]);
    for figure in figures {
        let Some(target) = figure.target else { continue };
        table.row([
            figure.figure.clone(),
            figure.peer.unwrap_or("").to_owned(),
            number(figure.value),
            match target {
                Target::AtLeast(asked) => format!("at least {}", number(asked)),
                Target::AtMost(asked) => format!("at most {}", number(asked)),
                Target::Below(asked) => format!("below {}", number(asked)),
            },
            (if target.met_by(figure.value) { "yes" } else { "NO" }).to_owned(),
        ]);
    }
    table.print();
}

/// Short, and never a fraction rounded to nothing.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 { format!("{value:.1e}") } else { format!("{value:.2}") }
}

/// Writes every figure as JSON.
pub(crate) fn write_json(figures: &[Figure], file: &Path) -> Result<(), Box<dyn Error>> {
    let list: Vec<Value> = figures
        .iter()
        .map(|figure| {
            json!({
                "figure": figure.figure,
                "value": figure.value,
                "unit": figure.unit,
                "peer": figure.peer,
                "target": figure.target.map(Target::number),
                "met": figure.target.map(|target| target.met_by(figure.value)),
            })
        })
        .collect();
    let text = serde_json::to_string_pretty(&list)?;
    fs::write(file, text + "\n").map_err(|error| format!("{}: {error}", file.display()).into())
}

/// Lines of cells: the first column to the left, the others to the right.
struct Table {
    /// A line of one cell is a heading over the lines that follow.
    lines: Vec<Vec<String>>,
}

impl Table {
    fn new(header: &[&str]) -> Self {
        Self { lines: vec![header.iter().map(ToString::to_string).collect()] }
    }

    fn section(&mut self, name: &str) {
        self.lines.push(vec![name.to_owned()]);
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.into());
    }

    fn print(&self) {
        print!("{}", self.render());
    }

    fn render(&self) -> String {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, line) in self.lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
            if index == 0 {
                let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
                text += &rules.join("  ");
                text.push('\n');
            }
        }
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["name", "ns"]);
        table.section("one");
        table.row(["  a".to_owned(), "10.5".to_owned()]);
        table.row(["  long name".to_owned(), "7.0".to_owned()]);
        let expected = "\
name           ns
-----------  ----
one
  a          10.5
  long name   7.0

";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn small_fractions_keep_their_digits() {
        assert_eq!(number(0.000_012), "1.2e-5");
        assert_eq!(number(2.345), "2.35");
        assert_eq!(number(0.0), "0.00");
    }
}
