//! How long a connection over HTTP/2 may go on without a request: hyper bounds that for HTTP/1 alone, and over HTTP/2
//! ends nobody who answers its pings.
//!
//! The frames that pass are followed by their headers, and nothing of them is kept. Two things end a connection: that
//! nothing is under way on it and nothing of an answer was sent for a time, whatever else the client sends; and that a head,
//! or another frame which is no part of a body, has begun and is not complete in that time. A body has times of its own.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::watched::Watch;

/// What a client begins with, in front of all frames.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
/// Where the kind of a frame is in its header.
const KIND_AT: usize = 3;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// Why a connection is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing is under way.
    Idle,
    /// A head has begun and does not end.
    Late,
}

/// What is known of a connection, for whoever serves it, its stream, and its requests.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug)]
struct Known {
    under_way: usize,
    /// Since when nothing is under way, or when something of an answer was last sent.
    quiet_since: Instant,
    /// Since when there is a part of a head.
    part_since: Option<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        let known = Known { under_way: 0, quiet_since: Instant::now(), part_since: None };
        Self { known: Arc::new(Mutex::new(known)) }
    }

    /// Something is under way for as long as what is returned lives.
    pub(super) fn begin(&self) -> UnderWay {
        self.known.lock().under_way += 1;
        UnderWay(self.clone())
    }

    /// Ends when the connection is to.
    pub(super) async fn over(&self, idle_max: Duration, head_max: Duration) -> Over {
        loop {
            let now = Instant::now();
            let (idle, late) = {
                let known = self.known.lock();
                let quiet_since = (known.under_way == 0).then_some(known.quiet_since);
                (
                    quiet_since.map(|since| since + idle_max),
                    known.part_since.map(|since| since + head_max),
                )
            };
            if late.is_some_and(|late| late <= now) {
                return Over::Late;
            }
            if idle.is_some_and(|idle| idle <= now) {
                return Over::Idle;
            }
            // Whatever begins from here on is over later than this.
            let soonest = now + idle_max.min(head_max);
            sleep_until([idle, late].into_iter().flatten().fold(soonest, Instant::min)).await;
        }
    }

    /// Has the time begin anew in which nothing is under way.
    pub(super) fn renew(&self) {
        self.known.lock().quiet_since = Instant::now();
    }

    fn has_part(&self, has_part: bool) {
        self.known.lock().part_since = has_part.then(Instant::now);
    }
}

/// Something that is under way on a connection.
pub(super) struct UnderWay(Pace);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut known = self.0.known.lock();
        known.under_way -= 1;
        known.quiet_since = Instant::now();
    }
}

/// Follows the frames of a connection.
pub(super) struct Follower {
    pace: Pace,
    came: Frames,
    sent: Frames,
    /// Whether there was a part of a head after the last read.
    has_part: bool,
}

impl Follower {
    /// Of a connection of which nothing was read, or is to be read again.
    pub(super) fn new(pace: Pace) -> Self {
        let came = Frames { left: PREFACE_BYTES, ..Frames::default() };
        Self { pace, came, sent: Frames::default(), has_part: false }
    }
}

impl Watch for Follower {
    fn came(&mut self, bytes: &mut [u8]) {
        let followed = self.came.follow(bytes);
        let has_part = self.came.is_in_head();
        // A part of another head than before has its own time.
        if has_part != self.has_part || (has_part && followed.had_none) {
            self.has_part = has_part;
            self.pace.has_part(has_part);
        }
    }

    fn sent(&mut self, parts: &[IoSlice<'_>], mut length: usize) {
        let mut has_data = false;
        for part in parts {
            let bytes = &part[..part.len().min(length)];
            has_data |= self.sent.follow(bytes).has_data;
            length -= bytes.len();
        }
        if has_data {
            self.pace.renew();
        }
    }
}

/// Where in its frames one direction of a connection is.
#[derive(Debug, Default)]
struct Frames {
    /// The header of a frame, as far as it has come.
    header: [u8; HEADER_BYTES],
    header_length: usize,
    /// How many bytes of the frame are to come once its header is there.
    left: usize,
    is_data: bool,
    /// Whether a head goes on in the next frame.
    is_open: bool,
}

/// What some bytes had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Followed {
    has_data: bool,
    /// Whether there was a place in them, or in front of them, at which no head had begun.
    had_none: bool,
}

