//! `RATE per ATTRIBUTE`: one rule in a line, without a file.

use std::str::FromStr;

use serde_json::json;
use tidegate_rules::attribute::is_attribute_name;
use tidegate_rules::{Source, parse_limit};

use super::value::ValueError;

/// The domain of rules that come without a file, unless said.
pub const DEFAULT_DOMAIN: &str = "default";

/// A limit, and the attributes that are counted separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitPer {
    limit: String,
    per: Vec<String>,
    domain: String,
}

impl LimitPer {
    /// What is limited where nothing else is asked for: enough to see the first refusal soon.
    pub fn demonstration() -> Self {
        Self::new("10/minute", vec!["key".to_owned()])
    }

    fn new(limit: &str, per: Vec<String>) -> Self {
        Self { limit: limit.to_owned(), per, domain: DEFAULT_DOMAIN.to_owned() }
    }

    /// The same for the requests of another domain.
    #[must_use]
    pub fn in_domain(self, domain: impl Into<String>) -> Self {
        Self { domain: domain.into(), ..self }
    }

    /// The rule file that says the same.
    pub fn as_rules(&self, origin: &str, rule: &str) -> Source {
        let rule = json!({ "name": rule, "per": self.per, "limit": self.limit });
        let file = json!({ "domain": self.domain, "rules": [rule] });
        Source::new(origin, file.to_string())
    }
}

impl FromStr for LimitPer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let write = "write a rate and what is counted separately: `10/minute per ip`";
        // Rates may have the word themselves, as in `100 per minute per user`.
        let Some((limit, per)) = text.rsplit_once(" per ") else {
            return Err(match parse_limit(text) {
                Ok(_) => ValueError::new(format!("say per what: `{} per ip`", text.trim())),
                Err(_) => ValueError::new(write),
            });
        };
        let (limit, per) = (limit.trim(), per.trim());
        if parse_limit(text).is_ok() {
            return Err(ValueError::new(format!("say per what: `{} per ip`", text.trim())));
        }
        parse_limit(limit).map_err(|error| ValueError::new(error.to_string()))?;
        let per: Vec<String> = per.split(',').map(|name| name.trim().to_owned()).collect();
        match per.iter().find(|name| !is_attribute_name(name)) {
            Some(name) => Err(ValueError::new(format!(
                "`{}` is no name of an attribute: {write}",
                name.escape_debug()
            ))),
            None => Ok(Self::new(limit, per)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rules::{ParseOptions, RuleSet};

    fn parsed(text: &str) -> LimitPer {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<LimitPer>().unwrap_err().to_string()
    }

    #[test]
    fn the_last_per_says_who_is_counted() {
        for (text, limit, per) in [
            ("10/minute per ip", "10/minute", &["ip"][..]),
            ("100 per minute per user", "100 per minute", &["user"]),
            ("20/s burst 50 per api_key", "20/s burst 50", &["api_key"]),
            (
                "5/day fixed-window in UTC per user, path",
                "5/day fixed-window in UTC",
                &["user", "path"],
            ),
            ("5 at once per user", "5 at once", &["user"]),
        ] {
            let per = per.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(parsed(text), LimitPer::new(limit, per), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_asked_for() {
        assert_eq!(refused("10/minute"), "say per what: `10/minute per ip`");
        assert_eq!(refused("100 per minute"), "say per what: `100 per minute per ip`");
        for text in ["", "per ip", "ten a minute per ip", "10/fortnight per ip"] {
            assert!(text.parse::<LimitPer>().is_err(), "{text}");
        }
        assert!(refused("10/minute per the user").starts_with("`the user` is no name"));
        assert!(refused("10/fortnight per ip").contains("unknown unit `fortnight`"));
    }

    #[test]
    fn it_is_one_rule_of_the_default_domain_or_another() {
        let limit = parsed("100 per minute per user");
        for (limit, domain) in [(limit.clone(), DEFAULT_DOMAIN), (limit.in_domain("api"), "api")] {
            let source = limit.as_rules("--limit", "limit");
            let rules = RuleSet::parse(&[source], &ParseOptions::default()).unwrap().rules;
            let rule = &rules.domain(domain).unwrap().rules[0];
            assert_eq!((rule.name.as_str(), &rule.per[..]), ("limit", &["user".to_owned()][..]));
        }
    }

    #[test]
    fn the_demonstration_is_ten_a_minute_per_key() {
        assert_eq!(LimitPer::demonstration(), parsed("10/minute per key"));
    }
}
