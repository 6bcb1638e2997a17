//! What an operator sets about the HTTP endpoints, with what holds where nothing is set.

use std::time::Duration;

use tidegate_tower::HeaderSet;
use tokio_util::sync::CancellationToken;

/// The settings of the HTTP endpoints.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Which headers about limits answers have.
    pub headers: HeaderSet,
    /// The domain of calls that name none.
    pub default_domain: String,
    /// The longest that `/limit/{key}` and `/v1/auth` hold an answer back for a leaky bucket. A call
    /// that would have to wait longer gives back what it took and is denied.
    pub delay_max: Duration,
    /// The most bytes of a body, except that of a batch.
    pub body_bytes_max: usize,
    /// The most bytes of the body of a batch.
    pub batch_bytes_max: usize,
    /// The most calls of a batch.
    pub batch_calls_max: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How long a client may take to send the head of a request, idle time of a kept connection
    /// included.
    pub head_timeout: Duration,
    /// Cancelled when no more traffic is to come here: `/readyz` says so from then on, while everything
    /// is answered as before until the connections themselves are drained.
    pub leaving: CancellationToken,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            headers: HeaderSet::All,
            default_domain: "default".to_owned(),
            delay_max: Duration::from_secs(5),
            body_bytes_max: 64 << 10,
            batch_bytes_max: 1 << 20,
            batch_calls_max: 1_000,
            body_timeout: Duration::from_secs(10),
            head_timeout: crate::web::HEAD_TIMEOUT,
            leaving: CancellationToken::new(),
        }
    }
}
