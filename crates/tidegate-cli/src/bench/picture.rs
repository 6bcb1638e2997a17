//! The distribution of latencies as bars in a terminal, over steps that grow with the latency: what
//! matters at ten microseconds is lost in the noise at ten milliseconds.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

use super::report::grouped;

/// How long the longest bar is.
const WIDTH: usize = 40;
/// Where the steps of a power of ten begin, in tenths.
const STEPS: [u64; 6] = [10, 15, 20, 30, 50, 70];
/// Parts of a letter that a bar can end with.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
/// What is marked beside the bars.
const MARKS: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A line for each step from the shortest latency to the longest; nothing where there is none.
pub(crate) fn draw(latency_us: &Histogram<u64>) -> String {
    let bars = bars(latency_us);
    let longest = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    let digits = grouped(longest).len();
    let mut text = String::new();
    for bar in &bars {
        let count = grouped(bar.count);
        let marks = MARKS.iter().filter(|(_, quantile)| {
            (bar.from_us..bar.until_us).contains(&latency_us.value_at_quantile(*quantile))
        });
        let marks: Vec<&str> = marks.map(|(name, _)| *name).collect();
        let line = format!(
            "{:>8} {} {count:>digits$}  {}",
            label(bar.from_us),
            drawn(bar.count, longest),
            marks.join(" ")
        );
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

struct Bar {
    from_us: u64,
    until_us: u64,
    count: u64,
}

fn bars(latency_us: &Histogram<u64>) -> Vec<Bar> {
    let mut edges = edges().peekable();
    let mut bars: Vec<Bar> = Vec::new();
    for step in latency_us.iter_recorded() {
        let value = step.value_iterated_to();
        while let Some(from_us) = edges.next_if(|edge| *edge <= value) {
            let until_us = edges.peek().copied().unwrap_or(u64::MAX);
            // Steps before the first answer are left out.
            if until_us > value || !bars.is_empty() {
                bars.push(Bar { from_us, until_us, count: 0 });
            }
        }
        if let Some(bar) = bars.last_mut() {
            bar.count += step.count_since_last_iteration();
        }
    }
    bars
}

/// 1, 2, 3, 5, 7, 10, 15, 20, 30… microseconds, up to beyond what is measured.
fn edges() -> impl Iterator<Item = u64> {
    let powers = (0..11).map(|power| 10_u64.pow(power));
    let edges = powers.flat_map(|power| STEPS.map(move |step| (power, power * step)));
    // There is no half of a microsecond.
    edges.filter(|(_, tenths)| tenths % 10 == 0).map(|(_, tenths)| tenths / 10)
}

/// As long as its share, to an eighth of a letter, and never nothing for something.
fn drawn(count: u64, longest: u64) -> String {
    let eighths = u128::from(count) * (WIDTH as u128 * 8) / u128::from(longest.max(1));
    let eighths = (eighths as usize).max(usize::from(count > 0));
    let mut bar = "█".repeat(eighths / 8);
    if eighths % 8 > 0 {
        bar.push(EIGHTHS[eighths % 8]);
    }
    format!("{bar:<WIDTH$}")
}

/// `150 µs`, `1.5 ms`, `20 s`
pub(crate) fn label(micros: u64) -> String {
    let (unit_us, unit) = match micros {
        0..1_000 => (1, "µs"),
        1_000..1_000_000 => (1_000, "ms"),
        1_000_000.. => (1_000_000, "s"),
    };
    let tenths = micros / (unit_us / 10).max(1) % 10;
    let whole = micros / unit_us;
    match (unit_us, tenths) {
        (1, _) | (_, 0) => format!("{whole} {unit}"),
        (_, tenths) => format!("{whole}.{tenths} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(latencies: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_max(600_000_000, 3).unwrap();
        for (micros, count) in latencies {
            histogram.record_n(*micros, *count).unwrap();
        }
        histogram
    }

    #[test]
    fn the_picture_of_a_server_with_a_stall() {
        let latencies = [
            (140, 23),
            (180, 4_000),
            (250, 12_000),
            (420, 3_000),
            (800, 60),
            (12_000, 14),
            (13_000, 1),
        ];
        let expected = "
  100 µs ▏                                            23
  150 µs █████████████▎                            4,000
  200 µs ████████████████████████████████████████ 12,000  p50
  300 µs ██████████                                3,000  p90 p99
  500 µs                                               0
  700 µs ▏                                            60  p99.9
    1 ms                                               0
  1.5 ms                                               0
    2 ms                                               0
    3 ms                                               0
    5 ms                                               0
    7 ms                                               0
   10 ms ▏                                            15
";
        assert_eq!(format!("\n{}", draw(&histogram(&latencies))), expected);
    }

    #[test]
    fn one_answer_is_one_full_bar_and_none_is_no_picture() {
        let bar = "█".repeat(WIDTH);
        let marks = "p50 p90 p99 p99.9";
        assert_eq!(draw(&histogram(&[(1, 1)])), format!("    1 µs {bar} 1  {marks}\n"));
        assert_eq!(draw(&histogram(&[])), "");
    }

    #[test]
    fn every_answer_is_in_one_bar() {
        let latencies: Vec<(u64, u64)> = (1..5_000).map(|n| (n * n, 1)).collect();
        let counted: u64 = bars(&histogram(&latencies)).iter().map(|bar| bar.count).sum();
        assert_eq!(counted, 4_999);
    }

    #[test]
    fn times_are_written_in_the_unit_that_suits_them() {
        let cases = [
            (1, "1 µs"),
            (999, "999 µs"),
            (1_500, "1.5 ms"),
            (20_000, "20 ms"),
            (600_000_000, "600 s"),
        ];
        for (micros, expected) in cases {
            assert_eq!(label(micros), expected);
        }
    }
}
