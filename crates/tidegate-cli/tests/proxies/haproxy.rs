//! `HAProxy`, with the script in `deploy/haproxy`.

use std::path::Path;
use std::process::Command;

use crate::claims::{self, prove};
use crate::process::program;
use crate::stage::Stage;

prove!("haproxy", put_on);

fn put_on(mut stage: Stage) -> Stage {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/haproxy/tidegate.lua");
    std::fs::copy(script, stage.file("tidegate.lua")).expect("the script");
    let file = stage.write("haproxy.md", "haproxy.cfg");
    stage.start_proxy(Command::new(program("haproxy")).arg("-db").arg("-f").arg(file));
    stage
}

#[test]
fn what_was_said_of_one_request_is_not_said_of_the_next() {
    let mut stage = on_stage("next");
    let mut connection = stage.alice().connect().expect("a connection");
    let mut log_in = || connection.send("POST", "/login", &[], "").expect("an answer");
    let first = log_in();
    assert_eq!(first.header("x-ratelimit-remaining"), Some("2"), "{first:#?}");
    stage.kill_daemon();
    let second = log_in();
    assert_eq!((second.status, second.header("ratelimit")), (200, None), "{second:#?}");
}
