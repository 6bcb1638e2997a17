//! What servers say about when to come back: `Retry-After` in both of its forms, and the fields `RateLimit`
//! and `RateLimit-Policy` of the IETF's draft in its present form and in the one before.

use std::time::Duration;

use http::HeaderMap;
use http::header::{DATE, HeaderName, RETRY_AFTER};
use jiff::civil::DateTime;
use sfv::{BareItem, Dictionary, List, ListEntry, Parser};
use tidegate::Timestamp;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

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

/// How long until a policy has something again that has nothing left, by the field `RateLimit`; the longest
/// where there are several. `None` where all have something left, or nothing can be read.
pub fn used_up_for(headers: &HeaderMap) -> Option<Duration> {
    let mut lines = headers.get_all(RATELIMIT).iter().map(|line| line.to_str().ok());
    let mut text = lines.next()??.to_owned();
    for line in lines {
        text.push_str(", ");
        text.push_str(line?);
    }
    let wait_secs = of_list(&text).unwrap_or_else(|NoList| of_dictionary(&text))?;
    Some(Duration::from_secs(wait_secs).min(WAIT_MAX))
}

/// The text is something else than a list of policies.
struct NoList;

/// `"default";r=0;t=30, "daily";r=12`.
fn of_list(text: &str) -> Result<Option<u64>, NoList> {
    let list: List = Parser::new(text).parse().map_err(|_| NoList)?;
    let mut longest = None;
    for entry in &list {
        let ListEntry::Item(item) = entry else { return Err(NoList) };
        if !matches!(item.bare_item, BareItem::String(_)) {
            return Err(NoList);
        }
        let number = |name: &str| match item.params.get(name) {
            Some(BareItem::Integer(number)) => u64::try_from(i64::from(*number)).ok(),
            _ => None,
        };
        if number("r") == Some(0) {
            longest = longest.max(number("t"));
        }
    }
    Ok(longest)
}

/// `limit=100, remaining=0, reset=30`, as the draft had it before.
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

    proptest! {
        #[test]
        fn whatever_servers_write_is_read_without_a_fault(text in "[ -~]{0,40}") {
            let headers = headers(&[("retry-after", &text), ("ratelimit", &text), ("date", &text)]);
            let _ = (retry_after(&headers, NOW), used_up_for(&headers));
        }
    }
}
