//! What a run found, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tidegate::Timestamp;

use super::args::LoadArgs;
use super::picture::{self, label};
use super::tally::Tally;
use crate::output::HEADING;

/// A run that is over.
pub(crate) struct Outcome {
    /// `http`, `http2`, `grpc` or `resp`.
    pub(crate) protocol: &'static str,
    pub(crate) address: String,
    /// What was sent, as it was asked for.
    pub(crate) request: String,
    pub(crate) load: LoadArgs,
    pub(crate) start: Timestamp,
    pub(crate) tally: Tally,
    pub(crate) interrupted: bool,
}

/// The quantiles that are told, in thousandths of a percent.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

impl Outcome {
    /// From the start to the last answer: what came after that was waiting, not work.
    fn seconds(&self) -> f64 {
        let micros = self.tally.last_answer.since(self.start).as_micros();
        as_f64(micros) / 1e6
    }

    fn per_second(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { as_f64(self.tally.answers()) / seconds } else { 0.0 }
    }

    pub(crate) fn as_json(&self) -> Value {
        let Self { load, tally, .. } = self;
        let latency = &tally.latency_us;
        let quantiles = QUANTILES
            .map(|(name, quantile)| (name.to_owned(), json!(latency.value_at_quantile(quantile))));
        let mut latency_us = serde_json::Map::new();
        latency_us.insert("min".into(), json!(latency.min()));
        latency_us.insert("mean".into(), json!(latency.mean()));
        latency_us.extend(quantiles);
        latency_us.insert("max".into(), json!(latency.max()));
        json!({
            "protocol": self.protocol,
            "address": self.address,
            "request": self.request,
            "loop": if load.rate.is_some() { "open" } else { "closed" },
            "rate": load.rate,
            "connections": load.connections,
            "pipeline": load.pipeline,
            "threads": load.threads,
            "keys": load.keys,
            "zipf": load.zipf,
            "interrupted": self.interrupted,
            "seconds": self.seconds(),
            "answers": tally.answers(),
            "answers_per_second": self.per_second(),
            "allowed": tally.allowed,
            "denied": tally.denied,
            "errors": tally.errors,
            "unanswered": tally.unanswered,
            "first_error": tally.first_error,
            "latency_us": latency_us,
        })
    }

    pub(crate) fn as_text(&self) -> String {
        let Self { load, tally, .. } = self;
        let pace = match load.rate {
            Some(rate) => format!("open loop, {} requests per second", grouped(rate)),
            None => "closed loop".to_owned(),
        };
        let keys = match load.zipf {
            Some(exponent) => format!("{} keys by Zipf {exponent}", grouped(load.keys.into())),
            None => format!("{} keys", grouped(load.keys.into())),
        };
        let mut text = format!(
            "{HEADING}{} at {}{HEADING:#}\n{pace}; {} connections, {} under way on each at most; {keys}\n\n",
            self.request, self.address, load.connections, load.pipeline
        );
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<11} {value}");
        };
        let early = if self.interrupted { ", cut short" } else { "" };
        line("time", format!("{:.2} s{early}", self.seconds()));
        #[expect(clippy::cast_sign_loss, reason = "a rate is not below zero")]
        let rate = grouped(self.per_second().round() as u64);
        line("answers", format!("{}, {rate} per second", grouped(tally.answers())));
        line("allowed", grouped(tally.allowed));
        line("denied", grouped(tally.denied));
        let error = tally.first_error.as_ref().map(|error| format!(" (the first: {error})"));
        line("errors", grouped(tally.errors) + &error.unwrap_or_default());
        line("unanswered", grouped(tally.unanswered));
        if tally.latency_us.is_empty() {
            return text;
        }
        let _ = writeln!(text, "\n{HEADING}latency{HEADING:#}");
        for (name, quantile) in QUANTILES {
            let value = tally.latency_us.value_at_quantile(quantile);
            let _ = writeln!(text, "{name:<11} {}", label(value));
        }
        let _ = writeln!(text, "{:<11} {}\n", "longest", label(tally.latency_us.max()));
        text + &picture::draw(&tally.latency_us)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

/// `1,234,567`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3 + 1);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_groups_of_three() {
        for (number, expected) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")]
        {
            assert_eq!(grouped(number), expected);
        }
    }
}
