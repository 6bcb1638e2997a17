//! How attributes are made: plain settings, checked by [`Identity::new`](crate::Identity::new).

use tidegate_rules::attribute::{ATTRIBUTES_MAX, is_attribute_name};
use tidegate_rules::identity::SECRET_BYTES;

use crate::address::AddressConfig;
use crate::client::Proxies;
use crate::country::CountryConfig;
use crate::error::{Fault, IdentityError};
use crate::source::{Extract, Source};
use crate::token::TokenConfig;

/// The longest value of an attribute other than the path. A longer one is shortened: its end becomes
/// the hash of the whole, so that different values stay different.
pub const VALUE_BYTES_MAX: usize = 256;

/// How many places an API key may be looked for in.
pub const API_KEY_SOURCES_MAX: usize = 8;

/// The names of the attributes that need no setting, and of those that have settings of their own.
pub(crate) mod names {
    pub(crate) const IP: &str = "ip";
    pub(crate) const ADDRESS: &str = "address";
    pub(crate) const COUNTRY: &str = "country";
    pub(crate) const ASN: &str = "asn";
    pub(crate) const METHOD: &str = "method";
    pub(crate) const HOST: &str = "host";
    pub(crate) const PATH: &str = "path";
    pub(crate) const API_KEY: &str = "api_key";
    pub(crate) const ALL: [&str; 8] = [IP, ADDRESS, COUNTRY, ASN, METHOD, HOST, PATH, API_KEY];
}

/// How attributes are made from a request.
///
/// As it is made by [`new`](Self::new), it trusts no proxy and takes nothing from a request but its address, method,
/// host and path.
#[derive(Clone)]
#[non_exhaustive]
pub struct IdentityConfig {
    /// What API keys are hashed with. All nodes that share limits need the same.
    pub secret: [u8; SECRET_BYTES],
    /// Which proxies stand in front.
    pub proxies: Proxies,
    /// How wide one client is.
    pub address: AddressConfig,
    /// How tokens are verified, if they are.
    pub token: Option<TokenConfig>,
    /// Where API keys are looked for. A request that has keys in two places has none, and a doubt.
    pub api_key: Vec<Source>,
    /// What else becomes an attribute.
    pub extract: Vec<Extract>,
    /// What says where an address is.
    pub country: CountryConfig,
}

impl IdentityConfig {
    /// Settings that trust nobody.
    pub fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self {
            secret,
            proxies: Proxies::default(),
            address: AddressConfig::default(),
            token: None,
            api_key: Vec::new(),
            extract: Vec::new(),
            country: CountryConfig::default(),
        }
    }

    /// Checks what no part can check alone: names and numbers of attributes.
    pub(crate) fn check(&self) -> Result<(), IdentityError> {
        let mut taken: Vec<&str> = names::ALL.to_vec();
        let claims = self.token.iter().flat_map(|token| token.claims.iter().enumerate());
        let claims = claims.map(|(index, claim)| ("token.claims", index, claim.name.as_str()));
        let extracts = self.extract.iter().enumerate();
        let extracts = extracts.map(|(index, extract)| ("extract", index, extract.name.as_str()));
        for (list, index, name) in claims.chain(extracts) {
            let fail = |fault| Err(IdentityError::new(format!("{list}[{index}].name"), fault));
            if !is_attribute_name(name) {
                return fail(Fault::Name(name.to_owned()));
            }
            if taken.contains(&name) {
                return fail(Fault::NameTwice(name.to_owned()));
            }
            taken.push(name);
        }
        let count = taken.len() - names::ALL.len() + self.own_attributes();
        if count > ATTRIBUTES_MAX {
            let fault = Fault::TooManyAttributes { count, max: ATTRIBUTES_MAX };
            return Err(IdentityError::new("extract", fault));
        }
        at_most("api_key", self.api_key.len(), API_KEY_SOURCES_MAX)?;
        for source in &self.api_key {
            source.check().map_err(|fault| IdentityError::new("api_key", fault))?;
        }
        for (index, extract) in self.extract.iter().enumerate() {
            let part = || format!("extract[{index}].source");
            extract.source.check().map_err(|fault| IdentityError::new(part(), fault))?;
            if extract.source.is_credential() {
                return Err(IdentityError::new(part(), Fault::Credential));
            }
        }
        Ok(())
    }

    /// How many attributes a request may have that are neither claims nor extracted.
    fn own_attributes(&self) -> usize {
        let CountryConfig { table, database, asn_database } = &self.country;
        let optional = [
            self.address.whole,
            !table.is_empty() || database.is_some(),
            asn_database.is_some(),
            !self.api_key.is_empty(),
        ];
        let always = [names::IP, names::METHOD, names::HOST, names::PATH];
        always.len() + optional.iter().filter(|is_there| **is_there).count()
    }
}

