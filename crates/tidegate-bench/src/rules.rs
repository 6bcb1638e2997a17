//! `cargo xtask bench rules`: what matching costs as rules grow in number, what a decision by rules
//! costs beside a bare one, and how long a reload takes.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use tidegate::{Attribute, Call, Limiter, RuleLimiter, RuleSet, Timestamp};
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::identity::KeyHasher;
use tidegate_rules::resolve::{Ask, Plan};
use tidegate_rules::rule::Pressure;
use tidegate_rules::{ParseOptions, Source};

use crate::allocations;
use crate::harness::as_f64;
use crate::random::Random;
use crate::targets::{Figure, Target};

/// How many rules are compared, the fewest first.
const SIZES: [u32; 4] = [10, 1_000, 10_000, 100_000];
/// The requests of a round, so many that those of many rules do not all stay in the cache.
const REQUESTS: usize = 20_000;
const RELOADED_RULES: u32 = 10_000;

/// Runs everything.
pub(crate) fn figures(quick: bool) -> Result<Vec<Figure>, Box<dyn Error>> {
    let rounds = if quick { 5 } else { 25 };
    let mut figures = matching(rounds)?;
    figures.extend(deciding(rounds)?);
    figures.extend(several_limits(rounds)?);
    figures.extend(reloading(rounds)?);
    Ok(figures)
}

/// A rule set of every kind of condition in turn, as text.
fn rule_text(rules: u32) -> String {
    let mut text = String::from("domain: api\nrules:\n");
    for number in 0..rules {
        let (high, low) = (number / 256 % 256, number % 256);
        let condition = match number % 5 {
            0 => format!("method: GET, path: \"/service-{number}/items/{{id}}\""),
            1 => format!("tenant: tenant-{number}"),
            2 => format!("path: \"/area-{number}/**\""),
            3 => format!("agent: {{ glob: \"robot-{number}/*\" }}"),
            _ => format!("ip: 10.{}.{high}.{low}", number / 65_536),
        };
        let _ = writeln!(
            text,
            "  - {{ name: rule-{number}, match: {{ {condition} }}, per: [user], limit: 1000000/s }}"
        );
    }
    text
}

fn parse(text: &str) -> Result<RuleSet, Box<dyn Error>> {
    let sources = [Source::new("rules.yaml", text)];
    Ok(RuleSet::parse(&sources, &ParseOptions::default())
        .map_err(|report| report.to_string())?
        .rules)
}

