//! Waiting for a few milliseconds or less, for which timers of the runtime are too coarse.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// From here on a millisecond more or less makes no difference.
const COARSE: Duration = Duration::from_millis(20);

/// Waits for so long, and some tens of microseconds longer: a thread of the runtime's sleeps, of those that may. Where all
/// of them are busy its timer comes first, a millisecond or two later, and no thread sleeps any more.
#[expect(clippy::disallowed_methods, reason = "the thread is one of those that may block")]
pub(crate) async fn pause(time: Duration) {
    if time >= COARSE {
        return sleep(time).await;
    }
    // What has not begun is not done any more where this is dropped.
    let mut sleeping = JoinSet::new();
    let (wanted, is_wanted) = oneshot::channel::<()>();
    let begin = || {
        sleeping.spawn_blocking(move || {
            if !wanted.is_closed() {
                thread::sleep(time);
            }
        });
    };
    // The runtime panics where the system has no thread for it, and has no other way to say so. What it has queued by then
    // is in no set.
    if catch_unwind(AssertUnwindSafe(begin)).is_err() {
        drop(is_wanted);
        return sleep(time).await;
    }
    tokio::select! {
        // That the runtime ends is noticed elsewhere.
        _ended = sleeping.join_next() => {}
        () = sleep(time) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_pause_is_never_shorter_and_mostly_hardly_longer() {
        let mut took = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            pause(Duration::from_micros(200)).await;
            took.push(began.elapsed());
        }
        assert!(took.iter().all(|took| *took >= Duration::from_micros(200)), "{took:?}");
        // A millisecond is what a timer of the runtime would take at the least. Others may have the processor.
        let shortest = took.iter().min();
        assert!(shortest < Some(&Duration::from_millis(1)), "{took:?}");
    }

    #[tokio::test]
    async fn no_time_and_long_times_pass_too() {
        pause(Duration::ZERO).await;
        pause(Duration::from_nanos(1)).await;
        pause(Duration::from_millis(2)).await;
        let began = Instant::now();
        pause(Duration::from_millis(25)).await;
        assert!(began.elapsed() >= Duration::from_millis(25));
    }

    #[test]
    fn where_no_thread_can_be_started_the_runtime_waits_itself() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        // No system has room for such a stack.
        let runtime = builder.enable_time().thread_stack_size(1 << 46).build().expect("a runtime");
        runtime.block_on(async {
            let (began, time) = (Instant::now(), Duration::from_millis(2));
            pause(time).await;
            assert!(began.elapsed() >= time);
        });
    }

    #[test]
    fn where_all_threads_are_busy_nothing_is_left_behind() {
        const PAUSE: Duration = Duration::from_millis(15);
        const PAUSES: u32 = 40;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().expect("a runtime");
        runtime.block_on(async {
            let free = Arc::new(Barrier::new(2));
            let is_free = Arc::clone(&free);
            let busy = tokio::task::spawn_blocking(move || is_free.wait().is_leader());
            for _ in 0..PAUSES {
                pause(PAUSE).await;
            }
            free.wait();
            let _leads = busy.await.expect("it ends");
            let began = Instant::now();
            tokio::task::spawn_blocking(|| {}).await.expect("it runs");
            assert!(began.elapsed() < PAUSE * PAUSES / 2, "{:?}", began.elapsed());
        });
    }
}
