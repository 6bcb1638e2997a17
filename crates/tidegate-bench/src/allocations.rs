//! Counts what this thread takes from the heap, for figures that promise to take nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// How often `work` takes memory from the heap, in this thread.
pub(crate) fn during(work: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    work();
    TAKEN.get() - before
}

/// The system's allocator, with a count for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no count left, and nobody who would read it.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller keeps the promises of `alloc`, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`, and the system made the block.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller keeps the promises of `realloc`, and the system made the block.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_taken_and_nothing_else() {
        assert_eq!(during(|| drop(std::hint::black_box(Box::new(1)))), 1);
        assert_eq!(during(|| _ = std::hint::black_box([1; 64])), 0);
    }
}
