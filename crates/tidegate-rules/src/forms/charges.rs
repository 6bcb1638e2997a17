//! How many limits a request can meet at once: more than a store decides in one step would make every
//! such request fail.

use crate::compile::CompiledRules;
use crate::diagnostic::Problems;
use crate::rule::{Domain, Mode, Quota, Rule};

const MAX: usize = CompiledRules::LIMITS_MAX;

/// Reports rules that have too many limits, alone or with the others that match every request.
pub(super) fn check(domains: &[Domain], problems: &mut Problems) {
    for domain in domains {
        let mut of_all = 0;
        for rule in &domain.rules {
            let charges = most_charges(rule);
            if charges > MAX {
                let message = format!("a request can meet {charges} limits of this rule at once");
                problems.error(rule.place, message).help = Some(format!(
                    "at most {MAX} can be decided together; each class of `priority` counts every \
                     limit once more"
                ));
                continue;
            }
            if rule.conditions.is_empty() && rule.mode == Mode::Enforce {
                let before = of_all;
                of_all += charges;
                if before <= MAX && of_all > MAX {
                    let message = format!("every request meets {of_all} limits from here on");
                    problems.error(rule.place, message).help =
                        Some(format!("at most {MAX} can be decided together; add a `match`"));
                }
            }
        }
    }
}

/// The most limits in force that one request can meet in a rule.
fn most_charges(rule: &Rule) -> usize {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas).map(|(_, quota)| quota);
    let overrides = rule.overrides.iter().map(|one| &one.quota);
    let limits = |quota: &Quota| match quota {
        Quota::Limits(limits) => limits.len(),
        Quota::Unlimited | Quota::Nothing => 0,
    };
    let most = std::iter::once(&rule.quota).chain(tiers).chain(overrides).map(limits).max();
    let classes = rule.priority.as_ref().map_or(0, |priority| priority.reserve.len());
    most.unwrap_or(0) * (1 + classes)
}

#[cfg(test)]
mod tests {
    use crate::{ParseOptions, RuleSet, Source};

    fn report(text: &str) -> String {
        let parsed = RuleSet::parse(&[Source::new("r", text)], &ParseOptions::default());
        parsed.map_or_else(|report| report.to_string(), |_| String::new())
    }

    fn rules(count: usize, condition: &str) -> String {
        let rules: Vec<String> = (0..count)
            .map(|number| format!("{{ name: r{number}, {condition} per: [user], limit: 9/s }}"))
            .collect();
        format!("{{ domain: api, rules: [ {} ] }}", rules.join(", "))
    }

    #[test]
    fn more_limits_than_can_be_decided_for_every_request_are_refused() {
        assert_eq!(report(&rules(16, "")), "");
        assert!(report(&rules(17, "")).contains("every request meets 17 limits"));
        assert_eq!(report(&rules(17, "mode: shadow,")), "");
        assert_eq!(report(&rules(17, "match: { user: a },")), "");
    }

    #[test]
    fn each_class_counts_every_limit_once_more() {
        let rule = |limits: &str| {
            format!(
                "{{ domain: api, rules: [ {{ name: r, per: [user], limits: [ {limits} ], \
                 priority: {{ by: class, reserve: {{ a: 10%, b: 10% }} }} }} ] }}"
            )
        };
        assert_eq!(report(&rule("1/s, 2/min, 3/h, 4/day, 5/week")), "");
        let six = report(&rule("1/s, 2/min, 3/h, 4/day, 5/week, 6/year"));
        assert!(six.contains("can meet 18 limits"), "{six}");
    }
}