/// A request with three attributes for one of the rules.
struct Wanted {
    attributes: [(&'static str, String); 3],
}

fn request(rule: u32, user: u32) -> Wanted {
    let (high, low) = (rule / 256 % 256, rule % 256);
    let (name, value) = match rule % 5 {
        0 => ("path", format!("/service-{rule}/items/{user}")),
        1 => ("tenant", format!("tenant-{rule}")),
        2 => ("path", format!("/area-{rule}/x/{user}")),
        3 => ("agent", format!("robot-{rule}/{user}")),
        _ => ("ip", format!("10.{}.{high}.{low}", rule / 65_536)),
    };
    let user = ("user", format!("user-{user}"));
    Wanted { attributes: [("method", "GET".to_owned()), (name, value), user] }
}

fn requests(rules: u32) -> Vec<Wanted> {
    let mut random = Random::new(7);
    (0..REQUESTS).map(|_| request(random.below(rules), random.below(1000))).collect()
}

fn views(wanted: &[Wanted]) -> Vec<[Attribute<'_>; 3]> {
    wanted
        .iter()
        .map(|one| {
            let [a, b, c] = &one.attributes;
            [(a.0, &*a.1).into(), (b.0, &*b.1).into(), (c.0, &*c.1).into()]
        })
        .collect()
}

/// The time of the best of so many rounds over all requests, per request, each set of rules in turn.
fn matching(rounds: usize) -> Result<Vec<Figure>, Box<dyn Error>> {
    let hasher = KeyHasher::new(&[7; 16]);
    let mut sets = Vec::new();
    for size in SIZES {
        eprintln!("  compiling {size} rules");
        let rules = CompiledRules::new(parse(&rule_text(size))?, &hasher);
        sets.push((size, rules, requests(size), f64::INFINITY));
    }
    for round in 0..=rounds {
        eprintln!("  matching: round {round} of {rounds}");
        for (_, rules, wanted, best) in &mut sets {
            let views = views(wanted);
            let start = Instant::now();
            let charges: usize = views.iter().map(|view| resolve(rules, view)).sum();
            let elapsed_ns = start.elapsed().as_secs_f64() * 1e9 / as_f64(views.len());
            if charges != views.len() {
                return Err(format!("{charges} charges for {} requests", views.len()).into());
            }
            if round > 0 {
                *best = best.min(elapsed_ns);
            }
        }
    }
    let fewest = sets[0].3;
    let mut figures = Vec::new();
    for (size, _, _, best) in &sets {
        figures.push(figure(format!("matching among {size} rules"), *best, "ns per request", None));
    }
    for (size, _, _, best) in &sets[1..] {
        let target = match size {
            1_000 => Some(Target::AtMost(2.0)),
            100_000 => Some(Target::AtMost(10.0)),
            _ => None,
        };
        let name = format!("matching among {size} rules, to 10 rules");
        figures.push(figure(name, best / fewest, "times the time", target));
    }
    Ok(figures)
}

fn resolve(rules: &CompiledRules, view: &[Attribute<'_>]) -> usize {
    let ask = Ask {
        domain: "api",
        attributes: view,
        cost: 1,
        now: Timestamp::ZERO,
        pressure: Pressure::FULL,
    };
    let mut plan = Plan::default();
    let resolved = rules.resolve(black_box(&ask), &mut plan);
    debug_assert!(resolved.is_ok());
    black_box(plan).charges.len()
}

/// Which of the 1,000 rules a request is for: one of each kind of condition.
const KINDS: [(&str, u32); 5] = [
    ("method and path template", 500),
    ("exact value", 501),
    ("everything below a path", 502),
    ("pattern", 503),
    ("address", 504),
];

/// Match plus decision under 1,000 rules beside the bare decision, for one hot key each.
fn deciding(rounds: usize) -> Result<Vec<Figure>, Box<dyn Error>> {
    let ruled =
        RuleLimiter::builder(parse(&rule_text(1_000))?).build().map_err(|e| e.to_string())?;
    let bare = Limiter::new("1000000/s")?;
    let wanted = KINDS.map(|(_, rule)| request(rule, 42));
    let views = views(&wanted);
    let mut checker = ruled.checker();
    let mut best_bare = f64::INFINITY;
    let mut best = [(f64::INFINITY, f64::INFINITY); KINDS.len()];
    for round in 0..=rounds * 4 {
        eprintln!("  deciding: round {round} of {}", rounds * 4);
        best_bare = best_bare.min(call_ns(|| _ = black_box(bare.check(black_box("user-42")))));
        for (view, best) in views.iter().zip(&mut best) {
            let call = Call::new("api", view);
            best.0 = best.0.min(call_ns(|| _ = black_box(checker.check(black_box(&call)).is_ok())));
            best.1 = best.1.min(call_ns(|| drop(black_box(ruled.check(black_box(&call))))));
        }
    }
    let taken = allocations::during(|| {
        for view in views.iter().cycle().take(1000) {
            let call = Call::new("api", view);
            let _ = black_box(checker.check(black_box(&call)).is_ok());
            drop(black_box(ruled.check(black_box(&call))));
        }
    });
    let mut figures = vec![figure("bare decision".into(), best_bare, "ns per call", None)];
    let name = |how: &str, kind: &str| format!("match and decision, {how}: {kind}");
    for ((kind, _), (checker, check)) in KINDS.iter().zip(best) {
        figures.push(figure(name("checker", kind), checker, "ns per call", None));
        figures.push(figure(name("single calls", kind), check, "ns per call", None));
    }
    for ((kind, _), (checker, check)) in KINDS.iter().zip(best) {
        for (how, ns) in [("checker", checker), ("single calls", check)] {
            let target = Some(Target::AtMost(3.0));
            figures.push(figure(
                name(how, kind),
                ns / best_bare,
                "times the bare decision",
                target,
            ));
        }
    }
    figures.push(figure(
        "heap allocations in 2,000 matches and decisions".into(),
        as_f64(usize::try_from(taken)?),
        "allocations",
        Some(Target::AtMost(0.0)),
    ));
    Ok(figures)
}

/// A rule of one limit, of two and of three, all of them decided together, beside each other.
fn several_limits(rounds: usize) -> Result<Vec<Figure>, Box<dyn Error>> {
    const LIMITS: [&str; 3] = ["1000000/s", "10000000/minute", "1000000000/day"];
    let mut limiters = Vec::new();
    for count in 1..=LIMITS.len() {
        let limits = LIMITS[..count].join(", ");
        let rule = format!("{{ name: all, per: [user], limits: [ {limits} ] }}");
        let text = format!("{{ domain: api, rules: [ {rule} ] }}");
        limiters.push(RuleLimiter::builder(parse(&text)?).build().map_err(|e| e.to_string())?);
    }
    let attributes = [("user", "user-42").into()];
    let call = Call::new("api", &attributes);
    let mut checkers: Vec<_> = limiters.iter().map(|limiter| limiter.checker()).collect();
    let plain = Limiter::builder().limit(LIMITS[0]).limit(LIMITS[1]).build()?;
    let mut best = [f64::INFINITY; LIMITS.len()];
    let mut best_plain = f64::INFINITY;
    for _ in 0..=rounds * 4 {
        let ns = call_ns(|| _ = black_box(plain.check(black_box("user-42"))));
        best_plain = best_plain.min(ns);
        for (checker, best) in checkers.iter_mut().zip(&mut best) {
            let ns = call_ns(|| _ = black_box(checker.check(black_box(&call)).is_ok()));
            *best = best.min(ns);
        }
    }
    let taken = allocations::during(|| {
        for _ in 0..1000 {
            drop(black_box(limiters[1].check(black_box(&call))));
        }
    });
    let name = |count: usize| format!("decision under {count} of a rule's limits");
    let times =
        best.iter().zip(1..).map(|(ns, count)| figure(name(count), *ns, "ns per call", None));
    let mut figures: Vec<_> = times.collect();
    for (ns, count) in best.iter().zip(1..).skip(1) {
        let name = format!("{}, to one", name(count));
        figures.push(figure(name, ns / best[0], "times the time", None));
    }
    let name = "decision under two limits of a limiter without rules".into();
    figures.push(figure(name, best_plain, "ns per call", None));
    let taken = as_f64(usize::try_from(taken)?);
    let name = "heap allocations in 1,000 decisions under two limits".into();
    figures.push(figure(name, taken, "allocations", Some(Target::AtMost(0.0))));
    Ok(figures)
}

/// The time of one of many equal calls.
fn call_ns(mut call: impl FnMut()) -> f64 {
    const CALLS: usize = 5_000;
    let start = Instant::now();
    for _ in 0..CALLS {
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / as_f64(CALLS)
}

/// Text to rules in force, while another thread decides.
fn reloading(rounds: usize) -> Result<Vec<Figure>, Box<dyn Error>> {
    let texts =
        [rule_text(RELOADED_RULES), rule_text(RELOADED_RULES).replace("1000000/s", "900000/s")];
    let limiter = RuleLimiter::builder(parse(&texts[0])?).build().map_err(|e| e.to_string())?;
    let wanted = [request(500, 42)];
    let view = views(&wanted)[0];
    let done = AtomicBool::new(false);
    let mut parse_ms = f64::INFINITY;
    let mut swap_ms = f64::INFINITY;
    let (quiet_us, busy_us) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let quiet_us = slowest_us(&limiter, &view, || false);
        let waiting = scope.spawn(|| slowest_us(&limiter, &view, || !done.load(Ordering::Relaxed)));
        for round in 0..rounds.max(5) {
            eprintln!("  reloading: round {round}");
            let start = Instant::now();
            let rules = parse(&texts[round % 2])?;
            let parsed = Instant::now();
            limiter.reload(rules).map_err(|error| error.to_string())?;
            parse_ms = parse_ms.min((parsed - start).as_secs_f64() * 1e3);
            swap_ms = swap_ms.min(parsed.elapsed().as_secs_f64() * 1e3);
        }
        done.store(true, Ordering::Relaxed);
        let busy_us = waiting.join().map_err(|_| "the deciding thread panicked")?;
        Ok((quiet_us, busy_us))
    })?;
    let total = "reload of 10,000 rules: text to rules in force";
    Ok(vec![
        figure("reload of 10,000 rules: parse and check".into(), parse_ms, "ms", None),
        figure("reload of 10,000 rules: compile and swap".into(), swap_ms, "ms", None),
        figure(total.into(), parse_ms + swap_ms, "ms", Some(Target::Below(500.0))),
        figure("decision, 99.9th percentile, without reloads".into(), quiet_us, "us", None),
        figure("decision, 99.9th percentile, during reloads".into(), busy_us, "us", None),
    ])
}

/// The 99.9th percentile of decisions, at least 100,000 of them, for as long as `go_on` says.
fn slowest_us(limiter: &RuleLimiter, view: &[Attribute<'_>], go_on: impl Fn() -> bool) -> f64 {
    let call = Call::new("api", view);
    let mut times = Vec::new();
    while times.len() < 100_000 || (go_on() && times.len() < 20_000_000) {
        let start = Instant::now();
        drop(black_box(limiter.check(black_box(&call))));
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[times.len() - times.len() / 1000 - 1].as_secs_f64() * 1e6
}

fn figure(figure: String, value: f64, unit: &'static str, target: Option<Target>) -> Figure {
    Figure { figure, value, unit, peer: None, target }
}
