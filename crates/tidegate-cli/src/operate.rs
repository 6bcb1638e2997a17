//! `tidegate ban`, `allow`, `bypass`, `shadow`, `top`, `peek` and `reset`: what an operator asks of a
//! running daemon, over its admin address.

mod args;
mod keys;
mod lists;

use serde_json::Value;

use crate::client::{Client, Reply};
use crate::failure::Failure;
use crate::{Answer, output};

pub(crate) use self::args::OperateCommand;
use self::args::{AdminArgs, Switch, SwitchArgs};

/// Does what was asked.
pub(crate) fn run(command: &OperateCommand) -> Result<Answer, Failure> {
    match command {
        OperateCommand::Ban(args) => lists::run(lists::BANS, args),
        OperateCommand::Allow(args) => lists::run(lists::ALLOWED, args),
        OperateCommand::Bypass(args) => switch("/v1/bypass", args, "everything is let through"),
        OperateCommand::Shadow(args) => switch("/v1/shadow", args, "all rules are in shadow"),
        OperateCommand::Top(args) => keys::top(args),
        OperateCommand::Peek(args) => keys::peek(args),
        OperateCommand::Reset(args) => keys::reset(args),
    }
}

/// Whether a switch is on is a question with a yes and a no; switching is always a yes.
fn switch(path: &str, args: &SwitchArgs, meaning: &str) -> Result<Answer, Failure> {
    let client = client(&args.admin)?;
    let reply = match args.switch {
        Switch::Status => client.get(path),
        Switch::On => client.put_json(path, &serde_json::json!({ "on": true })),
        Switch::Off => client.put_json(path, &serde_json::json!({ "on": false })),
    };
    let body = answered(reply)?;
    let is_on = body["on"] == true;
    if args.admin.json {
        output::json(&body)?;
    } else if is_on {
        output::data(&format!("on: {meaning}\n"))?;
    } else {
        output::data("off\n")?;
    }
    warn_of_forgetting(&args.admin, &body);
    Ok(if args.switch == Switch::Status && !is_on { Answer::No } else { Answer::Yes })
}

/// A client of the admin address that was named.
fn client(args: &AdminArgs) -> Result<Client, Failure> {
    let token = match (&args.token, &args.token_file) {
        (Some(token), _) => Some(token.clone()),
        (None, None) => None,
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| {
                Failure::Asked(format!("the token in {} cannot be read: {error}", path.display()))
            })?;
            Some(text.trim().to_owned())
        }
    };
    Ok(Client::new(&args.admin).with_token(token).with_flag("--admin"))
}

/// The body of an answer, where it is one.
fn answered(reply: Result<Reply, crate::client::ClientError>) -> Result<Value, Failure> {
    let reply = reply.map_err(|error| Failure::Asked(error.to_string()))?;
    if (200..300).contains(&reply.status) { Ok(reply.body) } else { Err(refused(&reply)) }
}

/// What the daemon says is wrong.
fn refused(reply: &Reply) -> Failure {
    let detail = output::printable(reply.body["detail"].as_str().unwrap_or("it does not say why"));
    Failure::Asked(match (reply.status, reply.body["field"].as_str()) {
        (401, _) => {
            format!("{detail}; give it with --admin-token-file or TIDEGATE_ADMIN_TOKEN")
        }
        (_, Some(field)) => format!("{}: {detail}", output::printable(field)),
        (_, None) => detail,
    })
}

/// Says so where a change is in force and a restart forgets it.
fn warn_of_forgetting(args: &AdminArgs, body: &Value) {
    match (body["kept"].as_str(), body["warning"].as_str()) {
        _ if args.json => {}
        (_, Some(warning)) => output::complain(&format!("warning: {}", output::printable(warning))),
        (Some("memory"), None) => output::complain(
            "warning: a restart forgets it; a daemon with --state keeps such changes",
        ),
        _ => {}
    }
}
