//! The processor's time stamp counter: the only unsafe code of the clock. Not a clock: it counts
//! from an unknown moment at an unknown pace.

use core::arch::x86_64::{__cpuid, _rdtsc};

/// The leaf that lists power management features, and its bit for a counter that keeps one pace
/// in every power state.
const POWER_LEAF: u32 = 0x8000_0007;
const INVARIANT_TSC_BIT: u32 = 1 << 8;
/// The leaf that says which extended leaf is the last.
const EXTENDED_LEAF: u32 = 0x8000_0000;

/// The counter now.
///
/// Not ordered with the instructions around it: the processor may read it some hundred nanoseconds
/// early. The fence that would order it (and that the system's own clock pays for) triples the time
/// of a decision that misses the cache, so the engine's high-water mark keeps the order instead.
#[inline]
pub(super) fn ticks() -> u64 {
    // SAFETY: `rdtsc` is part of every x86-64 processor and touches no memory. A process that has
    // forbidden itself the instruction (`PR_SET_TSC`) has forbidden itself the system's clock as
    // well, which uses it.
    unsafe { _rdtsc() }
}

/// Whether the processor says that its counter keeps one pace.
pub(super) fn is_invariant() -> bool {
    let last = __cpuid(EXTENDED_LEAF).eax;
    last >= POWER_LEAF && __cpuid(POWER_LEAF).edx & INVARIANT_TSC_BIT != 0
}
