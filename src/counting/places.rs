//! Places of client addresses, from a `MaxMind` DB.
//!
//! Any MMDB with country or city records will do. Three layouts are known: the nested one of
//! `GeoIP2`, `GeoLite2` and DB-IP (`country.iso_code`, `subdivisions`, `city.names.en`), the flat one of
//! ip-location-db (`country_code`, `state1`, `city`), and the flat one of ipinfo (`country` or
//! `country_code`, `region`, `city`).

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use maxminddb::{LookupResult, MaxMindDbError, PathElement, Reader, WithinOptions, path};

/// How many records [`Places::open`] looks through for one with a country. Databases of places have
/// one among their very first; the bound keeps a large database of something else from being read
/// to its end.
const RECORDS_TO_TRY: usize = 10_000;

/// Where a hit came from, as the labels that analytics lists. All hits from a place share the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// ISO 3166-1 alpha-2: `US`.
    pub country: Arc<str>,
    /// The largest subdivision with its country: `California, US`.
    pub region: Option<Arc<str>>,
    /// The city with its region and country, `San Francisco, California, US`, or where the database
    /// knows no region, as in city states, with its country alone: `Singapore, SG`.
    pub city: Option<Arc<str>>,
}

impl Place {
    /// Makes the labels from the parts of a record. No country, no place: a region or city alone
    /// would be ambiguous.
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

/// Two letters, but not `ZZ`, which stands for an unknown territory.
fn is_country_code(code: &str) -> bool {
    code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphabetic()) && !code.eq_ignore_ascii_case("ZZ")
}

/// An open database of places, whole in memory.
#[derive(Debug)]
pub struct Places {
    reader: Reader<Vec<u8>>,
}

/// Why a database of places could not be opened. Each is for the operator to mend: the setting names
/// the wrong file.
#[derive(Debug, thiserror::Error)]
pub enum PlacesError {
    #[error("can't read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a MaxMind DB: {source}", path.display())]
    NotMmdb { path: PathBuf, source: MaxMindDbError },
    #[error("{} is a MaxMind DB without country or city records (its type is {database_type:?})", path.display())]
    NoPlaces { path: PathBuf, database_type: String },
}

impl Places {
    /// Reads the database at `path` into memory and checks that it holds places.
    ///
    /// Blocks for as long as the disk takes (a city database has 60 to 120 MB).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PlacesError> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| PlacesError::Unreadable { path: path.to_owned(), source })?;
        let not_mmdb = |source| PlacesError::NotMmdb { path: path.to_owned(), source };
        let reader = Reader::from_source(bytes).map_err(not_mmdb)?;

        let mut records = reader.networks(WithinOptions::default()).map_err(not_mmdb)?.take(RECORDS_TO_TRY);
        let has_places = records.any(|record| record.is_ok_and(|record| Record(record).country().is_some()));
        if !has_places {
            let database_type = reader.metadata().database_type.clone();
            return Err(PlacesError::NoPlaces { path: path.to_owned(), database_type });
        }
        Ok(Self { reader })
    }

    /// The place of an address; `None` where the database knows none. An IPv4 address in IPv6 form
    /// is looked up as the former.
    pub fn lookup(&self, address: IpAddr) -> Option<Arc<Place>> {
        self.find(address)?.read().map(Arc::new)
    }

    /// The record of an address, still undecoded: the cheaper half of [`Self::lookup`].
    pub(super) fn find(&self, address: IpAddr) -> Option<Record<'_>> {
        // An IPv6 address in a database of IPv4 addresses is an error to the library; here it is an
        // address that the database does not know.
        let found = self.reader.lookup(address.to_canonical()).ok()?;
        found.has_data().then_some(Record(found))
    }
}

/// A record that many networks may share.
pub(super) struct Record<'a>(LookupResult<'a, Vec<u8>>);

impl<'a> Record<'a> {
    /// Where the record stands in its database: equal offsets are equal places.
    pub(super) fn offset(&self) -> Option<usize> {
        self.0.offset()
    }

    /// Decodes the place; `None` where the record has none, or is damaged.
    pub(super) fn read(&self) -> Option<Place> {
        let region = self
            .text(&path!["subdivisions", 0, "names", "en"])
            .or_else(|| self.text(&path!["state1"]))
            .or_else(|| self.text(&path!["region"]));
        let city = self.text(&path!["city", "names", "en"]).or_else(|| self.text(&path!["city"]));
        Place::of_parts(self.country(), region, city)
    }

    /// The country's code. `registered_country` is not asked: it is where the address's owner has
    /// its seat, not where the visitor is.
    fn country(&self) -> Option<&'a str> {
        [path!["country", "iso_code"].as_slice(), &path!["country_code"], &path!["country"]]
            .into_iter()
            .filter_map(|path| self.text(path))
            .find(|code| is_country_code(code))
    }

    /// The text at `path`; `None` where the record has another layout, or nothing to say.
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
        let place = Place::of_parts(Some("us"), Some("California"), Some("San Francisco")).unwrap();
        assert_eq!(&*place.country, "US");
        assert_eq!(place.region.as_deref(), Some("California, US"));
        assert_eq!(place.city.as_deref(), Some("San Francisco, California, US"));
    }

    #[test]
    fn a_city_without_a_region_stands_with_its_country() {
        let place = Place::of_parts(Some("SG"), None, Some("Singapore")).unwrap();
        assert_eq!(place.region, None);
        assert_eq!(place.city.as_deref(), Some("Singapore, SG"));
    }

    #[test]
    fn without_a_country_there_is_no_place() {
        for country in [None, Some(""), Some("-"), Some("ZZ"), Some("USA"), Some("É")] {
            assert_eq!(Place::of_parts(country, Some("California"), Some("San Francisco")), None);
        }
    }
}
