//! The keys that tokens are verified with: each with the one algorithm that it is used for.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::key_file::{self, contains};
use crate::error::{Fault, IdentityError};

/// How many keys there may be.
pub const KEYS_MAX: usize = 64;

/// The shortest secret for HS256, as RFC 7518 demands: a shorter one can be guessed from any token.
pub const TOKEN_SECRET_BYTES_MIN: usize = 32;

/// The shortest RSA key.
pub const RSA_BITS_MIN: usize = 2048;

/// The bytes of an uncompressed point of the curve P-256.
const P256_POINT_BYTES: usize = 65;

const SHORT_SECRET: &str = "this secret is too short for HS256: use 32 random bytes or more";
const SHORT_RSA: &str = "this RSA key is too short: use 2048 bits or more";
const NOT_P256: &str = "this key is not of the curve P-256, which ES256 needs";

/// A key to verify tokens with.
#[derive(Clone)]
pub struct TokenKey {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: DecodingKey,
}

impl TokenKey {
    /// A secret that the issuer shares, for HS256. All bytes count, a line break at the end too.
    ///
    /// What looks like a public key, in a file of any common format, is refused: a verifier that takes one for a
    /// secret accepts tokens that anybody can make. So is one byte over and over.
    pub fn secret(secret: &[u8]) -> Result<Self, IdentityError> {
        let fail = |why| IdentityError::new("token.keys", Fault::Key(why));
        check_secret(secret).map_err(fail)?;
        Ok(Self::new(Algorithm::HS256, DecodingKey::from_secret(secret)))
    }

    /// A public key in a PEM file: RSA for RS256, P-256 for ES256.
    pub fn pem(file: &[u8]) -> Result<Self, IdentityError> {
        public_key(file).map_err(|why| IdentityError::new("token.keys", Fault::Key(why)))
    }

    /// The keys of a JSON web key set that are for HS256, RS256 or ES256 signatures.
    ///
    /// Left out are keys of other types and curves, those that lack a part which their type needs, and those whose
    /// `use` is not `sig`, whose `alg` is another, or whose `key_ops` does not hold `verify`. A key that is left and is
    /// too short, or whose numbers are not in base64url, makes the whole set an error; so does a part that is no text
    /// where it has to be one.
    pub fn set(document: &[u8]) -> Result<Vec<Self>, IdentityError> {
        let fail = |fault| IdentityError::new("token.keys", fault);
        let set: JwkSet = serde_json::from_slice(document)
            .map_err(|error| fail(Fault::KeySet(error.to_string())))?;
        if set.keys.len() > KEYS_MAX {
            return Err(fail(Fault::TooMany { count: set.keys.len(), max: KEYS_MAX }));
        }
        let mut keys = Vec::new();
        for (index, jwk) in set.keys.iter().enumerate() {
            let part = || format!("token.keys[{index}]");
            let key = of_set(jwk).map_err(|why| IdentityError::new(part(), Fault::Key(why)))?;
            keys.extend(key);
        }
        if keys.is_empty() {
            return Err(fail(Fault::Key("no key of this set is for HS256, RS256 or ES256")));
        }
        Ok(keys)
    }

    /// The key under this key id. Tokens that name another are not verified with it.
    #[must_use]
    pub fn with_kid(self, kid: impl Into<String>) -> Self {
        Self { kid: Some(kid.into()), ..self }
    }

    fn new(algorithm: Algorithm, key: DecodingKey) -> Self {
        Self { kid: None, algorithm, key }
    }
}

impl std::fmt::Debug for TokenKey {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("TokenKey");
        out.field("kid", &self.kid).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

fn check_secret(secret: &[u8]) -> Result<(), &'static str> {
    if key_file::looks_like_one(secret) {
        return Err("this is a key file, not a secret: load it as PEM or as a key set");
    }
    if secret.len() < TOKEN_SECRET_BYTES_MIN {
        return Err(SHORT_SECRET);
    }
    if secret.iter().all(|byte| *byte == secret[0]) {
        return Err("this secret is one byte over and over: use 32 random bytes or more");
    }
    Ok(())
}

fn public_key(file: &[u8]) -> Result<TokenKey, &'static str> {
    if contains(file, b"PRIVATE KEY-----") {
        return Err("this is a private key, which only the issuer needs: give its public key");
    }
    if contains(file, b"-----BEGIN CERTIFICATE-----") {
        return Err("this is a certificate: give its public key (openssl x509 -pubkey -noout)");
    }
    if let Ok(key) = DecodingKey::from_rsa_pem(file) {
        // The number is nearly all of the DER, and the exponent adds less than 256 bits.
        let bytes = key.try_get_as_bytes().map_or(0, <[u8]>::len);
        let long_enough = bytes > RSA_BITS_MIN / 8;
        return long_enough.then(|| TokenKey::new(Algorithm::RS256, key)).ok_or(SHORT_RSA);
    }
    let not_understood =
        "this is no public key in PEM that tokens can be verified with: use RSA or P-256";
    let key = DecodingKey::from_ec_pem(file).map_err(|_| not_understood)?;
    on_p256(key)
}

fn on_p256(key: DecodingKey) -> Result<TokenKey, &'static str> {
    let point = key.try_get_as_bytes().map_err(|_| NOT_P256)?;
    let is_a_point = point.len() == P256_POINT_BYTES && point[0] == 4;
    is_a_point.then(|| TokenKey::new(Algorithm::ES256, key)).ok_or(NOT_P256)
}

/// A key of a set; none if it is for something else.
fn of_set(jwk: &Jwk) -> Result<Option<TokenKey>, &'static str> {
    let own = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => KeyAlgorithm::RS256,
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
            KeyAlgorithm::ES256
        }
        AlgorithmParameters::OctetKey(_) => KeyAlgorithm::HS256,
        _ => return Ok(None),
    };
    let for_signatures = jwk
        .common
        .public_key_use
        .as_ref()
        .is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let operations = jwk.common.key_operations.as_ref();
    let may_verify = operations.is_none_or(|list| list.contains(&KeyOperations::Verify));
    if !for_signatures || !may_verify || jwk.common.key_algorithm.is_some_and(|named| named != own)
    {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(jwk).map_err(|_| "a number of this key is not in base64url")?;
    let key = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) => {
            // Four letters of base64 are three bytes.
            let long_enough = rsa.n.len() * 6 >= RSA_BITS_MIN;
            long_enough.then(|| TokenKey::new(Algorithm::RS256, key)).ok_or(SHORT_RSA)?
        }
        AlgorithmParameters::EllipticCurve(_) => on_p256(key)?,
        _ => {
            let secret = key.try_get_as_bytes().map_err(|_| SHORT_SECRET)?;
            check_secret(secret)?;
            TokenKey::new(Algorithm::HS256, key)
        }
    };
    Ok(Some(TokenKey { kid: jwk.common.key_id.clone(), ..key }))
}
