//! The connections to the daemon.

use std::sync::atomic::{AtomicUsize, Ordering};

use tonic::transport::{Channel, Endpoint};

/// Connections that calls take turns on.
#[derive(Debug)]
pub(crate) struct Pool {
    channels: Vec<Channel>,
    next: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(endpoint: &Endpoint, connections: usize) -> Self {
        let channels = (0..connections).map(|_| endpoint.connect_lazy()).collect();
        Self { channels, next: AtomicUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    pub(crate) fn channel(&self) -> Channel {
        // ORDERING: it does not matter who gets which.
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.channels[next % self.channels.len()].clone()
    }
}
