//! Several futures at once, each begun after the one before it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// What all of them give, in order. They are polled in order too, so that what they send on one
/// connection arrives in order.
pub(super) async fn in_order<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Option<Pin<Box<F>>>> = futures.map(|one| Some(Box::pin(one))).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_ready = true;
        for (place, done) in waiting.iter_mut().zip(&mut done) {
            if let Some(future) = place {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => (*place, *done) = (None, Some(output)),
                    Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn they_begin_together_and_answer_in_order() {
        let (begun, open) = (RefCell::new(Vec::new()), Cell::new(false));
        let (begun, open) = (&begun, &open);
        let one = |number: usize| async move {
            begun.borrow_mut().push(number);
            // The last one has its answer first.
            poll_fn(|_| if open.get() || number == 2 { Poll::Ready(()) } else { Poll::Pending })
                .await;
            number * 10
        };
        let mut all = pin!(in_order((0..3).map(one)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(all.as_mut().poll(&mut context).is_pending());
        assert_eq!(*begun.borrow(), [0, 1, 2]);
        open.set(true);
        assert_eq!(all.as_mut().poll(&mut context), Poll::Ready(vec![0, 10, 20]));
    }
}
