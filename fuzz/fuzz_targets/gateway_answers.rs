//! Hands libFuzzer's inputs to the target `gateway_answers`. What it claims is in `crates/tidegate-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::gateway_answers::check(data));
