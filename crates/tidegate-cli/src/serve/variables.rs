//! Variables that look like settings and are none. They are told and not refused: a cluster puts
//! variables of its own beside ours, such as `TIDEGATE_SERVICE_HOST` for a service of that name.

use tidegate_rules::document::closest;

use crate::args;
use crate::output::printable;

const PREFIX: &str = "TIDEGATE_";

/// A warning for each variable whose name is nearly that of a setting.
pub(crate) fn misspelled() -> Vec<String> {
    let known = known();
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut warnings: Vec<String> = names.filter_map(|name| warning(&name, &known)).collect();
    warnings.sort();
    warnings
}

fn warning(name: &str, known: &[String]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?.to_ascii_lowercase();
    if known.contains(&rest) {
        return None;
    }
    let meant = closest(&rest, known.iter().map(String::as_str))?.to_ascii_uppercase();
    let name = printable(name);
    Some(format!("warning: the variable {name} is no setting: did you mean {PREFIX}{meant}?"))
}

/// The names behind the prefix, of every command, in small letters.
fn known() -> Vec<String> {
    let command = args::command();
    let variables = command.get_subcommands().flat_map(clap::Command::get_arguments);
    let variables = variables.filter_map(|arg| arg.get_env()?.to_str()?.strip_prefix(PREFIX));
    let mut known: Vec<String> = variables.map(str::to_ascii_lowercase).collect();
    known.extend(["admin_token", "resp_password", "secret", "store_password"].map(str::to_owned));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_with_what_was_meant() {
        let known = known();
        let expected =
            "warning: the variable TIDEGATE_HTPP is no setting: did you mean TIDEGATE_HTTP?";
        assert_eq!(warning("TIDEGATE_HTPP", &known).as_deref(), Some(expected));
    }

    #[test]
    fn settings_and_the_variables_of_clusters_are_not_told() {
        let known = known();
        for name in [
            "TIDEGATE_HTTP",
            "TIDEGATE_ADMIN_TOKEN",
            "TIDEGATE_SERVICE_HOST",
            "TIDEGATE_SERVICE_PORT",
            "TIDEGATE_PORT",
            "TIDEGATE_PORT_8080_TCP",
            "PATH",
        ] {
            assert_eq!(warning(name, &known), None, "{name}");
        }
    }
}
