//! A list of entries, and the index that finds those that a call meets. A list never changes: a
//! change makes another one.

use std::collections::HashMap;

use ipnet::IpNet;
use tidegate::{Attribute, Timestamp};

use super::target::{ADDRESS_ATTRIBUTES, Target, bits_v4, bits_v6, range_of};

/// One ban, or one entry of the allow-list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Whom it is about.
    pub target: Target,
    /// In which domain; in all of them where there is none.
    pub domain: Option<String>,
    /// From when on it is as if it were not there; `None` is until it is lifted.
    pub until: Option<Timestamp>,
    /// When it was made.
    pub since: Timestamp,
    /// What the operator wants to remember about it.
    pub note: Option<String>,
}

impl Entry {
    /// An entry for all domains, until it is lifted.
    pub fn new(target: Target, since: Timestamp) -> Self {
        Self { target, domain: None, until: None, since, note: None }
    }

    /// The same for one domain alone.
    #[must_use]
    pub fn in_domain(mut self, domain: Option<String>) -> Self {
        self.domain = domain;
        self
    }

    /// The same until then.
    #[must_use]
    pub fn until(mut self, until: Option<Timestamp>) -> Self {
        self.until = until;
        self
    }

    /// Whether it is in force.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    pub(super) fn is_of(&self, target: &Target, domain: Option<&str>) -> bool {
        self.target == *target && self.domain.as_deref() == domain
    }
}

/// The numbers of the entries about each value of one attribute.
type ByValue = HashMap<Box<[u8]>, Vec<u32>>;

/// Entries, and where to find them.
#[derive(Debug, Default)]
pub(super) struct List {
    entries: Vec<Entry>,
    /// By the name of the attribute.
    values: HashMap<Box<str>, ByValue>,
    /// By length of the prefix, and then by the prefix. There are only those lengths that some
    /// entry has, and these are few.
    v4: Vec<(u8, HashMap<u32, Vec<u32>>)>,
    v6: Vec<(u8, HashMap<u128, Vec<u32>>)>,
}

impl List {
    pub(super) fn new(entries: Vec<Entry>) -> Self {
        let mut list = Self::default();
        for (number, entry) in (0..).zip(&entries) {
            match &entry.target {
                Target::Attribute { name, value } => {
                    let values = list.values.entry(name.as_str().into()).or_default();
                    values.entry(value.as_bytes().into()).or_default().push(number);
                }
                Target::Range(IpNet::V4(range)) => {
                    let prefix = range.prefix_len();
                    let of_length = of_length(&mut list.v4, prefix);
                    of_length.entry(bits_v4(*range, prefix)).or_default().push(number);
                }
                Target::Range(IpNet::V6(range)) => {
                    let prefix = range.prefix_len();
                    let of_length = of_length(&mut list.v6, prefix);
                    of_length.entry(bits_v6(*range, prefix)).or_default().push(number);
                }
            }
        }
        list.entries = entries;
        list
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry that a call meets: any that is about it and in force. Where several are, it is the
    /// one that is in force longest.
    pub(super) fn find(
        &self,
        domain: &str,
        attributes: &[Attribute<'_>],
        now: Timestamp,
    ) -> Option<&Entry> {
        if self.entries.is_empty() {
            return None;
        }
        let mut found: Option<&Entry> = None;
        let mut meet = |numbers: &[u32]| {
            for entry in numbers.iter().filter_map(|&number| self.entries.get(number as usize)) {
                let is_here = entry.domain.as_deref().is_none_or(|name| name == domain);
                let is_longer = found.is_none_or(|before| {
                    before.until.is_some_and(|end| entry.until.is_none_or(|until| until > end))
                });
                if is_here && entry.is_live(now) && is_longer {
                    found = Some(entry);
                }
            }
        };
        for attribute in attributes {
            let of_value = self.values.get(attribute.name).and_then(|of| of.get(attribute.value));
            if let Some(numbers) = of_value {
                meet(numbers);
            }
            if (!self.v4.is_empty() || !self.v6.is_empty())
                && ADDRESS_ATTRIBUTES.contains(&attribute.name)
                && let Some(range) = std::str::from_utf8(attribute.value).ok().and_then(range_of)
            {
                self.ranges_around(range, &mut meet);
            }
        }
        found
    }

    /// The entries whose range holds all of this one.
    fn ranges_around(&self, range: IpNet, meet: &mut impl FnMut(&[u32])) {
        let length = range.prefix_len();
        match range {
            IpNet::V4(range) => {
                for (prefix, ranges) in self.v4.iter().filter(|(prefix, _)| *prefix <= length) {
                    if let Some(numbers) = ranges.get(&bits_v4(range, *prefix)) {
                        meet(numbers);
                    }
                }
            }
            IpNet::V6(range) => {
                for (prefix, ranges) in self.v6.iter().filter(|(prefix, _)| *prefix <= length) {
                    if let Some(numbers) = ranges.get(&bits_v6(range, *prefix)) {
                        meet(numbers);
                    }
                }
            }
        }
    }
}

fn of_length<B>(
    lengths: &mut Vec<(u8, HashMap<B, Vec<u32>>)>,
    prefix: u8,
) -> &mut HashMap<B, Vec<u32>> {
    let at = lengths.iter().position(|(length, _)| *length == prefix).unwrap_or_else(|| {
        lengths.push((prefix, HashMap::new()));
        lengths.len() - 1
    });
    &mut lengths[at].1
}
