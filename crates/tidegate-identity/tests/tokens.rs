//! Tokens: which are believed, and that nothing is taken from the others. Keys are made when the tests
//! run, so that none lies in the repository.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_core::{Span, Timestamp};
use tidegate_identity::token::{KEYS_MAX, TOKEN_BYTES_MAX, TRIES_MAX};
use tidegate_identity::{
    Attributes, Claim, Fault, Identity, IdentityConfig, IdentityError, RequestParts, Source, Token,
    TokenConfig, TokenFault, TokenKey,
};

const NOW: u64 = 1_700_000_000;
const SECRET: &[u8; 32] = b"an example secret of 32 bytes...";

/// A key pair: one half signs, the other is a file.
struct Pair {
    algorithm: Algorithm,
    signing: EncodingKey,
    public_pem: String,
}

static RSA: LazyLock<Pair> = LazyLock::new(rsa);
static OTHER_RSA: LazyLock<Pair> = LazyLock::new(rsa);
static EC: LazyLock<Pair> = LazyLock::new(|| ec(&ECDSA_P256_SHA256_FIXED_SIGNING));

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<_> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line)).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn rsa() -> Pair {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let private = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("a private key");
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).expect("a public key");
    let private = pem("PRIVATE KEY", private.as_ref());
    Pair {
        algorithm: Algorithm::RS256,
        signing: EncodingKey::from_rsa_pem(private.as_bytes()).expect("a key"),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn ec(curve: &'static EcdsaSigningAlgorithm) -> Pair {
    let pair = EcdsaKeyPair::generate(curve).expect("a key");
    let public = AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).expect("a public key");
    Pair {
        algorithm: Algorithm::ES256,
        signing: EncodingKey::from_ec_der(pair.to_pkcs8v1().expect("a private key").as_ref()),
        public_pem: pem("PUBLIC KEY", public.as_ref()),
    }
}

fn secret_key() -> TokenKey {
    TokenKey::secret(SECRET).expect("a key")
}

fn pem_key(pair: &Pair) -> TokenKey {
    TokenKey::pem(pair.public_pem.as_bytes()).expect("a key")
}

fn claims() -> Value {
    json!({"sub": "ann", "exp": NOW + 300, "https://example.com/plan": "pro", "org": {"id": 7}})
}

fn signed(algorithm: Algorithm, key: &EncodingKey, kid: Option<&str>, claims: &Value) -> String {
    let mut header = Header::new(algorithm);
    header.kid = kid.map(str::to_owned);
    encode(&header, claims, key).expect("a token")
}

fn hs256(claims: &Value) -> String {
    signed(Algorithm::HS256, &EncodingKey::from_secret(SECRET), None, claims)
}

fn by(pair: &Pair, kid: Option<&str>) -> String {
    signed(pair.algorithm, &pair.signing, kid, &claims())
}

/// A token of these parts as they are, signed with nothing.
fn raw(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

fn configured(token: TokenConfig) -> Result<Identity, IdentityError> {
    let mut config = IdentityConfig::new([1; 16]);
    config.token = Some(token);
    Identity::new(config)
}

/// What became of the token, and the attributes that came from it.
fn outcome_with(token: TokenConfig, text: &str) -> (Token, String) {
    let mut token = token;
    token.claims = vec![
        Claim::new("user", "sub"),
        Claim::new("plan", "https://example.com/plan"),
        Claim::new("org", "org.id"),
    ];
    let identity = configured(token).expect("settings");
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_bytes(format!("Bearer {text}").as_bytes()).expect("a value");
    headers.insert("authorization", value);
    let request = RequestParts::new(None, b"GET", b"/", &headers);
    let mut out = Attributes::new();
    identity.attributes(&request, Timestamp::from_secs(NOW), &mut out);
    let found = out.iter().filter(|item| !matches!(item.name, "method" | "path"));
    let found = found.map(|item| format!("{}={}", item.name, String::from_utf8_lossy(item.value)));
    (out.token(), found.collect::<Vec<_>>().join(" "))
}

fn outcome(keys: Vec<TokenKey>, text: &str) -> (Token, String) {
    outcome_with(TokenConfig::new(keys), text)
}

fn believed() -> (Token, String) {
    (Token::Valid, "user=ann plan=pro org=7".to_owned())
}

fn refused(fault: TokenFault) -> (Token, String) {
    (Token::Invalid(fault), String::new())
}

#[test]
fn tokens_of_the_three_algorithms_are_believed() {
    assert_eq!(outcome(vec![secret_key()], &hs256(&claims())), believed());
    assert_eq!(outcome(vec![pem_key(&RSA)], &by(&RSA, None)), believed());
    assert_eq!(outcome(vec![pem_key(&EC)], &by(&EC, None)), believed());
}

#[test]
fn a_token_signed_by_another_is_not_believed() {
    assert_eq!(outcome(vec![pem_key(&OTHER_RSA)], &by(&RSA, None)), refused(TokenFault::Signature));
    let other = EncodingKey::from_secret(b"another secret of 32 bytes......");
    let token = signed(Algorithm::HS256, &other, None, &claims());
    assert_eq!(outcome(vec![secret_key()], &token), refused(TokenFault::Signature));
}

#[test]
fn changed_claims_are_not_believed() {
    let token = hs256(&claims());
    let mut parts: Vec<_> = token.split('.').collect();
    let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "root", "exp": NOW + 300}).to_string());
    parts[1] = &forged;
    assert_eq!(outcome(vec![secret_key()], &parts.join(".")), refused(TokenFault::Signature));
}

