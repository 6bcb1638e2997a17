//! The block of cache lines under the table: allocated once, zeroed, never resized.

use crate::word::Word;

/// One cache line of four words.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [Word; Line::WORDS]);

impl Line {
    pub(crate) const WORDS: usize = 4;
}

/// A fixed number of lines, all zero at first.
#[derive(Debug)]
pub(crate) struct Lines(imp::Block);

impl Lines {
    /// So many lines; `None` where the memory is not to be had.
    pub(crate) fn zeroed(count: usize) -> Option<Self> {
        imp::Block::zeroed(count).map(Self)
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Line] {
        self.0.as_slice()
    }

    /// Asks the processor to fetch a line that will be needed soon.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let line = self.as_slice().as_ptr().wrapping_add(index);
            // SAFETY: a prefetch of any address is a hint without effect on the program.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let _ = index;
    }
}

#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
mod imp {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    use super::Line;

    /// What the kernel can map with one entry of its page table. Random access to a large table of
    /// small pages spends more time on looking up pages than on the lines.
    const HUGE_PAGE_BYTES: usize = 2 << 20;
    /// Below this the processor's own list of small pages reaches far enough, and a table that is
    /// hardly used stays small, since pages are only taken when they are touched.
    const HUGE_FROM_BYTES: usize = 16 << 20;

    /// Memory straight from the kernel: zeroed, and not there before it is touched.
    #[derive(Debug)]
    pub(super) struct Block {
        mapping: NonNull<libc::c_void>,
        mapping_bytes: usize,
        start: NonNull<Line>,
        count: usize,
    }

    // SAFETY: the block is plain memory whose words are only touched atomically.
    unsafe impl Send for Block {}
    // SAFETY: as above.
    unsafe impl Sync for Block {}

    impl Block {
        pub(super) fn zeroed(count: usize) -> Option<Self> {
            let lines = Layout::array::<Line>(count.max(1)).ok()?;
            let huge = lines.size() >= HUGE_FROM_BYTES;
            let mapping_bytes = lines.size() + if huge { HUGE_PAGE_BYTES } else { 0 };
            // SAFETY: a new private mapping at an address of the kernel's choice.
            let mapping = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    mapping_bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            if mapping == libc::MAP_FAILED {
                return None;
            }
            let mapping = NonNull::new(mapping)?;
            let slack = if huge { mapping.as_ptr().align_offset(HUGE_PAGE_BYTES) } else { 0 };
            // SAFETY: `slack` is below one huge page, which the mapping is longer than the lines.
            let start = unsafe { mapping.byte_add(slack) };
            if huge {
                // SAFETY: the range is ours and page-aligned. It is advice: an error changes nothing.
                unsafe { libc::madvise(start.as_ptr(), lines.size(), libc::MADV_HUGEPAGE) };
            }
            Some(Self { mapping, mapping_bytes, start: start.cast(), count })
        }

        #[inline]
        pub(super) fn as_slice(&self) -> &[Line] {
            // SAFETY: `count` lines lie at `start`, and zero bits are valid words.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: mapped in `zeroed` with this address and length, and nobody borrows it.
            unsafe { libc::munmap(self.mapping.as_ptr(), self.mapping_bytes) };
        }
    }
}

#[cfg(any(not(target_os = "linux"), miri, shuttle))]
mod imp {
    use super::Line;

    #[derive(Debug)]
    pub(super) struct Block(Box<[Line]>);

    impl Block {
        #[expect(clippy::unnecessary_wraps, reason = "where the kernel is asked, it can refuse")]
        pub(super) fn zeroed(count: usize) -> Option<Self> {
            Some(Self((0..count).map(|_| Line::default()).collect()))
        }

        #[inline]
        pub(super) fn as_slice(&self) -> &[Line] {
            &self.0
        }
    }
}
