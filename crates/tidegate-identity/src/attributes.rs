//! The attributes of one request, in a buffer that the next request uses again.
//!
//! Names and values lie end to end in two arenas, so a buffer that has grown to the size of ordinary
//! requests allocates nothing more.

use smallvec::SmallVec;
use tidegate_rules::Attribute;

/// How many attributes [`Attributes::list`] holds without allocating.
pub const INLINE_ATTRIBUTES: usize = 16;

/// What describes one request, and what was odd about it.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    names: String,
    values: Vec<u8>,
    ends: Vec<Ends>,
    token: Token,
    doubts: Doubts,
}

/// Where the name and the value of an attribute end; they begin where those before them end.
#[derive(Clone, Copy, Debug)]
struct Ends {
    name: usize,
    value: usize,
}

/// What became of the request's token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Token {
    /// There is none, or none is looked for.
    #[default]
    Absent,
    /// It was verified, and its claims are among the attributes.
    Valid,
    /// It was not, and nothing was taken from it.
    Invalid(TokenFault),
}

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenFault {
    /// The request carries more than one.
    Repeated,
    /// It is longer than [`TOKEN_BYTES_MAX`](crate::token::TOKEN_BYTES_MAX).
    TooLong,
    /// It is no token, or says something in a way that is not understood.
    Malformed,
    /// No key is for its algorithm.
    Algorithm,
    /// No key has its key id.
    UnknownKey,
    /// The signature was not made with any of the keys.
    Signature,
    /// It has no time of expiry, and must.
    NoExpiry,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
    /// It is from another issuer.
    Issuer,
    /// It is for another audience.
    Audience,
}

/// What a request leaves open, where two servers might read it in two ways. A gateway does well to
/// refuse such a request: whoever sends it may hope to be counted as somebody else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// More than one `Host` header, or one that is no host. The attribute `host` is absent.
    pub host: bool,
    /// More than one API key, in one place or in several, or a bearer token that is not written as one. The attribute
    /// `api_key` is absent.
    pub api_key: bool,
    /// A header, cookie or query parameter that an attribute is taken from occurs more than once.
    /// The values are joined.
    pub repeated: bool,
}

impl Doubts {
    /// Whether there is any.
    pub const fn any(self) -> bool {
        self.host || self.api_key || self.repeated
    }
}

impl Attributes {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The attributes, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = Attribute<'_>> {
        let mut start = Ends { name: 0, value: 0 };
        self.ends.iter().map(move |end| {
            let name = &self.names[start.name..end.name];
            let value = &self.values[start.value..end.value];
            start = *end;
            Attribute { name, value }
        })
    }

    /// The attributes as a list, which allocates only beyond [`INLINE_ATTRIBUTES`].
    pub fn list(&self) -> SmallVec<[Attribute<'_>; INLINE_ATTRIBUTES]> {
        self.iter().collect()
    }

    /// Hands the attributes to `read` as a list, whose room is small where there are few of them.
    #[inline]
    pub fn with_list<T>(&self, read: impl FnOnce(&[Attribute<'_>]) -> T) -> T {
        /// More than most rules read.
        const FEW: usize = 4;
        let mut few = [Attribute { name: "", value: &[] }; FEW];
        let many;
        let list = if let Some(few) = few.get_mut(..self.ends.len()) {
            for (place, attribute) in few.iter_mut().zip(self.iter()) {
                *place = attribute;
            }
            &*few
        } else {
            many = self.list();
            &many[..]
        };
        read(list)
    }

    /// The value of the attribute of this name.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|attribute| attribute.name == name).map(|attribute| attribute.value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// What became of the token.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// What the request leaves open.
    pub const fn doubts(&self) -> Doubts {
        self.doubts
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.values.clear();
        self.ends.clear();
        self.token = Token::Absent;
        self.doubts = Doubts::default();
    }

    /// Adds an attribute, for callers that know more about a request than HTTP says.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.push_with(name, |values| values.extend_from_slice(value));
    }

    /// Adds an attribute whose value `write` appends to the bytes that it is given.
    pub(crate) fn push_with(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.push_if(name, |values| {
            write(values);
            true
        });
    }

    /// Adds an attribute unless `write` finds that there is none and says `false`. It appends to the
    /// bytes that it is given and leaves those before them alone.
    pub(crate) fn push_if(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        let start = self.values.len();
        if write(&mut self.values) {
            self.names.push_str(name);
            self.ends.push(Ends { name: self.names.len(), value: self.values.len() });
        } else {
            self.values.truncate(start);
        }
    }

    pub(crate) fn set_token(&mut self, token: Token) {
        self.token = token;
    }

    pub(crate) fn doubts_mut(&mut self) -> &mut Doubts {
        &mut self.doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_attribute_that_is_not_there_leaves_nothing_behind() {
        let mut attributes = Attributes::new();
        attributes.push("a", b"1");
        attributes.push_if("b", |values| {
            values.extend_from_slice(b"half");
            false
        });
        attributes.push("c", b"3");
        let names: Vec<_> = attributes.iter().map(|attribute| attribute.name).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(attributes.value("c"), Some(&b"3"[..]));
    }

    #[test]
    fn nothing_is_left_of_the_request_before() {
        let mut attributes = Attributes::new();
        attributes.push("a", b"1");
        attributes.set_token(Token::Valid);
        *attributes.doubts_mut() = Doubts { host: true, api_key: true, repeated: true };
        attributes.clear();
        assert!(attributes.is_empty());
        assert_eq!(attributes.token(), Token::Absent);
        assert!(!attributes.doubts().any());
    }

    #[test]
    fn few_attributes_and_many_are_listed_alike() {
        let mut attributes = Attributes::new();
        for count in 0..2 * INLINE_ATTRIBUTES {
            assert_eq!(attributes.len(), count);
            attributes.with_list(|list| assert_eq!(list, &attributes.list()[..]));
            attributes.push(&format!("name {count}"), &[count as u8]);
        }
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out(list: Vec<(String, Vec<u8>)>) {
            let mut attributes = Attributes::new();
            attributes.push("left over", b"from before");
            attributes.clear();
            for (name, value) in &list {
                attributes.push(name, value);
            }
            let out: Vec<_> = attributes
                .iter()
                .map(|attribute| (attribute.name.to_owned(), attribute.value.to_vec()))
                .collect();
            prop_assert_eq!(out, list);
        }
    }
}
