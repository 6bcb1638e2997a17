//! Claims about the library. They are one program, as linking many takes long.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod clock;
mod descriptors;
mod giving_back;
mod limiter;
mod reload;
mod ruled;
mod rules;
mod same_answers;
mod served;
mod shared_at_hand;
mod shared_deadline;
mod shared_numbers;
mod shared_terms;
mod told;
mod used_again;
