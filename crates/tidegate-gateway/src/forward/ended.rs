//! What a response holds until all of it was sent, or nobody wants the rest: the limiter's lease, the place at
//! the upstream, the connection, and the line of the access log.

use crate::access_log::Entry;
use crate::limit::Ticket;
use crate::upstream::load::Busy;
use crate::upstream::pool::Lent;

/// All of it ends when this is dropped.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "the place and the ticket are there to be dropped")]
pub(crate) struct Ended {
    pub(crate) lent: Option<Lent>,
    pub(crate) busy: Option<Busy>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) entry: Option<Box<Entry>>,
}

impl Ended {
    /// So many bytes of the body were handed on.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(entry) = &mut self.entry {
            entry.sent(bytes);
        }
    }

    /// The body broke off, and with it the response.
    pub(crate) fn broke(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.broke();
        }
    }
}
