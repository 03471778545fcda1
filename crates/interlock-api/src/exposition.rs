//! The text format of Prometheus, version 0.0.4: families of samples, each with its help and its type.

use std::fmt::{Display, Write as _};

/// What Prometheus expects as the content's type.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics in the making.
#[derive(Debug, Default)]
pub(crate) struct Page(String);

/// A label and its value.
pub(crate) type Label<'a> = (&'a str, &'a str);

impl Page {
    /// A number that only grows, in one or more series.
    pub(crate) fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Option<Label<'a>>, u64)>,
    ) {
        self.head(name, help, "counter");
        for (label, value) in series {
            self.sample(name, label, value);
        }
    }

    /// A number that goes up and down.
    pub(crate) fn gauge(
        &mut self,
        name: &str,
        help: &str,
        label: Option<Label<'_>>,
        value: impl Display,
    ) {
        self.head(name, help, "gauge");
        self.sample(name, label, value);
    }

    /// Numbers that go up and down, by the value of a label.
    pub(crate) fn gauges<'a>(
        &mut self,
        name: &str,
        help: &str,
        label: &'a str,
        series: impl IntoIterator<Item = (&'a str, impl Display)>,
    ) {
        self.head(name, help, "gauge");
        for (text, value) in series {
            self.sample(name, Some((label, text)), value);
        }
    }

    /// How values are spread: cumulative counts by upper bound, then the sum and the count of all.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        (bounds, count): &(Vec<(f64, u64)>, u64),
        sum: f64,
    ) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, below) in bounds {
            self.sample(&bucket, Some(("le", &bound.to_string())), below);
        }
        self.sample(&bucket, Some(("le", "+Inf")), count);
        self.sample(&format!("{name}_sum"), None, sum);
        self.sample(&format!("{name}_count"), None, count);
    }

    /// The page.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, label: Option<Label<'_>>, value: impl Display) {
        match label {
            None => self.line(format_args!("{name} {value}")),
            Some((key, text)) => {
                let text = escaped(text);
                self.line(format_args!("{name}{{{key}=\"{text}\"}} {value}"));
            }
        }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _never = writeln!(self.0, "{line}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut page = Page::default();
        page.counter("runs_total", "Runs.", [(Some(("status", "a\"b\\c\n")), 3)]);
        page.gauge("open", "Open.", None, 7);
        page.histogram("lag_seconds", "Lag.", &(vec![(0.5, 1), (1.0, 2)], 3), 4.25);
        let expected = "# HELP runs_total Runs.\n# TYPE runs_total counter\n\
            runs_total{status=\"a\\\"b\\\\c\\n\"} 3\n\
            # HELP open Open.\n# TYPE open gauge\nopen 7\n\
            # HELP lag_seconds Lag.\n# TYPE lag_seconds histogram\n\
            lag_seconds_bucket{le=\"0.5\"} 1\nlag_seconds_bucket{le=\"1\"} 2\n\
            lag_seconds_bucket{le=\"+Inf\"} 3\nlag_seconds_sum 4.25\nlag_seconds_count 3\n";
        assert_eq!(page.finish(), expected);
    }
}
