//! JSON web tokens: verified, then asked for claims. Nothing is ever taken from one that is not.
//!
//! `jsonwebtoken` takes tokens apart and checks signatures. It also parses the claims `exp`, `nbf`, `sub`, `iss` and
//! `aud`, so a token that has one of them twice is malformed, but judges none of them here: its checks of time read
//! the clock, and those of issuer and audience let a claim of an unexpected type pass.

mod claim;
mod key;
mod key_file;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tidegate_core::{Span, Timestamp};

use crate::attributes::{Attributes, TokenFault};
use crate::error::{Fault, IdentityError};
use crate::fingerprint::Fingerprint;
use crate::source::Source;

pub use claim::Claim;
pub use key::{KEYS_MAX, RSA_BITS_MIN, TOKEN_SECRET_BYTES_MIN, TokenKey};

/// The longest token that is looked at.
pub const TOKEN_BYTES_MAX: usize = 8192;

/// How far clocks may differ at most, as a setting.
pub const LEEWAY_MAX: Span = Span::from_secs(600);

/// How many keys are tried on one token: each try is a signature, and a stranger's tokens cost all of them.
///
/// A token that names a key is tried with the keys of that id, then with those that have none; settings in which that
/// could be more are refused. A token that names no key is tried with the keys without an id, then with the first of
/// the others.
pub const TRIES_MAX: usize = 8;

/// How tokens are found, verified and read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TokenConfig {
    /// Where the token is found.
    pub source: Source,
    /// The keys to verify it with.
    pub keys: Vec<TokenKey>,
    /// The claims that become attributes.
    pub claims: Vec<Claim>,
    /// Whose tokens are accepted (`iss`). Anyone's who has a key, if empty.
    pub issuers: Vec<String>,
    /// For whom tokens are accepted (`aud`): one of these. For anyone, if empty.
    pub audiences: Vec<String>,
    /// How far the issuer's clock may differ from ours: a minute unless said.
    pub leeway: Span,
    /// Whether a token without a time of expiry (`exp`) is refused, as it is unless said.
    pub expiry_required: bool,
}

impl TokenConfig {
    /// Bearer tokens verified with these keys, whose claim `sub` becomes the attribute `user`.
    pub fn new(keys: Vec<TokenKey>) -> Self {
        Self {
            source: Source::Bearer,
            keys,
            claims: vec![Claim::new("user", "sub")],
            issuers: Vec::new(),
            audiences: Vec::new(),
            leeway: Span::MINUTE,
            expiry_required: true,
        }
    }
}

/// Compiled settings.
#[derive(Debug)]
pub(crate) struct Tokens {
    config: TokenConfig,
    /// What `jsonwebtoken` is to check with each key: the key's algorithm, and nothing about claims.
    validations: Vec<Validation>,
}

impl Tokens {
    pub(crate) fn new(config: TokenConfig) -> Result<Self, IdentityError> {
        let fail = |part: &str, fault| Err(IdentityError::new(part, fault));
        if config.keys.is_empty() {
            return fail("token.keys", Fault::NoKeys);
        }
        if config.keys.len() > KEYS_MAX {
            let fault = Fault::TooMany { count: config.keys.len(), max: KEYS_MAX };
            return fail("token.keys", fault);
        }
        let count = tries(&config.keys);
        if count > TRIES_MAX {
            return fail("token.keys", Fault::TooManyTries { count, max: TRIES_MAX });
        }
        if config.leeway > LEEWAY_MAX {
            let (value, max) = (config.leeway.as_secs_ceil(), LEEWAY_MAX.as_secs_ceil());
            let fault = Fault::OutOfRange { value, min: 0, max };
            return fail("token.leeway", fault);
        }
        for (index, claim) in config.claims.iter().enumerate() {
            if claim.path.is_empty() {
                return fail(&format!("token.claims[{index}].path"), Fault::Empty);
            }
        }
        config.source.check().map_err(|fault| IdentityError::new("token.source", fault))?;
        let validations = config.keys.iter().map(signature_only).collect();
        Ok(Self { config, validations })
    }

    pub(crate) fn source(&self) -> &Source {
        &self.config.source
    }

    /// Adds the claims of a token that is valid now.
    pub(crate) fn read(
        &self,
        token: &[u8],
        now: Timestamp,
        fingerprint: &Fingerprint,
        out: &mut Attributes,
    ) -> Result<(), TokenFault> {
        let claims = self.verified(token)?;
        self.check_time(&claims, now)?;
        self.check_parties(&claims)?;
        for claim in &self.config.claims {
            out.push_if(&claim.name, |values| claim.write(&claims, fingerprint, values));
        }
        Ok(())
    }

