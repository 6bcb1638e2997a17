//! What servers say about when to come back: `Retry-After` in both of its forms, and the fields of the IETF's
//! draft in all of the forms that it has had. Not the `X-RateLimit-` fields: see [`used_up_for`].

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, HeaderName, RETRY_AFTER};
use jiff::civil::DateTime;
use sfv::{BareItem, Dictionary, List, ListEntry, Parameters, Parser};
use tidegate::Timestamp;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// The longest time that is believed. What says more is a mistake, or hopeless.
const WAIT_MAX: Duration = Duration::from_hours(366 * 24);

/// How long `Retry-After` says to wait. A date is compared with that of the response, where it has one,
/// because clocks differ; `now` is since the Unix epoch. What cannot be read says nothing.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // So many digits that they are no number are too long a wait in any case.
        return Some(text.parse().map_or(WAIT_MAX, Duration::from_secs).min(WAIT_MAX));
    }
    let at_secs = http_date(text)?;
    let sent_at = headers.get(DATE).and_then(|date| date.to_str().ok()).and_then(http_date);
    let now_secs = sent_at.or_else(|| i64::try_from(now.as_micros() / 1_000_000).ok())?;
    let wait_secs = u64::try_from(at_secs.saturating_sub(now_secs)).unwrap_or(0);
    Some(Duration::from_secs(wait_secs).min(WAIT_MAX))
}

/// How long a refusal says to wait by the fields of the IETF's draft: the longest time of the policies that
/// have nothing left. `None` where all have something left, or nothing can be read.
///
/// | read | as the draft had it |
/// | --- | --- |
/// | `RateLimit: "default";r=0;t=30` | from its eighth version on |
/// | `RateLimit: limit=100, remaining=0, reset=30` | in its seventh |
/// | `RateLimit-Remaining: 0` and `RateLimit-Reset: 30` | up to its sixth |
///
/// The last two fields are read where `RateLimit` is not there. Some servers had their names before the draft
/// did, with a date in seconds since 1970 for the reset: more than a year is such a date, and says nothing here.
/// `X-RateLimit-Reset` is not read. No document says what it is: it is a date at one server, the seconds until
/// there is more at another, and the seconds until everything is back at ours.
pub fn used_up_for(headers: &HeaderMap) -> Option<Duration> {
    used_up(headers).iter().map(UsedUp::until).max()
}

/// How long until there is something again, by a response that is no refusal and took the last.
///
/// That is the `t` of the policies that have nothing left, or the `q`th part of it where it is all of the
/// window `w` that `RateLimit-Policy` gives. The draft had `t` as the time until the quota resets before its tenth
/// version has it as the time until there is more, and servers differ:
///
/// - Less than the window is the end of a fixed window, or the time until there is more. To ask before is in vain.
/// - All of the window is what an empty bucket says that means the time until it is full, as ours do. The next
///   token is there after a `q`th of that. A fixed window that was used up as soon as it began says the
///   same. Then the first one who asks is refused, and the refusal says how long all others wait.
///
/// Places for concurrent requests are not waited for: one is free again with the end of any response, and of
/// this one too.
pub fn more_after(headers: &HeaderMap) -> Option<Duration> {
    let used_up = used_up(headers);
    if used_up.is_empty() {
        return None;
    }
    let policies = text_of(headers, RATELIMIT_POLICY).and_then(|text| policies(&text));
    let policies = policies.unwrap_or_default();
    let policy = |used_up: &UsedUp| policies.iter().find(|policy| used_up.name == policy.name);
    let more_after = |used_up: &UsedUp| match policy(used_up) {
        Some(policy) => policy.more_after(used_up),
        None => Some(used_up.until()),
    };
    used_up.iter().filter_map(more_after).max()
}

/// What has nothing left.
struct UsedUp {
    /// Empty where the form has no names.
    name: String,
    until_secs: u64,
}

impl UsedUp {
    fn until(&self) -> Duration {
        Duration::from_secs(self.until_secs).min(WAIT_MAX)
    }
}

