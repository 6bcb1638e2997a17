//! What this host says of its processors: Linux's pressure stall information, or, where a kernel
//! has none, how much of the time they were busy.

use std::fs;

use tidegate_rules::rule::Pressure;

/// Measures how busy this host's processors are. Ask it about once a second, from a thread that may
/// read files, and hand the answer to [`PressureSignal::set_host`](crate::PressureSignal::set_host).
#[derive(Debug, Default)]
pub struct HostPressure {
    /// Busy and total time at the last sample, in the kernel's own units.
    last: Option<(u64, u64)>,
}

impl HostPressure {
    /// Nothing measured yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pressure now; `None` where the host does not tell, and at the first call on a kernel that
    /// only counts time.
    pub fn sample(&mut self) -> Option<Pressure> {
        if let Ok(text) = fs::read_to_string("/proc/pressure/cpu") {
            return stalled(&text);
        }
        self.busy(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// How much of the time between two samples the processors were not idle.
    fn busy(&mut self, stat: &str) -> Option<Pressure> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let times: Vec<u64> = line.split_whitespace().map_while(|part| part.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        let total: u64 = times.iter().take(8).sum();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        let now = (total.saturating_sub(idle), total);
        let (busy, total) = self.last.replace(now)?;
        let (busy, total) = (now.0.saturating_sub(busy), now.1.saturating_sub(total));
        let millionths = busy.saturating_mul(1_000_000).checked_div(total)?;
        Pressure::from_millionths(u32::try_from(millionths.min(1_000_000)).ok()?)
    }
}

/// The share of the last ten seconds in which some task waited for a processor.
fn stalled(text: &str) -> Option<Pressure> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let percent = line.split_whitespace().find_map(|part| part.strip_prefix("avg10="))?;
    // "12.34" percent are 123,400 millionths.
    let (whole, hundredths) = percent.split_once('.')?;
    let hundredths = whole.parse::<u32>().ok()? * 100 + hundredths.parse::<u32>().ok()?;
    Pressure::from_millionths(hundredths.checked_mul(100)?.min(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_stall_information_of_linux() {
        let text =
            "some avg10=12.34 avg60=1.00 avg300=0.50 total=123\nfull avg10=0.00 avg60=0.00\n";
        assert_eq!(stalled(text), Pressure::from_millionths(123_400));
        assert_eq!(stalled("some avg10=100.00 avg60=0.00"), Some(Pressure::FULL));
        assert_eq!(stalled(""), None);
        assert_eq!(stalled("some avg10=x.y"), None);
    }

    #[test]
    fn otherwise_counts_the_time_between_two_samples() {
        let mut host = HostPressure::new();
        assert_eq!(host.busy("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2\n"), None);
        assert_eq!(
            host.busy("cpu  130 0 120 850 0 0 0 0 0 0\n"),
            Pressure::from_millionths(500_000)
        );
        assert_eq!(host.busy("nonsense"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_host_tells() {
        let mut host = HostPressure::new();
        let first = host.sample();
        assert!(first.or_else(|| host.sample()).is_some() || host.last.is_some());
    }
}
