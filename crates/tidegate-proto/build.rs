//! Makes Rust of the files in `proto/`, and the descriptor set that reflection answers from. It needs
//! no `protoc`.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 2] = ["envoy/service/ratelimit/v3/rls.proto", "tidegate/v1/limiter.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Bodies and raw values are shared with the message that they were read from.
    let builder = tonic_prost_build::configure().bytes(".").include_file("packages.rs");
    builder.compile_fds(descriptors)?;
    Ok(())
}
