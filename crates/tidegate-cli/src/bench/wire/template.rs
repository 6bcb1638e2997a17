//! Bytes with places for a key in them. Keys are all of one length, so lengths that a protocol asks
//! for can be written beforehand.

use crate::bench::keys::{KEY_BYTES, KEY_SHAPE, Key};

/// How the place of the key is written by users.
pub(crate) const PLACE: &str = "{key}";

/// Bytes, and where the key goes.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// A key stands between one piece and the next.
    pieces: Vec<Vec<u8>>,
}

impl Template {
    pub(crate) fn new(text: impl AsRef<[u8]>) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), text.as_ref());
        while let Some(place) = memchr::memmem::find(rest, PLACE.as_bytes()) {
            pieces.push(rest[..place].to_vec());
            rest = &rest[place + PLACE.len()..];
        }
        pieces.push(rest.to_vec());
        Self { pieces }
    }

    /// How many bytes are written.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.pieces.len().saturating_sub(1) * KEY_BYTES;
        self.pieces.iter().map(Vec::len).sum::<usize>() + keys
    }

    /// The same, of bytes that hold one key as it looks.
    pub(crate) fn around_key(bytes: &[u8]) -> Self {
        let place = memchr::memmem::find(bytes, KEY_SHAPE.as_bytes());
        let pieces = match place {
            Some(place) => vec![bytes[..place].into(), bytes[place + KEY_SHAPE.len()..].into()],
            None => vec![bytes.into()],
        };
        Self { pieces }
    }

    #[inline]
    pub(crate) fn write(&self, key: &Key, out: &mut Vec<u8>) {
        let mut pieces = self.pieces.iter();
        if let Some(first) = pieces.next() {
            out.extend_from_slice(first);
        }
        for piece in pieces {
            out.extend_from_slice(key);
            out.extend_from_slice(piece);
        }
    }
}

/// As long as it will be with a key in it.
pub(crate) fn filled(text: &str) -> String {
    text.replace(PLACE, KEY_SHAPE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_their_places_are() {
        let mut out = Vec::new();
        let twice = Template::new("a{key}b{key}");
        twice.write(b"key:000000000007", &mut out);
        assert_eq!(out, b"akey:000000000007bkey:000000000007");
        assert_eq!(twice.bytes(), out.len());
        out.clear();
        Template::new("PING").write(b"key:000000000007", &mut out);
        assert_eq!(out, b"PING");
        out.clear();
        Template::around_key(b"\x01key:000000000000\x02").write(b"key:000000000007", &mut out);
        assert_eq!(out, b"\x01key:000000000007\x02");
    }
}