fn used_up(headers: &HeaderMap) -> Vec<UsedUp> {
    let unnamed = |until_secs| UsedUp { name: String::new(), until_secs };
    if !headers.contains_key(RATELIMIT) {
        return of_two_fields(headers).map(unnamed).into_iter().collect();
    }
    let Some(text) = text_of(headers, RATELIMIT) else { return Vec::new() };
    let Some(policies) = policies(&text) else {
        return of_dictionary(&text).map(unnamed).into_iter().collect();
    };
    let used_up = policies.into_iter().filter(|policy| policy.number("r") == Some(0));
    let until = |policy: Policy| Some((policy.number("t")?, policy.name));
    used_up.filter_map(until).map(|(until_secs, name)| UsedUp { name, until_secs }).collect()
}

/// All lines of a field as one.
fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let mut lines = headers.get_all(name).iter().map(|line| line.to_str().ok());
    let mut text = lines.next()??.to_owned();
    for line in lines {
        text.push_str(", ");
        text.push_str(line?);
    }
    Some(text)
}

/// A policy, as one of the two fields has it.
struct Policy {
    name: String,
    params: Parameters,
}

/// `"default";r=0;t=30, "daily";r=12`. `None` where the text is something else than a list of policies.
fn policies(text: &str) -> Option<Vec<Policy>> {
    let list: List = Parser::new(text).parse().ok()?;
    let policy = |entry| match entry {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::String(name) => Some(Policy { name: name.into(), params: item.params }),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    list.into_iter().map(policy).collect()
}

impl Policy {
    fn number(&self, name: &str) -> Option<u64> {
        match self.params.get(name) {
            Some(BareItem::Integer(number)) => u64::try_from(i64::from(*number)).ok(),
            _ => None,
        }
    }

    /// See [`more_after`].
    fn more_after(&self, used_up: &UsedUp) -> Option<Duration> {
        let until = used_up.until();
        match self.params.get("qu") {
            None => {}
            Some(BareItem::String(unit)) if unit.as_str() == "requests" => {}
            Some(BareItem::String(unit)) if unit.as_str() == "concurrent-requests" => return None,
            // Nobody knows how many bytes, or whatever is counted, the next request takes.
            Some(_) => return Some(until),
        }
        let (Some(quota @ 1..), Some(window_secs)) = (self.number("q"), self.number("w")) else {
            return Some(until);
        };
        // An empty bucket misses more than all its tokens but one, and both times may be rounded by a second.
        let at_least = u128::from(window_secs) * u128::from(quota - 1);
        let is_all_of_it = (u128::from(used_up.until_secs) + 1) * u128::from(quota) > at_least;
        Some(if is_all_of_it { part(until, quota) } else { until })
    }
}

/// So small a part of it, rounded up.
fn part(time: Duration, parts: u64) -> Duration {
    let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(time_ns.div_ceil(parts))
}

/// `limit=100, remaining=0, reset=30`.
fn of_dictionary(text: &str) -> Option<u64> {
    let dictionary: Dictionary = Parser::new(text).parse().ok()?;
    let number = |name: &str| match dictionary.get(name)? {
        ListEntry::Item(item) => match item.bare_item {
            BareItem::Integer(number) => u64::try_from(i64::from(number)).ok(),
            _ => None,
        },
        ListEntry::InnerList(_) => None,
    };
    (number("remaining") == Some(0)).then(|| number("reset")).flatten()
}

/// `RateLimit-Remaining: 0` and `RateLimit-Reset: 30`, one of each.
fn of_two_fields(headers: &HeaderMap) -> Option<u64> {
    let number = |name: HeaderName| {
        let mut lines = headers.get_all(name).iter();
        let text = lines.next().filter(|_| lines.next().is_none())?.to_str().ok()?;
        text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_used_up = number(RATELIMIT_REMAINING) == Some(0);
    number(RATELIMIT_RESET).filter(|reset_secs| is_used_up && *reset_secs <= WAIT_MAX.as_secs())
}

/// The three forms of RFC 9110, section 5.6.7, in seconds since the Unix epoch.
fn http_date(text: &str) -> Option<i64> {
    const FORMS: [&str; 3] =
        ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    let read = |form: &&str| DateTime::strptime(form, text).ok();
    let date = FORMS.iter().find_map(read)?;
    Some(date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp::from_secs(784_111_777);
    /// The largest integer of structured fields.
    const MOST: u64 = 999_999_999_999_999;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn wait_secs(lines: &[(&'static str, &str)]) -> Option<u64> {
        retry_after(&headers(lines), NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_in_three_forms() {
        for (text, expected) in [
            ("0", Some(0)),
            ("30", Some(30)),
            (" 7 ", Some(7)),
            ("99999999999999999999999", Some(WAIT_MAX.as_secs())),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:48:37 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(wait_secs(&[("retry-after", text)]), expected, "{text}");
        }
        assert_eq!(wait_secs(&[]), None);
    }

    #[test]
    fn a_date_is_compared_with_the_clock_of_who_wrote_it() {
        let date = ("date", "Sun, 06 Nov 1994 10:00:00 GMT");
        let lines = [("retry-after", "Sun, 06 Nov 1994 10:00:05 GMT"), date];
        assert_eq!(wait_secs(&lines), Some(5));
    }

    #[test]
    fn a_policy_that_is_used_up_says_for_how_long() {
        let wait = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("ratelimit", *line)).collect();
            used_up_for(&headers(&lines)).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&[r#""default";r=0;t=30"#]), Some(30));
        assert_eq!(wait(&[r#""default";r=1;t=30"#]), None);
        assert_eq!(wait(&[r#""burst";r=5;t=60, "daily";r=0;t=9, "x";r=0;t=3"#]), Some(9));
        assert_eq!(wait(&[r#""a";r=0;t=3"#, r#""b";r=0;t=4"#]), Some(4));
        assert_eq!(wait(&[r#""default";r=0"#]), None);
        assert_eq!(wait(&["limit=100, remaining=0, reset=30"]), Some(30));
        assert_eq!(wait(&["limit=100, remaining=3, reset=30"]), None);
        for broken in ["", "\"", "r=0;t=5", "\"a\";r=0;t=-5", "\"a\";r=0;t=1.5", "(\"a\");r=0;t=5"]
        {
            assert_eq!(wait(&[broken]), None, "{broken}");
        }
        assert_eq!(wait(&[]), None);
    }

    /// What servers send with the last response before a refusal, word for word.
    #[test]
    fn what_took_the_last_says_when_there_is_more() {
        let more_ms = |policy: &str, left: &str| {
            let headers = headers(&[("ratelimit-policy", policy), ("ratelimit", left)]);
            more_after(&headers).map(|wait| wait.as_millis())
        };
        for (policy, left, expected_ms) in [
            // Ours: a bucket, `1/s burst 20` and `100/s`; two of them, of which one has something left.
            (r#""all";q=20;w=20"#, r#""all";r=0;t=20"#, Some(1_000)),
            (r#""all";q=100;w=1"#, r#""all";r=0;t=1"#, Some(10)),
            (
                r#""orders";q=1;w=60, "orders#2";q=500;w=86400"#,
                r#""orders";r=0;t=60, "orders#2";r=499;t=173"#,
                Some(60_000),
            ),
            // `10/minute burst 40` with a part of a token, so that it is full earlier than after all of `w`.
            (r#""burst";q=40;w=240"#, r#""burst";r=0;t=235"#, Some(5_875)),
            // Ours: a fixed window, whose end is less than a window away.
            (r#""all";q=20;w=20"#, r#""all";r=0;t=13"#, Some(13_000)),
            // Ours: what is below a second has no window.
            (r#""fast";q=5"#, r#""fast";r=0;t=1"#, Some(1_000)),
            // Ours: places for concurrent requests, and a lease that ends after a minute.
            (r#""slots";q=3;qu="concurrent-requests""#, r#""slots";r=0;t=60"#, None),
            // The draft's tenth version: the time until there is more.
            (r#""burst";q=100;w=60,"daily";q=1000;w=86400"#, r#""burst";r=0;t=3"#, Some(3_000)),
            // Its units: a byte is no request.
            (r#""bulk";q=65535;qu="content-bytes";w=10"#, r#""bulk";r=0;t=10"#, Some(10_000)),
            (r#""a";q=10;qu="requests";w=10"#, r#""a";r=0;t=10"#, Some(1_000)),
            // express-rate-limit as the draft had it in its eighth version, and in its seventh.
            (
                r#""100-in-15min"; q=100; w=900; pk=:NGY4ZTFiMmEzYzRk:"#,
                r#""100-in-15min"; r=0; t=412"#,
                Some(412_000),
            ),
            ("100;w=900", "limit=100, remaining=0, reset=412", Some(412_000)),
            // A policy of another name, or one that cannot be read, explains nothing.
            (r#""b";q=20;w=20"#, r#""a";r=0;t=20"#, Some(20_000)),
            ("\"", r#""a";r=0;t=20"#, Some(20_000)),
            (r#""a";q=0;w=20"#, r#""a";r=0;t=20"#, Some(20_000)),
            (r#""a";q=20;w=20"#, r#""a";r=1;t=20"#, None),
        ] {
            assert_eq!(more_ms(policy, left), expected_ms, "{policy} {left}");
        }
        // Envoy's, which has no field of these names.
        let envoy = [
            ("x-ratelimit-limit", r#"20, 20;w=60;name="all""#),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "37"),
        ];
        assert_eq!(more_after(&headers(&envoy)), None);
    }

    /// As the draft had it up to its sixth version; some had these names before it, with a date for the reset.
    #[test]
    fn remaining_and_reset_are_read_where_they_are_seconds() {
        let wait = |lines: &[(&'static str, &str)]| {
            let headers = headers(lines);
            assert_eq!(more_after(&headers), used_up_for(&headers));
            used_up_for(&headers).map(|wait| wait.as_secs())
        };
        let (limit, policy) = (("ratelimit-limit", "100"), ("ratelimit-policy", "100;w=900"));
        let (none, reset) = (("ratelimit-remaining", "0"), ("ratelimit-reset", "412"));
        // express-rate-limit and Kong.
        assert_eq!(wait(&[policy, limit, none, reset]), Some(412));
        assert_eq!(wait(&[limit, ("ratelimit-remaining", "3"), reset]), None);
        assert_eq!(wait(&[limit, none]), None);
        // GitLab.
        assert_eq!(wait(&[limit, none, ("ratelimit-reset", "1609844400")]), None);
        // Docker Hub.
        assert_eq!(wait(&[("ratelimit-remaining", "0;w=21600"), reset]), None);
        // Two of each, of which nobody knows which belong together.
        assert_eq!(wait(&[none, reset, ("ratelimit-remaining", "5"), reset]), None);
        // The later form speaks alone.
        assert_eq!(wait(&[none, reset, ("ratelimit", r#""a";r=1;t=5"#)]), None);
        for broken in ["", "-1", "1.5", "+5", "99999999999999999999999", "soon"] {
            assert_eq!(wait(&[none, ("ratelimit-reset", broken)]), None, "{broken}");
        }
    }

    proptest! {
        #[test]
        fn whatever_servers_write_is_read_without_a_fault(text in "[ -~]{0,40}") {
            let headers = headers(&[("retry-after", &text), ("ratelimit", &text), ("date", &text)]);
            let _ = (retry_after(&headers, NOW), used_up_for(&headers));
        }

        #[test]
        fn there_is_more_no_later_than_a_refusal_would_say(
            quota in 0..=MOST, window in 0..=MOST, until in 0..=MOST,
        ) {
            let policy = format!("\"a\";q={quota};w={window}");
            let left = format!("\"a\";r=0;t={until}");
            let headers = headers(&[("ratelimit-policy", &policy), ("ratelimit", &left)]);
            prop_assert!(more_after(&headers) <= used_up_for(&headers));
            prop_assert!(until == 0 || more_after(&headers) > Some(Duration::ZERO));
        }
    }
}
