//! nginx, with `auth_request`.

use std::process::Command;

use crate::claims::{self, prove};
use crate::process::program;
use crate::stage::Stage;

prove!("nginx", put_on);

/// What Debian's own nginx.conf says around the block of the page, here in a folder of the test.
const AROUND: &str = "
    daemon off;
    pid /etc/tidegate/nginx.pid;
    error_log /etc/tidegate/error.log warn;
    events {}
    http {
        access_log off;
        client_body_temp_path /etc/tidegate/body;
        proxy_temp_path /etc/tidegate/proxy;
        fastcgi_temp_path /etc/tidegate/fastcgi;
        uwsgi_temp_path /etc/tidegate/uwsgi;
        scgi_temp_path /etc/tidegate/scgi;
        include /etc/tidegate/nginx.conf;
    }
";

fn put_on(stage: Stage) -> Stage {
    let block = crate::page::block("nginx.md", "nginx.conf");
    with(stage, &block)
}

pub(crate) fn with(mut stage: Stage, block: &str) -> Stage {
    stage.write_text("nginx.conf", block);
    let around = stage.write_text("around.conf", AROUND);
    let log = stage.file("error.log");
    stage.start_proxy(Command::new(program("nginx")).arg("-e").arg(log).arg("-c").arg(around));
    stage
}

fn error_log(stage: &Stage) -> String {
    std::fs::read_to_string(stage.file("error.log")).expect("an error log")
}

#[test]
fn a_denial_leaves_nothing_in_the_error_log() {
    let stage = on_stage("silent");
    let mut denials = 0;
    while denials < 3 {
        denials += u32::from(stage.alice().post("/login", "").status == 429);
    }
    assert_eq!(error_log(&stage), "");
}

#[test]
fn a_403_of_the_application_stays_one() {
    let stage = on_stage("forbidden");
    let answer = stage.alice().get("/forbidden");
    assert_eq!((answer.status, answer.body.as_str()), (403, "the app got GET /forbidden"));
}

/// In the place of the daemon stands the application, which answers 403 without a word about limits, as a
/// service does that checks passwords.
#[test]
fn a_403_that_is_not_about_limits_stays_one() {
    let block = crate::page::block("nginx.md", "nginx.conf");
    let block = block.replace("server 127.0.0.1:8080", "server 127.0.0.1:9000");
    let block = block.replace("/v1/auth?", "/forbidden?");
    let stage = with(Stage::set("nginx-foreign"), &block);
    let answer = stage.alice().get("/");
    assert_eq!(answer.status, 403, "{answer:#?}");
    assert_eq!(answer.header("retry-after"), None);
}

#[test]
fn connections_to_the_daemon_are_kept() {
    let stage = on_stage("kept");
    let before = stage.ports_that_asked();
    for _ in 0..20 {
        assert_eq!(stage.alice().get("/").status, 200);
    }
    let added = stage.ports_that_asked().difference(&before).count();
    assert!(added <= 2, "{added} connections for 20 requests, one after the other");
}
