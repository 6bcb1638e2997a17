//! Whom a ban or an entry of the allow-list is about: everyone with one value of an attribute, or a
//! range of addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tidegate_rules::attribute::is_attribute_name;

/// The attributes in which addresses come, whatever protocol carried them: ours, and those of Envoy's
/// actions. Ranges are looked for in these and in no others.
pub const ADDRESS_ATTRIBUTES: [&str; 4] =
    ["ip", "address", "remote_address", "masked_remote_address"];

/// The longest value that can be listed.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// Whom an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Calls in which this attribute has this value, compared byte by byte.
    Attribute {
        /// The attribute.
        name: String,
        /// Its value.
        value: String,
    },
    /// Calls from an address of this range: one of [`ADDRESS_ATTRIBUTES`] is an address in it, or a
    /// range all of which is in it.
    Range(IpNet),
}

impl FromStr for Target {
    type Err = TargetError;

    /// Reads `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32` or `user=42`.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        if let Some(range) = range_of(text) {
            return if range.prefix_len() == 0 {
                Err(TargetError::Everyone)
            } else {
                Ok(Self::Range(range))
            };
        }
        let (name, value) = text.split_once('=').ok_or(TargetError::Neither)?;
        if !is_attribute_name(name) {
            return Err(TargetError::Name);
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        Ok(Self::Attribute { name: name.to_owned(), value: value.to_owned() })
    }
}

impl fmt::Display for Target {
    /// As it is read: an address alone for a range of one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attribute { name, value } => write!(f, "{name}={value}"),
            Self::Range(range) if range.prefix_len() == range.max_prefix_len() => {
                range.addr().fmt(f)
            }
            Self::Range(range) => range.fmt(f),
        }
    }
}

/// An address or a range as text, in its own family and without the bits that the range does not
/// look at.
pub(super) fn range_of(text: &str) -> Option<IpNet> {
    let range = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address),
        Err(_) => text.parse::<IpNet>().ok()?,
    };
    Some(unmapped(range).trunc())
}

/// An IPv4 range in an IPv6 dress is the IPv4 range.
fn unmapped(range: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(v6) = range else { return range };
    let v4 = v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED_BITS));
    v4.and_then(|(address, prefix)| Ipv4Net::new(address, prefix).ok()).map_or(range, IpNet::V4)
}

/// The first `prefix` bits of an address of 32 bits, for looking ranges up.
pub(super) fn bits_v4(range: Ipv4Net, prefix: u8) -> u32 {
    range.addr().to_bits() & u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

/// The first `prefix` bits of an address of 128 bits.
pub(super) fn bits_v6(range: Ipv6Net, prefix: u8) -> u128 {
    range.addr().to_bits() & u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// The text says nobody whom an entry could be about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// It is neither of the forms.
    Neither,
    /// The name of the attribute cannot be one.
    Name,
    /// The value is longer than [`VALUE_BYTES_MAX`].
    TooLong,
    /// It is about all addresses.
    Everyone,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Neither => f.write_str(
                "write an address (`192.0.2.7`), a range of addresses (`192.0.2.0/24`), or an attribute \
                 and its value (`user=42`)",
            ),
            Self::Name => f.write_str(
                "the name of an attribute has letters, digits, `_`, `-`, `.` and `:`, and at most 64 of them",
            ),
            Self::TooLong => write!(f, "a value has at most {VALUE_BYTES_MAX} bytes"),
            Self::Everyone => f.write_str(
                "that range is everyone; to let everything through there is a switch, `bypass`",
            ),
        }
    }
}

impl std::error::Error for TargetError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, TargetError> {
        text.parse::<Target>().map(|target| target.to_string())
    }

    #[test]
    fn a_target_is_written_as_it_is_read_and_in_one_way() {
        for (text, same) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
            ("2001:DB8::1/32", "2001:db8::/32"),
            ("user=42", "user=42"),
            ("token=a=b", "token=a=b"),
            ("ip=192.0.2.7", "ip=192.0.2.7"),
            ("user=", "user="),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(same), "{text}");
            assert_eq!(shown(same).as_deref(), Ok(same), "{text}");
        }
    }

    #[test]
    fn what_is_about_nobody_or_everybody_is_refused() {
        assert_eq!(shown("192.0.2"), Err(TargetError::Neither));
        assert_eq!(shown("=42"), Err(TargetError::Name));
        assert_eq!(shown("a b=42"), Err(TargetError::Name));
        assert_eq!(shown("0.0.0.0/0"), Err(TargetError::Everyone));
        assert_eq!(shown("::/0"), Err(TargetError::Everyone));
        assert_eq!(shown(&format!("user={}", "x".repeat(1_025))), Err(TargetError::TooLong));
    }
}
