//! The keys that tokens are verified with: each with the one algorithm that it is used for.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};

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
    /// Public keys are refused. A verifier that takes one for a secret accepts tokens that anybody can make.
    pub fn secret(secret: &[u8]) -> Result<Self, IdentityError> {
        let fail = |why| Err(IdentityError::new("token.keys", Fault::Key(why)));
        if looks_like_a_public_key(secret) {
            return fail("this is a key file, not a secret: load it as PEM or as a key set");
        }
        if secret.len() < TOKEN_SECRET_BYTES_MIN {
            return fail(SHORT_SECRET);
        }
        Ok(Self::new(Algorithm::HS256, DecodingKey::from_secret(secret)))
    }

    /// A public key in a PEM file: RSA for RS256, P-256 for ES256.
    pub fn pem(file: &[u8]) -> Result<Self, IdentityError> {
        public_key(file).map_err(|why| IdentityError::new("token.keys", Fault::Key(why)))
    }

    /// The keys of a JSON web key set that are for HS256, RS256 or ES256 signatures. The others are left out.
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

/// PEM, the formats of SSH, DER (a sequence that fills the file), or a JSON web key.
fn looks_like_a_public_key(secret: &[u8]) -> bool {
    let text = secret.trim_ascii_start();
    let ssh = [&b"ssh-"[..], b"ecdsa-sha2-", b"sk-ssh-"];
    let der = matches!(secret, [0x30, 0x82, high, low, ..]
        if usize::from(u16::from_be_bytes([*high, *low])) + 4 == secret.len())
        || matches!(secret, [0x30, length @ 0x20..=0x7f, ..] if usize::from(*length) + 2 == secret.len())
        || matches!(secret, [0x30, 0x81, length, ..] if usize::from(*length) + 3 == secret.len());
    contains(secret, b"-----BEGIN")
        || ssh.iter().any(|prefix| text.starts_with(prefix))
        || der
        || (text.starts_with(b"{") && contains(text, b"\"kty\""))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
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
    if !for_signatures || jwk.common.key_algorithm.is_some_and(|named| named != own) {
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
            let long_enough = secret.len() >= TOKEN_SECRET_BYTES_MIN;
            long_enough.then(|| TokenKey::new(Algorithm::HS256, key)).ok_or(SHORT_SECRET)?
        }
    };
    Ok(Some(TokenKey { kid: jwk.common.key_id.clone(), ..key }))
}
