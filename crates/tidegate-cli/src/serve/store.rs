//! What is told on the command line and by variables about a store that nodes share. `tidegate doctor`
//! takes the part of it that says where the store is.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::parser::ValueSource;
use tidegate_server::config::store::{StoreLayer, StoreUrl};
use tidegate_server::config::value::{Consistency, Count, OnStoreFailure, StoreForeignState, Time};

use super::shared::{secret, words};
use crate::failure::Failure;
use crate::output;

/// The variables with secrets. There are no flags for them: every user of a machine sees flags.
const STORE_PASSWORD: &str = "TIDEGATE_STORE_PASSWORD";
const FLEET_SECRET: &str = "TIDEGATE_SECRET";

/// Where the store is, and how it is reached.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreLink {
    /// Where the state of keys lives: `memory`, or a store that nodes share, such as
    /// `redis://host:6379`. Several are groups, among which keys are spread; in the variable they are
    /// separated by spaces [default: memory]
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", help_heading = "Store")]
    // Not parsed here: the message would repeat what is wrong, and with it a password.
    store: Option<Vec<String>>,
    /// The file with the password of the store, for URLs that have none; or the variable
    /// `TIDEGATE_STORE_PASSWORD`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_PASSWORD_FILE", help_heading = "Store")]
    store_password_file: Option<PathBuf>,
    /// Who vouches for a store that is reached by TLS, as PEM; without it, those the system trusts
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CA", help_heading = "Store")]
    store_ca: Option<PathBuf>,
    /// The certificate that is shown to a store by TLS, as PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_CERT", help_heading = "Store")]
    store_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STORE_KEY", help_heading = "Store")]
    store_key: Option<PathBuf>,
}

/// How limits are shared.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    link: StoreLink,
    /// How exactly nodes share a limit, where a rule does not say: `strict` with a shared store, `local`
    /// without
    #[arg(long, env = "TIDEGATE_CONSISTENCY", help_heading = "Store", value_parser = words::<Consistency>(Consistency::WORDS))]
    consistency: Option<Consistency>,
    /// What happens while the store cannot answer, where a rule does not say [default: local]
    #[arg(long, env = "TIDEGATE_ON_STORE_FAILURE", help_heading = "Store", value_parser = words::<OnStoreFailure>(OnStoreFailure::WORDS))]
    on_store_failure: Option<OnStoreFailure>,
    /// Whether to start only where the store is there; `false` starts without it, and goes on with it
    /// when it comes [default: true]
    #[arg(long, env = "TIDEGATE_STORE_REQUIRED", help_heading = "Store", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    store_required: Option<bool>,
    /// How long the store may take for a decision [default: 10ms]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_STORE_DEADLINE", help_heading = "Store")]
    store_deadline: Option<Time>,
    /// How many nodes share the store: what a node divides limits by before it has first reached the store
    /// [default: 1]
    #[arg(long, value_name = "N", env = "TIDEGATE_STORE_NODES", help_heading = "Store")]
    store_nodes: Option<Count>,
    /// What every key in the store begins with [default: t]
    #[arg(long, value_name = "TEXT", env = "TIDEGATE_STORE_PREFIX", help_heading = "Store")]
    store_prefix: Option<String>,
    /// What happens to a key in the store that holds what somebody else wrote [default: reset]
    #[arg(long, env = "TIDEGATE_STORE_FOREIGN_STATE", help_heading = "Store", value_parser = words::<StoreForeignState>(StoreForeignState::WORDS))]
    store_foreign_state: Option<StoreForeignState>,
    /// The file with the secret that keys are hashed with, the same on all nodes; or the variable
    /// `TIDEGATE_SECRET`. A shared store needs one: `openssl rand -hex 32`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_SECRET_FILE", help_heading = "Store")]
    secret_file: Option<PathBuf>,
}

impl StoreLink {
    /// What flags and variables say. `source_of` tells which of the two a value is from.
    pub(crate) fn layer(
        self,
        source_of: impl Fn(&str) -> Option<ValueSource>,
    ) -> Result<StoreLayer, Failure> {
        let from = source_of("store");
        let store = self.store.map(|texts| match from {
            // One variable holds several; no URL has a space in it.
            Some(ValueSource::EnvVariable) => {
                texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect()
            }
            _ => texts,
        });
        let store: Option<Vec<StoreUrl>> = store
            .map(|texts: Vec<String>| texts.iter().map(|text| text.parse()).collect())
            .transpose()
            .map_err(|error| Failure::Asked(format!("--store: {error}")))?;
        let is_seen = from == Some(ValueSource::CommandLine);
        if is_seen && store.iter().flatten().any(StoreUrl::shows_password) {
            output::complain(
                "warning: there is a password in --store, and every user of this machine sees flags: use \
                 --store-password-file or TIDEGATE_STORE_PASSWORD",
            );
        }
        Ok(StoreLayer {
            store,
            store_password_file: self.store_password_file,
            store_password: secret(STORE_PASSWORD)?,
            store_ca: self.store_ca,
            store_cert: self.store_cert,
            store_key: self.store_key,
            ..StoreLayer::default()
        })
    }
}

impl StoreArgs {
    pub(crate) fn layer(
        self,
        source_of: impl Fn(&str) -> Option<ValueSource>,
    ) -> Result<StoreLayer, Failure> {
        Ok(StoreLayer {
            consistency: self.consistency,
            on_store_failure: self.on_store_failure,
            store_required: self.store_required,
            store_deadline: self.store_deadline,
            store_nodes: self.store_nodes,
            store_prefix: self.store_prefix,
            store_foreign_state: self.store_foreign_state,
            secret_file: self.secret_file,
            secret: secret(FLEET_SECRET)?,
            ..self.link.layer(source_of)?
        })
    }
}
