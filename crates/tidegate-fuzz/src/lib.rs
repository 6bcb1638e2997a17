//! What must hold for any input, as functions of bytes. A target panics where its claim is broken.
//!
//! Two drive them: `cargo xtask fuzz TARGET`, for as long as one likes and led by coverage, and the
//! tests of this crate, for a moment and with the same inputs each time. Nothing here looks for
//! inputs by itself except [`mutation`], which the tests use.
//!
//! | file | what it claims |
//! | --- | --- |
//! | [`rule_text`] | any text is rules, or a report that points into it; rules can be used |
//! | [`attributes`] | any request meets the rules that it would meet if all were looked at |
//! | [`check_body`] | any body of a call says what it says, or is refused at a place of it |
//! | [`gateway_requests`] | any requests are refused, or end where others have them end |
//! | [`gateway_answers`] | any answer has one reading for the client, with the bytes that came |
//! | [`json_body`] | any body of `POST /json` is refused, or answered for each of its descriptors |
//! | [`limit_text`] | any text is a limit that is written and read back, or an error in it |
//! | [`path`] | any path has one normal form, and templates match as their words say |
//! | [`snapshot`] | any bytes are a state file, or change nothing |
//! | [`identity`] | any headers are survived, and change nobody's address but the client's own |
//! | [`resp`] | any bytes are the same commands however they arrive, and get whole replies |
//! | [`mutation`] | inputs that are nearly right, from a seed |
//! | [`seeds`] | the inputs to begin with, in files |
#![forbid(unsafe_code)]

pub mod attributes;
pub mod check_body;
pub mod gateway_answers;
pub mod gateway_requests;
pub mod identity;
pub mod json_body;
pub mod limit_text;
pub mod mutation;
pub mod path;
pub mod resp;
pub mod rule_text;
pub mod seeds;
pub mod snapshot;

/// A claim about any input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What `cargo xtask fuzz` calls it. Its shim, seeds and words have this name too.
    pub name: &'static str,
    /// Panics where the claim does not hold.
    pub check: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 11] = [
    Target { name: "attributes", check: attributes::check },
    Target { name: "check_body", check: check_body::check },
    Target { name: "gateway_answers", check: gateway_answers::check },
    Target { name: "gateway_requests", check: gateway_requests::check },
    Target { name: "identity", check: identity::check },
    Target { name: "json_body", check: json_body::check },
    Target { name: "limit_text", check: limit_text::check },
    Target { name: "path", check: path::check },
    Target { name: "resp", check: resp::check },
    Target { name: "rule_text", check: rule_text::check },
    Target { name: "snapshot", check: snapshot::check },
];
