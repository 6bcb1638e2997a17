//! The text that Prometheus reads, version 0.0.4 of its format. It knows no metric of ours.

use std::fmt::{Display, Write as _};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// One metric: its name, what it is, and what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
}

/// Names and values that tell the series of a metric apart.
pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

/// Text in the making.
#[derive(Debug, Default)]
pub(super) struct Text {
    out: String,
}

impl Text {
    /// Begins a metric: its samples follow.
    pub(super) fn family(&mut self, family: &Family) {
        let Family { name, kind, help } = family;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One value of a metric that is no histogram.
    pub(super) fn sample(&mut self, family: &Family, labels: Labels<'_>, value: impl Display) {
        self.line(family.name, "", labels, None, value);
    }

    /// A metric with one value.
    pub(super) fn single(&mut self, family: &Family, value: impl Display) {
        self.family(family);
        self.sample(family, &[], value);
    }

    /// One histogram: how many are at most at each bound, and the last of `cumulative` is how many
    /// there are.
    pub(super) fn histogram(
        &mut self,
        family: &Family,
        labels: Labels<'_>,
        bounds: &[String],
        cumulative: &[u64],
        sum: f64,
    ) {
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip(cumulative) {
            self.line(family.name, "_bucket", labels, Some(bound), count);
        }
        self.line(family.name, "_sum", labels, None, sum);
        self.line(family.name, "_count", labels, None, cumulative.last().copied().unwrap_or(0));
    }

    pub(super) fn into_string(self) -> String {
        self.out
    }

    fn line(
        &mut self,
        name: &str,
        suffix: &str,
        labels: Labels<'_>,
        bound: Option<&str>,
        value: impl Display,
    ) {
        self.put(format_args!("{name}{suffix}"));
        let bound = bound.map(|bound| ("le", bound));
        let mut before = '{';
        for (label, text) in labels.iter().copied().chain(bound) {
            self.put(format_args!("{before}{label}=\""));
            self.escaped(text);
            self.out.push('"');
            before = ',';
        }
        let end = if before == '{' { "" } else { "}" };
        self.put(format_args!("{end} {value}\n"));
    }

    /// A label's value may hold anything, and three signs in it would end it or the line.
    fn escaped(&mut self, text: &str) {
        for sign in text.chars() {
            match sign {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                sign => self.out.push(sign),
            }
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Family = Family { name: "a_total", kind: Kind::Counter, help: "What a is." };
    const TIME: Family = Family { name: "t_seconds", kind: Kind::Histogram, help: "How long." };

    #[test]
    fn a_label_cannot_end_its_line_or_begin_another_label() {
        let mut text = Text::default();
        text.family(&COUNT);
        text.sample(&COUNT, &[("rule", "x\"} 1\nb{y=\\")], 3);
        assert_eq!(
            text.into_string(),
            "# HELP a_total What a is.\n# TYPE a_total counter\n\
             a_total{rule=\"x\\\"} 1\\nb{y=\\\\\"} 3\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_what_has_no_bound() {
        let mut text = Text::default();
        text.histogram(&TIME, &[("p", "x")], &["0.5".to_owned()], &[1, 3], 2.5);
        assert_eq!(
            text.into_string(),
            "t_seconds_bucket{p=\"x\",le=\"0.5\"} 1\nt_seconds_bucket{p=\"x\",le=\"+Inf\"} 3\n\
             t_seconds_sum{p=\"x\"} 2.5\nt_seconds_count{p=\"x\"} 3\n"
        );
    }
}
