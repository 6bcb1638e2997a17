//! Where an address is: its country, and the number of its network operator.

use core::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use maxminddb::{PathElement, Reader};

use crate::error::{Fault, IdentityError};
use crate::networks::{NETWORKS_MAX, Networks, unmapped};

/// What says where an address is. Where nothing does, the attribute is absent.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CountryConfig {
    /// Networks with the two letters of their country. The longest prefix wins, and the table goes before the
    /// database, so it can correct it.
    pub table: Vec<(IpNet, String)>,
    /// The bytes of a `MaxMind` database of countries or cities.
    pub database: Option<Arc<[u8]>>,
    /// The bytes of a `MaxMind` database of autonomous systems, for the attribute `asn`.
    pub asn_database: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for CountryConfig {
    /// Databases by their size: they are megabytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |database: &Option<Arc<[u8]>>| database.as_ref().map(|bytes| bytes.len());
        f.debug_struct("CountryConfig")
            .field("table", &self.table.len())
            .field("database_bytes", &bytes(&self.database))
            .field("asn_database_bytes", &bytes(&self.asn_database))
            .finish()
    }
}

/// Compiled settings.
#[derive(Debug)]
pub(crate) struct Countries {
    table: Networks<[u8; 2]>,
    database: Option<Reader<Arc<[u8]>>>,
    asn_database: Option<Reader<Arc<[u8]>>>,
}

/// Where databases keep the country: `MaxMind`'s own, and those of others in the same format.
const COUNTRY_PATHS: [&[PathElement<'static>]; 2] = [
    &[PathElement::Key("country"), PathElement::Key("iso_code")],
    &[PathElement::Key("country_code")],
];

const ASN_PATH: [PathElement<'static>; 1] = [PathElement::Key("autonomous_system_number")];

impl Countries {
    pub(crate) fn new(config: CountryConfig) -> Result<Self, IdentityError> {
        let database = config.database.map(|bytes| open(bytes, "country.database")).transpose()?;
        let asn =
            config.asn_database.map(|bytes| open(bytes, "country.asn_database")).transpose()?;
        // One in the place of the other would give no attribute at all, and nobody would be told.
        let fail = |part, why: &str| Err(IdentityError::new(part, Fault::Database(why.to_owned())));
        if database.as_ref().is_some_and(|reader| kind(reader) == Some(Kind::Networks)) {
            return fail("country.database", "it is one of autonomous systems, not of countries");
        }
        if asn.as_ref().is_some_and(|reader| kind(reader) == Some(Kind::Places)) {
            return fail("country.asn_database", "it is one of places, not of autonomous systems");
        }
        Ok(Self { table: table(&config.table)?, database, asn_database: asn })
    }

    /// Whether there is nothing to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.database.is_none() && self.asn_database.is_none()
    }

    /// Appends the country of an address in its own family; says `false` where none is known.
    pub(crate) fn write_country(&self, address: IpAddr, out: &mut Vec<u8>) -> bool {
        if let Some(country) = self.table.find(address) {
            out.extend_from_slice(&country);
            return true;
        }
        let Some(found) = self.database.as_ref().and_then(|reader| reader.lookup(address).ok())
        else {
            return false;
        };
        let mut countries =
            COUNTRY_PATHS.iter().filter_map(|path| found.decode_path::<&str>(path).ok().flatten());
        match countries.find(|country| !country.is_empty()) {
            Some(country) => out.extend(country.bytes().map(|byte| byte.to_ascii_uppercase())),
            None => return false,
        }
        true
    }

    /// The number of the autonomous system that an address in its own family belongs to.
    pub(crate) fn asn(&self, address: IpAddr) -> Option<u32> {
        self.asn_database.as_ref()?.lookup(address).ok()?.decode_path(&ASN_PATH).ok()?
    }
}

/// What a database is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Places,
    Networks,
}

/// What a database says that it is about. None where it says neither, or both, as those do that are made for a purpose
/// of one's own.
fn kind(reader: &Reader<Arc<[u8]>>) -> Option<Kind> {
    let name = reader.metadata().database_type.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match (says(&["country", "city", "location", "enterprise"]), says(&["asn", "isp"])) {
        (true, false) => Some(Kind::Places),
        (false, true) => Some(Kind::Networks),
        (true, true) | (false, false) => None,
    }
}

fn open(bytes: Arc<[u8]>, part: &str) -> Result<Reader<Arc<[u8]>>, IdentityError> {
    let fault = |error: maxminddb::MaxMindDbError| Fault::Database(error.to_string());
    Reader::from_source(bytes).map_err(|error| IdentityError::new(part, fault(error)))
}

fn table(rows: &[(IpNet, String)]) -> Result<Networks<[u8; 2]>, IdentityError> {
    if rows.len() > NETWORKS_MAX {
        let fault = Fault::TooMany { count: rows.len(), max: NETWORKS_MAX };
        return Err(IdentityError::new("country.table", fault));
    }
    let mut checked = Vec::with_capacity(rows.len());
    for (index, (network, country)) in rows.iter().enumerate() {
        let part = || format!("country.table[{index}]");
        let network = unmapped(*network).map_err(|fault| IdentityError::new(part(), fault))?;
        let letters = country.as_bytes().first_chunk::<2>();
        let letters =
            letters.filter(|two| country.len() == 2 && two.iter().all(u8::is_ascii_alphabetic));
        let fault = || IdentityError::new(part(), Fault::Country(country.clone()));
        checked
            .push((network, letters.ok_or_else(fault)?.map(|letter| letter.to_ascii_uppercase())));
    }
    Networks::new(checked).map_err(|fault| IdentityError::new("country.table", fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn countries(rows: &[(&str, &str)]) -> Result<Countries, IdentityError> {
        let table = rows.iter().map(|(net, code)| (net.parse().unwrap(), (*code).to_owned()));
        Countries::new(CountryConfig { table: table.collect(), ..CountryConfig::default() })
    }

    #[test]
    fn the_table_knows_the_narrowest_network() {
        let countries = countries(&[("192.0.2.0/24", "de"), ("192.0.2.128/25", "FR")]).unwrap();
        let find = |address: &str| {
            let mut out = Vec::new();
            let found = countries.write_country(address.parse().unwrap(), &mut out);
            found.then(|| String::from_utf8(out).unwrap())
        };
        assert_eq!(find("192.0.2.1").as_deref(), Some("DE"));
        assert_eq!(find("192.0.2.200").as_deref(), Some("FR"));
        assert_eq!(find("192.0.3.1"), None);
    }

    #[test]
    fn a_mistake_is_named_by_its_row() {
        let part = |rows: &[(&str, &str)]| countries(rows).unwrap_err().part().to_owned();
        assert_eq!(part(&[("10.0.0.0/8", "DE"), ("11.0.0.0/8", "DEU")]), "country.table[1]");
        assert_eq!(part(&[("10.0.0.0/8", "Ö")]), "country.table[0]");
        assert_eq!(part(&[("::ffff:10.0.0.0/8", "DE")]), "country.table[0]");
        assert_eq!(part(&[("10.0.0.0/8", "DE"), ("10.1.0.0/8", "FR")]), "country.table");
    }

    #[test]
    fn bytes_that_are_no_database_are_refused() {
        let database = Some(Arc::from(&b"not a database"[..]));
        let config = CountryConfig { database, ..CountryConfig::default() };
        assert_eq!(Countries::new(config).unwrap_err().part(), "country.database");
    }
}
