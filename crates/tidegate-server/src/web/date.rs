//! The time as HTTP writes it in its `Date` header.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use tidegate::Timestamp;

/// Appends the time in whole seconds, which is put into words once in each of them.
pub fn put_date(out: &mut Vec<u8>, now: Timestamp) {
    thread_local! {
        static WORDED: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let secs = now.as_micros() / 1_000_000;
    WORDED.with_borrow_mut(|(at, words)| {
        if *at != secs {
            *at = secs;
            let time = UNIX_EPOCH + Duration::from_secs(secs);
            *words = httpdate::fmt_http_date(time);
        }
        out.extend_from_slice(words.as_bytes());
    });
}