impl std::fmt::Debug for IdentityConfig {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdentityConfig")
            .field("proxies", &self.proxies)
            .field("address", &self.address)
            .field("token", &self.token)
            .field("api_key", &self.api_key)
            .field("extract", &self.extract)
            .field("country", &self.country)
            .finish_non_exhaustive()
    }
}

fn at_most(part: &str, count: usize, max: usize) -> Result<(), IdentityError> {
    if count <= max {
        return Ok(());
    }
    Err(IdentityError::new(part, Fault::TooMany { count, max }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;
    use crate::token::{TokenConfig, TokenKey};
    use tidegate_rules::attribute::ATTRIBUTE_CHARS_MAX;

    #[test]
    fn every_attribute_of_its_own_is_read_apart_from_all_others() {
        let reads = names::ALL.map(tidegate_rules::Reads::named);
        for (index, one) in reads.iter().enumerate() {
            let others = reads.iter().enumerate().filter(|(other, _)| *other != index);
            let others =
                others.fold(tidegate_rules::Reads::OTHERS, |all, (_, other)| all.and(*other));
            assert!(!others.any_of(*one), "{}", names::ALL[index]);
        }
    }

    fn fault(extract: Vec<Extract>) -> (String, Fault) {
        let mut config = IdentityConfig::new([1; 16]);
        config.extract = extract;
        let error = Identity::new(config).unwrap_err();
        (error.part().to_owned(), error.fault().clone())
    }

    fn query(name: &str) -> Extract {
        Extract::named(name, Source::Query("q".into()))
    }

    #[test]
    fn two_sources_of_one_attribute_are_refused() {
        let twice = |name: &str| Fault::NameTwice(name.to_owned());
        assert_eq!(fault(vec![query("a"), query("a")]), ("extract[1].name".into(), twice("a")));
        assert_eq!(fault(vec![query("ip")]), ("extract[0].name".into(), twice("ip")));
    }

    #[test]
    fn names_and_sources_must_be_usable() {
        for name in ["", "a b", "ä", "a=b", "a/b", &"x".repeat(ATTRIBUTE_CHARS_MAX + 1)] {
            assert_eq!(fault(vec![query(name)]).1, Fault::Name(name.to_owned()));
        }
        let nameless = Extract::named("a", Source::Cookie(String::new()));
        assert_eq!(fault(vec![nameless]), ("extract[0].source".into(), Fault::Empty));
    }

    #[test]
    fn credentials_do_not_become_attributes_as_they_are() {
        for source in [Source::Bearer, Source::header("authorization").unwrap()] {
            let raw = Extract::named("a", source);
            assert_eq!(fault(vec![raw]), ("extract[0].source".into(), Fault::Credential));
        }
    }

    #[test]
    fn no_request_can_have_more_attributes_than_rules_look_at() {
        let with = |count: usize| {
            let mut config = IdentityConfig::new([1; 16]);
            config.extract = (0..count).map(|index| query(&format!("a{index}"))).collect();
            config
        };
        // Address, method, host and path are always there.
        assert!(Identity::new(with(ATTRIBUTES_MAX - 4)).is_ok());
        let (count, max) = (ATTRIBUTES_MAX + 1, ATTRIBUTES_MAX);
        let too_many = Fault::TooManyAttributes { count, max };
        let refused = |config| assert_eq!(Identity::new(config).unwrap_err().fault(), &too_many);
        refused(with(ATTRIBUTES_MAX - 3));
        let changes: [fn(&mut IdentityConfig); 4] = [
            |config| config.api_key = vec![Source::Bearer],
            |config| config.address.whole = true,
            |config| config.country.table = vec![("10.0.0.0/8".parse().unwrap(), "DE".into())],
            |config| {
                let key = TokenKey::secret(b"an example secret of 32 bytes...").unwrap();
                config.token = Some(TokenConfig::new(vec![key]));
            },
        ];
        for change in changes {
            let mut config = with(ATTRIBUTES_MAX - 4);
            change(&mut config);
            refused(config);
        }
    }

    #[test]
    fn the_secret_does_not_show_in_debug_output() {
        let config = IdentityConfig::new([77; 16]);
        assert!(!format!("{config:?}").contains("77"));
    }
}
