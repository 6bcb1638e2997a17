//! The store that nodes share, from its settings: connecting to it, on what terms limits are kept in it,
//! and giving back at the end what this node still holds.

use std::sync::Arc;
use std::time::Duration;

use tidegate::redis::{OpenError, RedisConfig, Shared, SharedConfig};
use tidegate::rules::GroupRanges;
use tidegate::{RuleLimiterBuilder, core};

use super::StartError;
use crate::config::store::{StoreSettings, told};
use crate::config::value::{Consistency, OnStoreFailure};
use crate::config::{SettingsError, Told};
use crate::engine::EngineClock;

/// The least time that there is to give back what is held, however long the drain took.
const CLOSE_TIME_MIN: Duration = Duration::from_millis(500);

/// Connects, or says what is wrong. Where the store is not required, it goes on without and tries again.
pub(super) async fn connect(
    settings: &StoreSettings,
    memory_bytes: usize,
) -> Result<Arc<Shared>, StartError> {
    let groups: Result<Vec<RedisConfig>, _> =
        settings.urls.iter().map(|url| settings.config(url)).collect();
    let groups = groups.map_err(StartError::Settings)?;
    let config = SharedConfig::new(groups)
        .memory(memory_bytes)
        .store_required(settings.is_required)
        .nodes(settings.nodes);
    let connected = Shared::connect(config).await;
    connected.map(Arc::new).map_err(|error| StartError::Store { told: sentence(settings, &error) })
}

/// Which of the stores it is, and what is wrong.
fn sentence(settings: &StoreSettings, error: &OpenError) -> String {
    let group = match error {
        OpenError::Group { group, error } => settings.urls.get(*group).zip(Some(error)),
        _ => None,
    };
    match group {
        Some((url, error)) => format!("--store {url}: {}", told(url, error)),
        None => format!("--store: {}", Told::new(error)),
    }
}

/// Gives back what this node holds, as long as there is time.
pub(super) async fn close(shared: &Shared, left: Duration) {
    let left = left.max(CLOSE_TIME_MIN);
    if tokio::time::timeout(left, shared.close()).await.is_err() {
        tracing::warn!("the store was not told what this node gives back: its leases will expire");
    }
}

/// On what terms limits are kept where a rule does not say.
pub(super) fn terms(
    builder: RuleLimiterBuilder<EngineClock>,
    settings: &StoreSettings,
) -> Result<RuleLimiterBuilder<EngineClock>, StartError> {
    let builder = builder
        .consistency(match settings.consistency {
            Consistency::Local => core::Consistency::Local,
            Consistency::Strict => core::Consistency::Strict,
            Consistency::Leased => core::Consistency::Leased,
        })
        .on_store_failure(match settings.on_failure {
            OnStoreFailure::Allow => core::OnStoreFailure::Allow,
            OnStoreFailure::Deny => core::OnStoreFailure::Deny,
            OnStoreFailure::Local => core::OnStoreFailure::Local,
        });
    let Some(ranges) = &settings.ranges else { return Ok(builder) };
    let groups = GroupRanges::new(&ranges.attribute, ranges.ranges.iter().cloned());
    let groups = groups.map_err(|_| {
        StartError::Settings(SettingsError::StoreRange { groups: settings.urls.len() })
    })?;
    Ok(builder.groups(groups))
}
