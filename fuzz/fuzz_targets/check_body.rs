//! Hands libFuzzer's inputs to the target `check_body`. What it claims is in `crates/tidegate-fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tidegate_fuzz::check_body::check(data));