    /// The claims, if one of the keys signed them.
    fn verified(&self, token: &[u8]) -> Result<Map<String, Value>, TokenFault> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenFault::TooLong);
        }
        let header = decode_header(token).map_err(|error| fault_of_header(error.kind()))?;
        // A token may name extensions that its reader must understand. None is understood here.
        if header.crit.is_some() {
            return Err(TokenFault::Malformed);
        }
        let mut fault = self.no_key_fault(&header);
        for (key, validation) in self.keys_for(&header).take(TRIES_MAX) {
            match decode::<Map<String, Value>>(token, &key.key, validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => fault = fault_of_body(error.kind()),
            }
        }
        Err(fault)
    }

    /// The keys that may have signed a token with this header: those of its algorithm with just its key
    /// id, or none where it has none, and after them those whose id does not speak against it. The header is the
    /// sender's word, so it only narrows the choice: which algorithm a key is used with is the key's own.
    fn keys_for(&self, header: &Header) -> impl Iterator<Item = (&TokenKey, &Validation)> {
        let keys = || self.config.keys.iter().zip(&self.validations);
        let of_algorithm = |key: &TokenKey| key.algorithm == header.alg;
        let exact = keys().filter(move |(key, _)| of_algorithm(key) && key.kid == header.kid);
        let possible = keys().filter(move |(key, _)| {
            of_algorithm(key)
                && key.kid != header.kid
                && (key.kid.is_none() || header.kid.is_none())
        });
        exact.chain(possible)
    }

    /// What is wrong if there is no key for a token with this header.
    fn no_key_fault(&self, header: &Header) -> TokenFault {
        if self.config.keys.iter().any(|key| key.algorithm == header.alg) {
            TokenFault::UnknownKey
        } else {
            TokenFault::Algorithm
        }
    }

    fn check_time(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<(), TokenFault> {
        let time_of =
            |name: &str| claims.get(name).map(|value| time(value).ok_or(TokenFault::Malformed));
        let (expiry, begin) = (time_of("exp").transpose()?, time_of("nbf").transpose()?);
        if expiry.is_none() && self.config.expiry_required {
            return Err(TokenFault::NoExpiry);
        }
        if expiry.is_some_and(|expiry| expiry.plus(self.config.leeway) <= now) {
            return Err(TokenFault::Expired);
        }
        if begin.is_some_and(|begin| begin.minus(self.config.leeway) > now) {
            return Err(TokenFault::NotYet);
        }
        Ok(())
    }

    fn check_parties(&self, claims: &Map<String, Value>) -> Result<(), TokenFault> {
        let TokenConfig { issuers, audiences, .. } = &self.config;
        let is_in = |list: &[String], value: &Value| {
            value.as_str().is_some_and(|text| list.iter().any(|item| item == text))
        };
        let issuer = claims.get("iss");
        if !issuers.is_empty() && !issuer.is_some_and(|issuer| is_in(issuers, issuer)) {
            return Err(TokenFault::Issuer);
        }
        let is_ours = |audience: &Value| match audience {
            Value::Array(several) => several.iter().any(|one| is_in(audiences, one)),
            one => is_in(audiences, one),
        };
        if !audiences.is_empty() && !claims.get("aud").is_some_and(is_ours) {
            return Err(TokenFault::Audience);
        }
        Ok(())
    }
}

/// The most keys that a token which names one may have to be tried with.
fn tries(keys: &[TokenKey]) -> usize {
    let alike = |key: &TokenKey| {
        let fits = |other: &&TokenKey| {
            other.algorithm == key.algorithm && (other.kid.is_none() || other.kid == key.kid)
        };
        keys.iter().filter(fits).count()
    };
    keys.iter().map(alike).max().unwrap_or(0)
}

fn signature_only(key: &TokenKey) -> Validation {
    let mut validation = Validation::new(key.algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

/// An algorithm that the library does not know, `none` for one, is an error of the header's JSON.
fn fault_of_header(kind: &ErrorKind) -> TokenFault {
    match kind {
        ErrorKind::Json(error) if error.is_data() => TokenFault::Algorithm,
        _ => TokenFault::Malformed,
    }
}

fn fault_of_body(kind: &ErrorKind) -> TokenFault {
    match kind {
        ErrorKind::InvalidSignature => TokenFault::Signature,
        ErrorKind::InvalidAlgorithm => TokenFault::Algorithm,
        _ => TokenFault::Malformed,
    }
}

/// A time in whole or broken seconds since 1970. What lies before that is as good as 1970.
fn time(value: &Value) -> Option<Timestamp> {
    let number = value.as_number()?;
    if let Some(seconds) = number.as_u64() {
        return Some(Timestamp::from_secs(seconds));
    }
    let text = number.to_string();
    if text.starts_with('-') {
        return Some(Timestamp::ZERO);
    }
    // With an exponent it is beyond all time, and no whole number stands before the point.
    let whole = text.split('.').next().filter(|_| !text.contains(['e', 'E']))?;
    whole.parse().ok().map(Timestamp::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_numbers_of_seconds() {
        assert_eq!(time(&json!(1_700_000_000)), Some(Timestamp::from_secs(1_700_000_000)));
        let broken: Value = serde_json::from_str("1700000000.75").unwrap();
        assert_eq!(time(&broken), Some(Timestamp::from_secs(1_700_000_000)));
        assert_eq!(time(&json!(-5)), Some(Timestamp::ZERO));
        assert_eq!(time(&json!(u64::MAX)), Some(Timestamp::MAX));
        for value in ["\"1700000000\"", "true", "null", "[]", "1e300", "1.5e300"] {
            assert_eq!(time(&serde_json::from_str(value).unwrap()), None, "{value}");
        }
    }
}
