//! What a task waits for beside its work: the end of the process, a time that is over. To ask for these whenever the
//! task is woken takes locks that all connections share. So they wake it through a bell, and are asked where that rang.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A bell of one task.
#[derive(Default)]
pub struct Bell(Option<Arc<Rope>>);

/// What the bell is rung by.
struct Rope {
    is_rung: AtomicBool,
    task: Waker,
}

impl Wake for Rope {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // ORDERING: whoever finds that it was rung finds what was done before, as with any waker.
        self.is_rung.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

impl Bell {
    /// Asks, with what rings this bell, unless it is known that nothing has changed since it was last asked: then the
    /// bell would have been rung. What was ready is asked anew the next time.
    #[inline]
    pub fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        ask: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let is_known = self.0.as_ref().is_some_and(|rope| rope.task.will_wake(context.waker()));
        if is_known && self.is_silent() {
            return Poll::Pending;
        }
        self.ask(context, ask)
    }

    /// Whether those that were asked have nothing new to say; not before they were asked for the first time.
    #[inline]
    pub fn is_silent(&self) -> bool {
        // ORDERING: as in `Rope`.
        self.0.as_ref().is_some_and(|rope| !rope.is_rung.load(Ordering::Acquire))
    }

    #[cold]
    fn ask<T>(
        &mut self,
        context: &mut Context<'_>,
        ask: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let rope =
            Arc::new(Rope { is_rung: AtomicBool::new(false), task: context.waker().clone() });
        let waker = Waker::from(Arc::clone(&rope));
        let asked = ask(&mut Context::from_waker(&waker));
        self.0 = asked.is_pending().then_some(rope);
        asked
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell").field("is_silent", &self.is_silent()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_who_rang_is_asked_again() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut context = Context::from_waker(&waker);
        let (mut bell, mut asked, mut given) = (Bell::default(), 0, None);
        let mut poll = |bell: &mut Bell, context: &mut Context<'_>, is_ready: bool| {
            let polled = bell.poll(context, |context| {
                asked += 1;
                given = Some(context.waker().clone());
                if is_ready { Poll::Ready(()) } else { Poll::Pending }
            });
            (polled.is_ready(), asked, given.clone())
        };
        assert!(!bell.is_silent(), "nobody was asked");
        let (_, _, given) = poll(&mut bell, &mut context, false);
        assert!(bell.is_silent());
        assert!(matches!(poll(&mut bell, &mut context, true), (false, 1, _)), "nobody rang");
        given.unwrap().wake();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(!bell.is_silent());
        assert!(matches!(poll(&mut bell, &mut context, false), (false, 2, _)));
        let other = Waker::from(Arc::new(Task::default()));
        let mut other = Context::from_waker(&other);
        assert!(matches!(poll(&mut bell, &mut other, true), (true, 3, _)), "another task");
        assert!(matches!(poll(&mut bell, &mut other, false), (false, 4, _)), "it was ready");
    }
}
