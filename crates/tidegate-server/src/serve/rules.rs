//! The rules at the start, and the files that they follow. Whatever is wrong with a change, the rules
//! that were in force stay, and the log says why.

use std::sync::Arc;

use tidegate::{RuleSet, RulesError};
use tidegate_files::{Reload, WatchOptions, Watcher, follow as follow_files, read};
use tidegate_rules::{Checked, ParseOptions, Source};

use super::{StartError, process};
use crate::config::limit::LimitPer;
use crate::config::{RulesFrom, Settings};
use crate::engine::Engine;
use crate::grpc;

/// How many rules are warned of one by one; the others are counted.
const WARNINGS_MAX: usize = 10;

/// Rules without an error, and the text that they are from.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) sources: Vec<Source>,
    pub(super) checked: Checked,
}

/// The rules to start with.
pub(super) fn load(settings: &Settings) -> Result<Loaded, StartError> {
    let sources = match &settings.rules {
        RulesFrom::Files(paths) => read(paths).map_err(StartError::Read)?,
        RulesFrom::Limit(limit) => vec![limit.as_rules("--limit", "limit")],
        RulesFrom::Demonstration => vec![LimitPer::demonstration().as_rules("", "demo")],
    };
    let parsed = RuleSet::parse(&sources, &options(settings));
    let checked = parsed.map_err(|report| StartError::Rules(RulesError::Text(report)))?;
    if !checked.warnings.is_empty() {
        tracing::warn!(warnings = checked.warnings.warnings(), "rules:\n{}", checked.warnings);
    }
    warn_of_concurrency(&checked.rules);
    Ok(Loaded { sources, checked })
}

/// Keeps the rules as they are in the files, where they are from files.
pub(super) fn follow(
    settings: &Settings,
    loaded: Loaded,
    engine: &Arc<Engine>,
) -> Result<Option<Watcher>, StartError> {
    let RulesFrom::Files(paths) = &settings.rules else { return Ok(None) };
    let (limiter, told) = (engine.limiter(), Arc::clone(engine));
    let (paths, known, watching) = (paths.clone(), loaded.sources, WatchOptions::default());
    let watcher = follow_files(limiter, paths, known, options(settings), watching, move |reload| {
        told.metrics().reloaded(matches!(reload, Reload::Done { .. }));
        tell(&reload);
        if matches!(reload, Reload::Done { .. }) {
            warn_of_concurrency(told.limiter().rules().set());
            warn_of_strict(&told);
        }
        process::notify_reloaded();
    });
    let watcher = watcher.map_err(StartError::Watch)?;
    if let Some(trouble) = watcher.trouble() {
        tracing::warn!("rule files are compared every few seconds: {trouble}");
    }
    Ok(Some(watcher))
}

fn options(settings: &Settings) -> ParseOptions {
    ParseOptions { merge_domains: settings.merge_domains }
}

/// Envoy's service cannot hold a place under a concurrency limit, and somebody may rely on it.
fn warn_of_concurrency(rules: &RuleSet) {
    let warnings = grpc::warnings(rules);
    for warning in warnings.iter().take(WARNINGS_MAX) {
        tracing::warn!("{warning}");
    }
    if warnings.len() > WARNINGS_MAX {
        tracing::warn!(rules = warnings.len() - WARNINGS_MAX, "the same is true of more rules");
    }
}

/// Not every limit can be leased, and somebody may count on the speed of it.
pub(super) fn warn_of_strict(engine: &Engine) {
    let limits = engine.limiter().strict_instead_of_leased();
    for one in limits.iter().take(WARNINGS_MAX) {
        let (rule, limit) = (&one.rule, &one.limit);
        tracing::warn!(
            "the limit `{limit}` of rule `{rule}` cannot be leased: it is kept strictly"
        );
    }
    if limits.len() > WARNINGS_MAX {
        tracing::warn!(limits = limits.len() - WARNINGS_MAX, "the same is true of more limits");
    }
}

fn tell(reload: &Reload) {
    match reload {
        Reload::Done { changes, warnings } if warnings.is_empty() => {
            tracing::info!(changes = changes.len(), "{reload}");
        }
        Reload::Done { changes, warnings } => {
            let (changes, warnings) = (changes.len(), warnings.warnings());
            tracing::warn!(changes, warnings, "{reload}");
        }
        _ => tracing::error!("{reload}"),
    }
}
