//! What the admin address is told by whoever starts it.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

/// The shortest token: with 16 bytes of letters and digits nobody guesses it.
pub const TOKEN_BYTES_MIN: usize = 16;

/// Has the rules read again, and does not wait for it; `false` where they are not from files. It does
/// not block.
pub type Reload = Arc<dyn Fn() -> bool + Send + Sync>;

/// How the admin address behaves.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct AdminSettings {
    /// What callers must know; needed wherever [other machines](super::needs_token) can reach it.
    pub token: Option<Token>,
    /// Whether top keys are shown with the values that they are made of, and not hashed alone.
    pub names_in_top: bool,
    /// What a reload does.
    pub on_reload: Option<Reload>,
    /// How the log level is read and changed.
    pub log_level: Option<LevelHook>,
    /// Whether the daemon is ready, where it can tell.
    pub is_ready: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for AdminSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminSettings")
            .field("token", &self.token)
            .field("names_in_top", &self.names_in_top)
            .finish_non_exhaustive()
    }
}

/// Changes the log level, or says what is wrong with the word for it.
pub type SetLevel = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// How the log level of the daemon is read and changed.
#[derive(Clone)]
pub struct LevelHook {
    /// The level in force.
    pub read: Arc<dyn Fn() -> String + Send + Sync>,
    /// Puts another in force, or says which ones there are.
    pub write: Arc<SetLevel>,
}

/// What callers must know. It is kept as a hash, so that comparing takes as long whatever is compared,
/// and shows nowhere.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// A token, without the white space around it that a file has.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(TokenError::TooShort);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::Unsendable);
        }
        Ok(Self(hash(text.as_bytes())))
    }

    /// Whether this is the token. It takes the same time whether much of it is right or nothing.
    pub(super) fn is(&self, offered: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, &hash(offered)).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Why a text can be no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// It has fewer than [`TOKEN_BYTES_MIN`] bytes.
    TooShort,
    /// It has characters that a header cannot carry.
    Unsendable,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => write!(f, "a token has at least {TOKEN_BYTES_MIN} characters"),
            Self::Unsendable => f.write_str("a token has visible ASCII characters only"),
        }
    }
}

impl std::error::Error for TokenError {}