#[test]
fn unsigned_tokens_are_not_believed() {
    for name in ["none", "None", "NONE", "nOnE", ""] {
        for signature in ["", "AAAA"] {
            let token = raw(&json!({"alg": name, "typ": "JWT"}), &claims(), signature);
            assert_eq!(
                outcome(vec![secret_key()], &token),
                refused(TokenFault::Algorithm),
                "{name}"
            );
        }
    }
    let token = raw(&json!({"alg": "HS256"}), &claims(), "");
    assert_eq!(outcome(vec![secret_key()], &token), refused(TokenFault::Signature));
}

/// The base64 of a PEM file.
fn without_armour(pair: &Pair) -> String {
    let lines = pair.public_pem.lines().filter(|line| !line.starts_with('-'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_secret_has_more_than_one_byte_to_it() {
    assert!(TokenKey::secret(&[0; 64]).is_err());
    assert!(TokenKey::secret(&[b'x'; 32]).is_err());
    let set = json!({"keys": [{"kty": "oct", "k": URL_SAFE_NO_PAD.encode([0; 64])}]});
    assert!(TokenKey::set(set.to_string().as_bytes()).is_err());
    // Random bytes in base64 or hexadecimal are what people use.
    let random = STANDARD.encode(b"\x30\x82 begins as DER, and its length is not that of DER");
    assert!(TokenKey::secret(random.as_bytes()).is_ok());
    assert!(TokenKey::secret(b"0123456789abcdef0123456789abcdef").is_ok());
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    // The well-known confusion: a token of HS256 whose secret is the text of the RSA public key.
    let confused = EncodingKey::from_secret(RSA.public_pem.as_bytes());
    let token = signed(Algorithm::HS256, &confused, None, &claims());
    assert_eq!(outcome(vec![pem_key(&RSA)], &token), refused(TokenFault::Algorithm));
    assert_eq!(outcome(vec![pem_key(&RSA), secret_key()], &token), refused(TokenFault::Signature));
    let der = STANDARD
        .decode(RSA.public_pem.lines().filter(|line| !line.starts_with('-')).collect::<String>());
    let ec_der = STANDARD
        .decode(EC.public_pem.lines().filter(|line| !line.starts_with('-')).collect::<String>());
    for file in [
        RSA.public_pem.clone().into_bytes(),
        format!("\n{}", EC.public_pem).into_bytes(),
        der.expect("DER"),
        ec_der.expect("DER"),
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample someone@example".to_vec(),
        br#"{"kty": "RSA", "n": "0000000000000000000000", "e": "AQAB"}"#.to_vec(),
        br#"[{"kty": "RSA", "n": "0000000000000000000000", "e": "AQAB"}]"#.to_vec(),
        b"\xef\xbb\xbf{\"kty\": \"RSA\", \"n\": \"0000000000000000000000\", \"e\": \"AQAB\"}"
            .to_vec(),
        b"---- BEGIN SSH2 PUBLIC KEY ----\nAAAAC3NzaC1lZDI1NTE5\n---- END SSH2 PUBLIC KEY ----"
            .to_vec(),
        b"AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_vec(),
        without_armour(&RSA).into_bytes(),
        without_armour(&EC).into_bytes(),
        without_armour(&EC)
            .replace('+', "-")
            .replace('/', "_")
            .replace(['=', '\n'], "")
            .into_bytes(),
    ] {
        let error = TokenKey::secret(&file).expect_err("a public key is no secret");
        assert_eq!(error.part(), "token.keys");
    }
}

#[test]
fn the_key_says_the_algorithm_and_no_other_is_accepted() {
    let secret = EncodingKey::from_secret(SECRET);
    for algorithm in [Algorithm::HS384, Algorithm::HS512] {
        let token = signed(algorithm, &secret, None, &claims());
        assert_eq!(outcome(vec![secret_key()], &token), refused(TokenFault::Algorithm));
    }
    for algorithm in [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256] {
        let token = signed(algorithm, &RSA.signing, None, &claims());
        assert_eq!(outcome(vec![pem_key(&RSA)], &token), refused(TokenFault::Algorithm));
    }
}

#[test]
fn a_key_id_chooses_among_keys() {
    let keys = || vec![pem_key(&OTHER_RSA).with_kid("old"), pem_key(&RSA).with_kid("new")];
    assert_eq!(outcome(keys(), &by(&RSA, Some("new"))), believed());
    assert_eq!(outcome(keys(), &by(&RSA, Some("old"))), refused(TokenFault::Signature));
    assert_eq!(outcome(keys(), &by(&RSA, Some("third"))), refused(TokenFault::UnknownKey));
    // Without an id in the token, or in the key, all that may fit are tried.
    assert_eq!(outcome(keys(), &by(&RSA, None)), believed());
    assert_eq!(outcome(vec![pem_key(&RSA)], &by(&RSA, Some("any"))), believed());
}

/// Different keys of HS256.
fn secrets(count: usize) -> Vec<TokenKey> {
    let secret = |index| format!("some other secret of many bytes {index}");
    (0..count).map(|index| TokenKey::secret(secret(index).as_bytes()).expect("a key")).collect()
}

#[test]
fn the_key_that_a_token_names_is_tried_before_others() {
    let mut keys = secrets(TRIES_MAX - 1);
    keys.push(secret_key().with_kid("mine"));
    let named =
        signed(Algorithm::HS256, &EncodingKey::from_secret(SECRET), Some("mine"), &claims());
    assert_eq!(outcome(keys.clone(), &named), believed());
    assert_eq!(outcome(keys, &hs256(&claims())), believed());
    // Any number of keys with ids of their own stand before it.
    let others = secrets(KEYS_MAX - 1).into_iter().enumerate();
    let mut keys: Vec<_> = others.map(|(index, key)| key.with_kid(index.to_string())).collect();
    keys.push(secret_key());
    assert_eq!(outcome(keys.clone(), &named), believed());
    // The key without an id goes first on a token without one.
    assert_eq!(outcome(keys, &hs256(&claims())), believed());
}

#[test]
fn more_keys_that_nothing_tells_apart_than_are_tried_are_refused() {
    let count = |keys| {
        configured(TokenConfig::new(keys)).map(drop).map_err(|error| {
            assert_eq!(error.part(), "token.keys");
            error.fault().clone()
        })
    };
    let too_many = Err(Fault::TooManyTries { count: TRIES_MAX + 1, max: TRIES_MAX });
    assert_eq!(count(secrets(TRIES_MAX)), Ok(()));
    assert_eq!(count(secrets(TRIES_MAX + 1)), too_many);
    let mut keys = secrets(TRIES_MAX);
    keys.push(secret_key().with_kid("mine"));
    assert_eq!(count(keys), too_many);
    let mut keys = secrets(TRIES_MAX);
    keys.push(pem_key(&RSA).with_kid("of another algorithm"));
    assert_eq!(count(keys), Ok(()));
}

#[test]
fn a_token_with_a_claim_twice_is_malformed() {
    let key = EncodingKey::from_secret(SECRET);
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
    let body = format!(r#"{{"sub":"ann","sub":"bob","exp":{}}}"#, NOW + 300);
    let message = format!("{head}.{}", URL_SAFE_NO_PAD.encode(body));
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
    let token = format!("{message}.{}", signature.expect("a signature"));
    assert_eq!(outcome(vec![secret_key()], &token), refused(TokenFault::Malformed));
}

#[test]
fn keys_come_from_a_key_set() {
    let jwk = |pair: &Pair, kid: &str| {
        let mut jwk = Jwk::from_encoding_key(&pair.signing, pair.algorithm).expect("a key");
        jwk.common.key_id = Some(kid.to_owned());
        serde_json::to_value(jwk).expect("JSON")
    };
    let mut encryption = jwk(&OTHER_RSA, "rsa");
    encryption["use"] = json!("enc");
    let mut other_algorithm = jwk(&OTHER_RSA, "rsa");
    other_algorithm["alg"] = json!("PS256");
    let mut signing_only = jwk(&OTHER_RSA, "rsa");
    signing_only["key_ops"] = json!(["sign", "encrypt"]);
    let mut verifying = jwk(&RSA, "rsa");
    verifying["key_ops"] = json!(["verify"]);
    let set = json!({"keys": [
        encryption,
        signing_only,
        other_algorithm,
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kid": "ed"},
        {"kty": "new", "kid": "unknown type"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "without numbers"},
        verifying,
        jwk(&EC, "ec"),
        {"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET), "kid": "shared"},
    ]});
    let keys = || TokenKey::set(set.to_string().as_bytes()).expect("a set");
    assert_eq!(keys().len(), 3);
    assert_eq!(outcome(keys(), &by(&RSA, Some("rsa"))), believed());
    assert_eq!(outcome(keys(), &by(&EC, Some("ec"))), believed());
    assert_eq!(outcome(keys(), &hs256(&claims())), believed());
    assert_eq!(outcome(keys(), &by(&OTHER_RSA, Some("rsa"))), refused(TokenFault::Signature));
}

#[test]
fn key_sets_that_cannot_be_used_are_refused_with_the_place() {
    let part =
        |text: &str| TokenKey::set(text.as_bytes()).expect_err("a bad set").part().to_owned();
    assert_eq!(part("not json"), "token.keys");
    assert_eq!(part(r#"{"keys": []}"#), "token.keys");
    assert_eq!(part(r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AA"}]}"#), "token.keys");
    assert_eq!(part(r#"{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}"#), "token.keys[0]");
    assert_eq!(part(r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}"#), "token.keys[0]");
    assert_eq!(
        part(r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}"#),
        "token.keys[0]"
    );
}

#[test]
fn key_files_that_cannot_be_used_are_refused() {
    let p384 = ec(&ECDSA_P384_SHA384_FIXED_SIGNING).public_pem;
    let private = pem("PRIVATE KEY", &[0x30, 0]);
    let certificate = pem("CERTIFICATE", &[0x30, 0]);
    for file in [p384.as_str(), &private, &certificate, "", "-----BEGIN PUBLIC KEY-----", "text"] {
        assert!(TokenKey::pem(file.as_bytes()).is_err(), "{file}");
    }
    assert!(TokenKey::secret(b"short").is_err());
    assert!(configured(TokenConfig::new(Vec::new())).is_err());
}

#[test]
fn times_are_checked_against_now_with_leeway() {
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        outcome(vec![secret_key()], &hs256(&claims))
    };
    // 60 seconds of leeway: the last second that is accepted, and the first that is not.
    assert_eq!(with("exp", json!(NOW - 59)), believed());
    assert_eq!(with("exp", json!(NOW - 60)), refused(TokenFault::Expired));
    assert_eq!(with("exp", json!(0)), refused(TokenFault::Expired));
    assert_eq!(with("nbf", json!(NOW + 60)), believed());
    assert_eq!(with("nbf", json!(NOW + 61)), refused(TokenFault::NotYet));
    for odd in [json!("tomorrow"), json!(null), json!([NOW + 300])] {
        assert_eq!(with("exp", odd.clone()), refused(TokenFault::Malformed));
        assert_eq!(with("nbf", odd), refused(TokenFault::Malformed));
    }
}

#[test]
fn the_leeway_and_the_need_of_an_expiry_can_be_set() {
    let mut strict = TokenConfig::new(vec![secret_key()]);
    strict.leeway = Span::ZERO;
    let expired = hs256(&json!({"sub": "ann", "exp": NOW}));
    assert_eq!(outcome_with(strict, &expired), refused(TokenFault::Expired));
    let eternal = hs256(&json!({"sub": "ann"}));
    assert_eq!(outcome(vec![secret_key()], &eternal), refused(TokenFault::NoExpiry));
    let mut easy = TokenConfig::new(vec![secret_key()]);
    easy.expiry_required = false;
    assert_eq!(outcome_with(easy, &eternal), (Token::Valid, "user=ann".into()));
    let mut endless = TokenConfig::new(vec![secret_key()]);
    endless.leeway = Span::HOUR;
    assert_eq!(configured(endless).expect_err("too much").part(), "token.leeway");
}

#[test]
fn issuer_and_audience_are_checked_where_they_are_set() {
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims["iss"] = json!("https://issuer.example");
        claims["aud"] = json!(["other", "api"]);
        claims[name] = value;
        let mut token = TokenConfig::new(vec![secret_key()]);
        token.issuers = vec!["https://issuer.example".into()];
        token.audiences = vec!["api".into(), "web".into()];
        outcome_with(token, &hs256(&claims))
    };
    assert_eq!(with("aud", json!("web")), believed());
    assert_eq!(with("iss", json!("https://issuer.example")), believed());
    for odd in [json!("https://other.example"), json!(null), json!(7), json!({}), json!(["x"])] {
        assert_eq!(with("iss", odd.clone()), refused(TokenFault::Issuer), "{odd}");
        assert_eq!(with("aud", odd.clone()), refused(TokenFault::Audience), "{odd}");
    }
}

#[test]
fn a_token_that_is_none_or_asks_for_too_much_is_refused() {
    for text in ["x", "a.b", "a.b.c", "a.b.c.d", "...", "\u{e4}.b.c"] {
        assert_eq!(outcome(vec![secret_key()], text), refused(TokenFault::Malformed), "{text}");
    }
    let long = "x".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(outcome(vec![secret_key()], &long), refused(TokenFault::TooLong));
    let mut header = Header::new(Algorithm::HS256);
    header.crit = Some(vec!["exp".into()]);
    let critical = encode(&header, &claims(), &EncodingKey::from_secret(SECRET)).expect("a token");
    assert_eq!(outcome(vec![secret_key()], &critical), refused(TokenFault::Malformed));
}

#[test]
fn no_token_is_not_a_bad_token_and_two_are_none() {
    let identity = configured(TokenConfig::new(vec![secret_key()])).expect("settings");
    let mut headers = HeaderMap::new();
    let mut out = Attributes::new();
    let now = Timestamp::from_secs(NOW);
    identity.attributes(&RequestParts::new(None, b"GET", b"/", &headers), now, &mut out);
    assert_eq!(out.token(), Token::Absent);
    let value = HeaderValue::from_str(&format!("Bearer {}", hs256(&claims()))).expect("a value");
    headers.append("authorization", value.clone());
    headers.append("authorization", value);
    identity.attributes(&RequestParts::new(None, b"GET", b"/", &headers), now, &mut out);
    assert_eq!(out.token(), Token::Invalid(TokenFault::Repeated));
    assert_eq!(out.value("user"), None);
}

#[test]
fn no_spelling_of_the_bearer_scheme_hides_a_token() {
    let identity = configured(TokenConfig::new(vec![secret_key()])).expect("settings");
    let token = hs256(&claims());
    let of = |value: String| {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", HeaderValue::from_str(&value).expect("a value"));
        let mut out = Attributes::new();
        let request = RequestParts::new(None, b"GET", b"/", &headers);
        identity.attributes(&request, Timestamp::from_secs(NOW), &mut out);
        out.token()
    };
    for between in [" ", "\t", "  ", " \t "] {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(of(format!("{scheme}{between}{token}")), Token::Valid, "{between:?}");
        }
    }
    let malformed = Token::Invalid(TokenFault::Malformed);
    for value in [format!("Bearer{token}"), format!("bearer:{token}"), format!("Bearer {token} x")]
    {
        assert_eq!(of(value), malformed);
    }
    assert_eq!(of("Bearer".into()), malformed);
    assert_eq!(of("Basic YTpi".into()), Token::Absent);
}

#[test]
fn a_token_may_come_in_a_cookie() {
    let mut token = TokenConfig::new(vec![secret_key()]);
    token.source = Source::Cookie("session".into());
    let identity = configured(token).expect("settings");
    let mut headers = HeaderMap::new();
    let cookie = format!("a=b; session={}", hs256(&claims()));
    headers.insert("cookie", HeaderValue::from_str(&cookie).expect("a value"));
    let mut out = Attributes::new();
    let request = RequestParts::new(None, b"GET", b"/", &headers);
    identity.attributes(&request, Timestamp::from_secs(NOW), &mut out);
    assert_eq!(out.value("user"), Some(&b"ann"[..]));
}

#[test]
fn keys_do_not_show_in_debug_output() {
    let mut config = IdentityConfig::new([1; 16]);
    config.token = Some(TokenConfig::new(vec![secret_key()]));
    let text = format!("{config:?} {:?}", Identity::new(config.clone()).expect("settings"));
    assert!(!text.contains("example secret"), "{text}");
    assert!(!text.contains(&format!("{:?}", &SECRET[..4]).replace(['[', ']'], "")), "{text}");
}

proptest! {
    #[test]
    fn a_token_changed_anywhere_gives_nothing(at: prop::sample::Index, to in "[A-Za-z0-9_.-]") {
        let token = hs256(&claims());
        let at = at.index(token.len());
        let changed = format!("{}{to}{}", &token[..at], &token[at + 1..]);
        prop_assume!(changed != token);
        let (outcome, attributes) = outcome(vec![secret_key()], &changed);
        prop_assert!(matches!(outcome, Token::Invalid(_)), "{outcome:?}");
        prop_assert_eq!(attributes, "");
    }
}
