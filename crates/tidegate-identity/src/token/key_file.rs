//! Whether bytes that were given as a secret are a file with a public key.

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// How lines of the formats of SSH begin.
const SSH_NAMES: [&[u8]; 3] = [b"ssh-", b"ecdsa-sha2-", b"sk-"];

/// Base64 with or without its padding: whoever copies a key may lose the end.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// PEM, the formats of SSH, DER, both of these in base64 without armour, or JSON web keys.
pub(super) fn looks_like_one(secret: &[u8]) -> bool {
    let text = secret.trim_ascii();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
    // PEM has five hyphens and no space, and SSH2 four and one.
    contains(text, b"-----BEGIN")
        || contains(text, b"---- BEGIN")
        || is_ssh_name(text)
        || is_binary_key(secret)
        || decoded(text).is_some_and(|bytes| is_binary_key(&bytes))
        || is_json_key(text)
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn is_ssh_name(text: &[u8]) -> bool {
    SSH_NAMES.iter().any(|name| text.starts_with(name))
}

/// DER, which is a sequence that fills the file, or a key of SSH, which begins with the length of its name.
fn is_binary_key(bytes: &[u8]) -> bool {
    match bytes {
        [0x30, 0x82, high, low, rest @ ..] => {
            usize::from(u16::from_be_bytes([*high, *low])) == rest.len()
        }
        [0x30, 0x81, length, rest @ ..] | [0x30, length @ 0x20..=0x7f, rest @ ..] => {
            usize::from(*length) == rest.len()
        }
        [0, 0, 0, length, rest @ ..] => usize::from(*length) < rest.len() && is_ssh_name(rest),
        _ => false,
    }
}

/// The bytes of base64 of either alphabet, in one line or several.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> =
        text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let in_alphabet = |alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(&letters).ok();
    in_alphabet(&STANDARD).or_else(|| in_alphabet(&URL_SAFE))
}

/// A JSON web key, a set or a list of them.
fn is_json_key(text: &[u8]) -> bool {
    text.starts_with(b"{") && (contains(text, b"\"kty\"") || contains(text, b"\"keys\""))
        || text.starts_with(b"[") && contains(text, b"\"kty\"")
}
