//! Caddy, with `reverse_proxy` and with `forward_auth`.

use std::process::Command;

use crate::claims::{self, prove};
use crate::process::program;
use crate::stage::Stage;

prove!("caddy", put_on);

/// Without it, each Caddy would listen on one port for its administrator.
const OPTIONS: &str = "{\n\tadmin off\n}\n";

fn put_on(stage: Stage) -> Stage {
    with(stage, "Caddyfile")
}

fn with(mut stage: Stage, name: &str) -> Stage {
    let block = crate::page::block("caddy.md", name);
    let file = stage.write_text("Caddyfile", &format!("{OPTIONS}{block}"));
    let mut command = Command::new(program("caddy"));
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    // It keeps certificates below these, and there are none here.
    command.env("XDG_DATA_HOME", stage.file("data")).env("XDG_CONFIG_HOME", stage.file("data"));
    stage.start_proxy(&mut command);
    stage
}

#[test]
fn the_short_form_refuses_the_same_way() {
    let stage = with(Stage::set("caddy-short"), "Caddyfile.short");
    claims::a_denied_client_sees_all_of_it(&stage);
}

#[test]
fn the_short_form_keeps_clients_from_choosing_too() {
    claims::a_client_cannot_choose_its_rules(&with(
        Stage::set("caddy-short-chosen"),
        "Caddyfile.short",
    ));
    claims::a_client_cannot_be_somebody_else(&with(
        Stage::set("caddy-short-spoofed"),
        "Caddyfile.short",
    ));
}

#[test]
fn the_short_form_is_closed_while_the_daemon_is_dead() {
    let mut stage = with(Stage::set("caddy-short-dead"), "Caddyfile.short");
    stage.kill_daemon();
    assert_eq!(stage.alice().get("/").status, 502);
}