impl Frames {
    fn follow(&mut self, mut bytes: &[u8]) -> Followed {
        let mut followed = Followed::default();
        while !bytes.is_empty() {
            followed.had_none |= !self.is_in_head();
            if self.left > 0 {
                let part = self.left.min(bytes.len());
                followed.has_data |= self.is_data;
                self.left -= part;
                bytes = &bytes[part..];
                continue;
            }
            let part = (HEADER_BYTES - self.header_length).min(bytes.len());
            self.header[self.header_length..][..part].copy_from_slice(&bytes[..part]);
            self.header_length += part;
            bytes = &bytes[part..];
            if self.header_length == HEADER_BYTES {
                self.begin();
            }
        }
        followed
    }

    /// The header of a frame is there.
    fn begin(&mut self) {
        let [high, middle, low, kind, flags, ..] = self.header;
        self.header_length = 0;
        self.left = u32::from_be_bytes([0, high, middle, low]) as usize;
        self.is_data = kind == DATA;
        if kind == HEADERS || kind == CONTINUATION {
            self.is_open = flags & END_HEADERS == 0;
        }
    }

    /// Whether something has begun that is no part of a body.
    fn is_in_head(&self) -> bool {
        // As long as the kind is not there it may be a part of a body, which has other times, and holds no more than these
        // few bytes.
        let has_begun = self.header_length > KIND_AT && self.header[KIND_AT] != DATA;
        self.is_open || has_begun || (self.left > 0 && !self.is_data)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use tokio::time::sleep;

    use super::*;

    const IDLE_MAX: Duration = Duration::from_secs(10);
    const HEAD_MAX: Duration = Duration::from_secs(5);
    const PING: u8 = 6;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let mut frame = (length as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.resize(HEADER_BYTES + length, b'x');
        frame
    }

    fn read(follower: &mut Follower, bytes: &[u8]) {
        follower.came(&mut bytes.to_vec());
    }

    /// The time in seconds, which is as exact as timers are.
    fn seconds(since: Instant) -> Duration {
        Duration::from_secs(since.elapsed().as_secs())
    }

    /// When a connection is over, and why, where these bytes come with so long after each.
    async fn over(came: &[&[u8]], every: Duration) -> (Over, Duration) {
        let (pace, begun) = (Pace::new(), Instant::now());
        let mut follower = Follower::new(pace.clone());
        read(&mut follower, &[b'x'; PREFACE_BYTES]);
        let mut over = pin!(pace.over(IDLE_MAX, HEAD_MAX));
        for bytes in came {
            read(&mut follower, bytes);
            tokio::select! {
                biased;
                why = over.as_mut() => return (why, seconds(begun)),
                () = sleep(every) => {}
            }
        }
        (over.await, seconds(begun))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_for_nothing_is_idle_whatever_else_it_sends() {
        assert_eq!(over(&[], Duration::ZERO).await, (Over::Idle, IDLE_MAX));
        let ping = frame(PING, 0, 8);
        let pings = [&ping[..]; 100];
        assert_eq!(over(&pings, Duration::from_secs(1)).await, (Over::Idle, IDLE_MAX));
        // A part of a body that belongs to no request is none of a head.
        let data = frame(DATA, 0, 100);
        assert_eq!(over(&[&data[..50]], Duration::ZERO).await, (Over::Idle, IDLE_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_may_be_a_part_of_a_body_is_no_head_wherever_it_is_cut() {
        let (data, ping) = (frame(DATA, 0, 100), frame(PING, 0, 8));
        for cut in 1..data.len() {
            let (pace, begun) = (Pace::new(), Instant::now());
            let (busy, mut follower) = (pace.begin(), Follower::new(pace.clone()));
            read(&mut follower, &[b'x'; PREFACE_BYTES]);
            let mut over = pin!(pace.over(IDLE_MAX, HEAD_MAX));
            read(&mut follower, &data[..cut]);
            assert!(poll!(over.as_mut()).is_pending());
            sleep(HEAD_MAX * 3).await;
            assert!(poll!(over.as_mut()).is_pending(), "{cut}");
            // It has no time of its own, and neither has what follows.
            read(&mut follower, &data[cut..]);
            read(&mut follower, &ping[..ping.len() - 1]);
            sleep(HEAD_MAX / 2).await;
            assert!(poll!(over.as_mut()).is_pending(), "{cut}");
            assert_eq!((over.await, seconds(begun)), (Over::Late, HEAD_MAX * 4), "{cut}");
            drop(busy);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_has_begun_has_to_end_in_time_however_it_comes() {
        let (open, more) = (frame(HEADERS, 0, 8), frame(CONTINUATION, 0, 0));
        for whole in [&open, &frame(HEADERS, END_HEADERS, 8), &frame(PING, 0, 8)] {
            // Before its kind is there it may be a part of a body.
            let (known, rest) = whole[..whole.len() - 1].split_at(KIND_AT + 1);
            let bytes: Vec<&[u8]> = [known].into_iter().chain(rest.chunks(1)).collect();
            let every = Duration::from_millis(500);
            assert_eq!(over(&bytes, every).await, (Over::Late, HEAD_MAX), "{whole:?}");
        }
        let dripping: Vec<&[u8]> = [&open[..]].into_iter().chain([&more[..]; 100]).collect();
        assert_eq!(over(&dripping, Duration::from_secs(1)).await, (Over::Late, HEAD_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn heads_one_after_the_other_have_their_own_times_wherever_reads_cut_them() {
        let heads =
            [frame(HEADERS, 0, 30), frame(CONTINUATION, END_HEADERS, 1)].concat().repeat(200);
        let cut: Vec<&[u8]> = heads.chunks(50).collect();
        let (why, when) = over(&cut, Duration::from_secs(1)).await;
        assert_eq!((why, when), (Over::Idle, IDLE_MAX), "or it would be late before");
        let pace = Pace::new();
        let (_busy, mut follower) = (pace.begin(), Follower::new(pace.clone()));
        read(&mut follower, &[b'x'; PREFACE_BYTES]);
        let mut over = pin!(pace.over(IDLE_MAX, HEAD_MAX));
        for bytes in cut {
            read(&mut follower, bytes);
            assert!(poll!(over.as_mut()).is_pending());
            sleep(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_under_way_or_still_being_sent_keeps_a_connection() {
        let (pace, begun) = (Pace::new(), Instant::now());
        let mut follower = Follower::new(pace.clone());
        let mut over = pin!(pace.over(IDLE_MAX, HEAD_MAX));
        let busy = pace.begin();
        assert!(poll!(over.as_mut()).is_pending());
        sleep(IDLE_MAX * 5).await;
        assert!(poll!(over.as_mut()).is_pending());
        drop(busy);
        sleep(IDLE_MAX / 2).await;
        let data = frame(DATA, 1, 100);
        follower.sent(&[IoSlice::new(&data[..20]), IoSlice::new(&data[20..])], 50);
        sleep(IDLE_MAX / 2).await;
        follower.sent(&[IoSlice::new(&data[50..])], 59);
        // An answer to a ping is no part of an answer.
        sleep(IDLE_MAX / 2).await;
        let ping = frame(PING, 1, 8);
        follower.sent(&[IoSlice::new(&ping)], ping.len());
        assert_eq!((over.await, seconds(begun)), (Over::Idle, IDLE_MAX * 7));
    }
}
