//! One 128-bit word that threads swap in a single step. Nothing here knows what the bits mean.
//!
//! `std` has no 128-bit atomics. On `x86_64` two instructions do it all, written out below because
//! a call through run-time detection costs as much as the decision itself. Elsewhere, and under
//! Miri, `portable-atomic` does it; under shuttle, a mutex stands in for the hardware.

pub(crate) use imp::Word;

#[cfg(all(target_arch = "x86_64", not(miri), not(shuttle)))]
mod imp {
    use std::arch::asm;
    use std::arch::x86_64::__m128i;
    use std::cell::UnsafeCell;

    /// An atomic `u128`. All zero bits are the value 0.
    #[derive(Debug, Default)]
    #[repr(C, align(16))]
    pub(crate) struct Word(UnsafeCell<u128>);

    // SAFETY: all access goes through the atomic instructions below.
    unsafe impl Sync for Word {}

    impl Word {
        /// Whether this processor has the instructions, which all since 2006 do.
        pub(crate) fn is_supported() -> bool {
            std::arch::is_x86_feature_detected!("cmpxchg16b")
        }

        /// The value, in one piece. Acquires what the writer released.
        #[inline]
        pub(crate) fn load(&self) -> u128 {
            if std::arch::is_x86_feature_detected!("avx") {
                self.load_aligned()
            } else {
                // Without AVX no plain load of 16 bytes is promised to be in one piece; an exchange
                // of 0 for 0 always is.
                match self.compare_exchange(0, 0) {
                    Ok(()) => 0,
                    Err(value) => value,
                }
            }
        }

        /// The upper half, in one piece.
        #[inline]
        pub(crate) fn load_high(&self) -> u64 {
            self.load_half::<8>()
        }

        /// An upper half that was loaded before, and the lower one as it is now. It is good enough to
        /// try an exchange with, which then fails, and quicker than [`Word::load`].
        #[inline]
        pub(crate) fn glance_below(&self, high: u64) -> u128 {
            u128::from(high) << 64 | u128::from(self.load_half::<0>())
        }

        #[inline]
        fn load_half<const OFFSET: usize>(&self) -> u64 {
            let half: u64;
            // SAFETY: reads 8 aligned bytes inside the word, which the processor does in one piece.
            unsafe {
                asm!(
                    "mov {half}, qword ptr [{word} + {offset}]",
                    word = in(reg) self.0.get(),
                    half = lateout(reg) half,
                    offset = const OFFSET,
                    options(nostack, preserves_flags),
                );
            }
            half
        }

        #[inline]
        fn load_aligned(&self) -> u128 {
            let value: __m128i;
            // SAFETY: the word is 16-byte aligned, and processors with AVX read 16 aligned bytes in
            // one piece. x86 loads acquire.
            unsafe {
                asm!(
                    "movdqa {value}, xmmword ptr [{word}]",
                    word = in(reg) self.0.get(),
                    value = lateout(xmm_reg) value,
                    options(nostack, preserves_flags),
                );
            }
            // SAFETY: both are 16 bytes without invalid values.
            unsafe { std::mem::transmute::<__m128i, u128>(value) }
        }

        /// Writes `new` if the value is `old`; gives the value back if it is another. Acquires and
        /// releases.
        #[inline]
        pub(crate) fn compare_exchange(&self, old: u128, new: u128) -> Result<(), u128> {
            let swapped: u8;
            let (low, high): (u64, u64);
            // SAFETY: the word is 16-byte aligned, and `Table::new` has checked the instruction.
            // LLVM reserves rbx, so it is saved by hand around the instruction that needs it.
            unsafe {
                asm!(
                    "xchg {new_low}, rbx",
                    "lock cmpxchg16b xmmword ptr [rdi]",
                    "sete r8b",
                    "mov rbx, {new_low}",
                    new_low = inout(reg) new as u64 => _,
                    in("rcx") (new >> 64) as u64,
                    in("rdi") self.0.get(),
                    inout("rax") old as u64 => low,
                    inout("rdx") (old >> 64) as u64 => high,
                    lateout("r8b") swapped,
                    options(nostack),
                );
            }
            if swapped != 0 { Ok(()) } else { Err((u128::from(high) << 64) | u128::from(low)) }
        }
    }
}

#[cfg(all(any(miri, not(target_arch = "x86_64")), not(shuttle)))]
mod imp {
    use portable_atomic::{AtomicU128, Ordering};

    /// An atomic `u128`. All zero bits are the value 0.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct Word(AtomicU128);

    impl Word {
        pub(crate) fn is_supported() -> bool {
            true
        }

        #[inline]
        pub(crate) fn load(&self) -> u128 {
            // ORDERING: pairs with the release of `compare_exchange`.
            self.0.load(Ordering::Acquire)
        }

        #[inline]
        pub(crate) fn load_high(&self) -> u64 {
            (self.load() >> 64) as u64
        }

        #[inline]
        pub(crate) fn glance_below(&self, high: u64) -> u128 {
            u128::from(high) << 64 | u128::from(self.load() as u64)
        }

        #[inline]
        pub(crate) fn compare_exchange(&self, old: u128, new: u128) -> Result<(), u128> {
            // ORDERING: publishes what was written before it, and sees what others published.
            self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
        }
    }
}

#[cfg(shuttle)]
mod imp {
    use shuttle::sync::Mutex;

    /// An atomic `u128` whose every access is a point at which the schedule may change.
    #[derive(Debug, Default)]
    pub(crate) struct Word(Mutex<u128>);

    impl Word {
        pub(crate) fn is_supported() -> bool {
            true
        }

        pub(crate) fn load(&self) -> u128 {
            *self.0.lock().expect("not poisoned")
        }

        #[inline]
        pub(crate) fn load_high(&self) -> u64 {
            (self.load() >> 64) as u64
        }

        /// A load of its own, as on the hardware, so that the halves may be of different moments.
        pub(crate) fn glance_below(&self, high: u64) -> u128 {
            u128::from(high) << 64 | u128::from(self.load() as u64)
        }

        pub(crate) fn compare_exchange(&self, old: u128, new: u128) -> Result<(), u128> {
            let mut value = self.0.lock().expect("not poisoned");
            if *value == old {
                *value = new;
                Ok(())
            } else {
                Err(*value)
            }
        }
    }
}
