//! Places of client addresses, from a `MaxMind` DB.
//!
//! Any MMDB file with country or city records works. Three layouts are known: the nested one of `GeoIP2`, `GeoLite2`
//! and DB-IP (`country.iso_code`, `subdivisions`, `city.names.en`), the flat one of ip-location-db (`country_code`,
//! `state1`, `city`), and the flat one of ipinfo (`country` or `country_code`, `region`, `city`).

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader, WithinOptions, path};

/// How many records [`PlaceDatabase::open`] reads to find one with a country. Databases of places have one among the
/// first; the bound avoids reading a large database of another kind to its end.
const RECORDS_TO_TRY: usize = 10_000;

/// The place of a hit, as the labels that analytics lists. All hits of a place share the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitorPlace {
    /// ISO 3166-1 alpha-2: `US`.
    pub country: Arc<str>,
    /// The largest subdivision with its country: `California, US`.
    pub region: Option<Arc<str>>,
    /// The city with its region and country, `San Francisco, California, US`. If the database has no region, as for
    /// city states, the city with its country: `Singapore, SG`.
    pub city: Option<Arc<str>>,
}

impl VisitorPlace {
    /// Makes the labels from the parts of a record. Without a country there is no place: a region or city alone would
    /// be ambiguous.
    fn of_parts(country: Option<&str>, region: Option<&str>, city: Option<&str>) -> Option<Self> {
        let country = country.filter(|code| is_country_code(code))?.to_ascii_uppercase();
        Some(Self {
            city: city.map(|city| match region {
                Some(region) => format!("{city}, {region}, {country}").into(),
                None => format!("{city}, {country}").into(),
            }),
            region: region.map(|region| format!("{region}, {country}").into()),
            country: country.into(),
        })
    }
}

/// Two letters, except `ZZ`, the code of an unknown territory.
fn is_country_code(code: &str) -> bool {
    code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic()) && !code.eq_ignore_ascii_case("ZZ")
}

/// A database of places, loaded into memory.
#[derive(Debug)]
pub struct PlaceDatabase {
    reader: Reader<Vec<u8>>,
}

/// Why a database of places could not be opened. In each case the setting names a wrong file.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    #[error("can't read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a MaxMind DB: {source}", path.display())]
    NotMmdb { path: PathBuf, source: MaxMindDbError },
    #[error("{} is a MaxMind DB without country or city records (its type is {database_type:?})", path.display())]
    NoPlaces { path: PathBuf, database_type: String },
}

impl PlaceDatabase {
    /// Reads the database at `path` into memory and checks that it has places.
    ///
    /// Blocks while the file is read (a city database has 60 to 120 MB).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PlacesError> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| PlacesError::Unreadable { path: path.to_owned(), source })?;
        let not_mmdb = |source| PlacesError::NotMmdb { path: path.to_owned(), source };
        let reader = Reader::from_source(bytes).map_err(not_mmdb)?;

        let mut records = reader.networks(WithinOptions::default()).map_err(not_mmdb)?.take(RECORDS_TO_TRY);
        let has_places = records.any(|record| record.is_ok_and(|record| PlaceRecord(record).country().is_some()));
        if !has_places {
            let database_type = reader.metadata().database_type.clone();
            return Err(PlacesError::NoPlaces { path: path.to_owned(), database_type });
        }
        Ok(Self { reader })
    }

    /// The place of an address; `None` if the database has none. An IPv4-mapped IPv6 address is looked up as IPv4.
    pub fn lookup(&self, address: IpAddr) -> Option<Arc<VisitorPlace>> {
        self.find(address)?.read().map(Arc::new)
    }

    /// The record of an address, without decoding it: the cheaper half of [`Self::lookup`].
    pub(super) fn find(&self, address: IpAddr) -> Option<PlaceRecord<'_>> {
        // The library returns an error for an IPv6 address in a database of IPv4 addresses; here that is an unknown
        // address.
        let found = self.reader.lookup(address.to_canonical()).ok()?;
        found.has_data().then_some(PlaceRecord(found))
    }
}

/// A record, which many networks may share.
pub(super) struct PlaceRecord<'a>(LookupResult<'a, Vec<u8>>);

impl<'a> PlaceRecord<'a> {
    /// The offset of the record in its database: equal offsets are equal places.
    pub(super) fn offset(&self) -> Option<usize> {
        self.0.offset()
    }

    /// Decodes the place; `None` if the record has none, or is damaged.
    pub(super) fn read(&self) -> Option<VisitorPlace> {
        let region = self
            .text(&path!["subdivisions", 0, "names", "en"])
            .or_else(|| self.text(&path!["state1"]))
            .or_else(|| self.text(&path!["region"]));
        let city = self.text(&path!["city", "names", "en"]).or_else(|| self.text(&path!["city"]));
        VisitorPlace::of_parts(self.country(), region, city)
    }

    /// The country code. `registered_country` is not used: it is the seat of the address's owner, not the place of the
    /// visitor.
    fn country(&self) -> Option<&'a str> {
        [path!["country", "iso_code"].as_slice(), &path!["country_code"], &path!["country"]]
            .into_iter()
            .filter_map(|path| self.text(path))
            .find(|code| is_country_code(code))
    }

    /// The text at `path`; `None` if the record has another layout, or an empty text.
    fn text(&self, path: &[PathElement<'_>]) -> Option<&'a str> {
        let text: &str = self.0.decode_path(path).ok()??;
        Some(text.trim()).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_run_from_the_smallest_to_the_largest() {
        let place = VisitorPlace::of_parts(Some("us"), Some("California"), Some("San Francisco")).unwrap();
        assert_eq!(&*place.country, "US");
        assert_eq!(place.region.as_deref(), Some("California, US"));
        assert_eq!(place.city.as_deref(), Some("San Francisco, California, US"));
    }

    #[test]
    fn a_city_without_a_region_stands_with_its_country() {
        let place = VisitorPlace::of_parts(Some("SG"), None, Some("Singapore")).unwrap();
        assert_eq!(place.region, None);
        assert_eq!(place.city.as_deref(), Some("Singapore, SG"));
    }

    #[test]
    fn without_a_country_there_is_no_place() {
        for country in [None, Some(""), Some("-"), Some("ZZ"), Some("USA"), Some("É")] {
            assert_eq!(VisitorPlace::of_parts(country, Some("California"), Some("San Francisco")), None);
        }
    }
}
