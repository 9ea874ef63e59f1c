//! Single values, which are text in JSON and bytes or numbers in rows.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::domain::calendar::Timestamp;
use crate::domain::link::ShortId;

/// A link's id: text in JSON, its seven bytes in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base62Id(pub ShortId);

impl Serialize for Base62Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            self.0.as_str().serialize(serializer)
        } else {
            self.0.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Base62Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = if deserializer.is_human_readable() {
            ShortId::parse(&Cow::<str>::deserialize(deserializer)?)
        } else {
            let bytes = <[u8; ShortId::LENGTH]>::deserialize(deserializer)?;
            std::str::from_utf8(&bytes).ok().and_then(ShortId::parse)
        };
        id.map(Self).ok_or_else(|| D::Error::custom("not a short id"))
    }
}

/// A time: RFC 3339 with milliseconds in JSON, milliseconds since 1970 in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Timestamp);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&self.0)
        } else {
            serializer.serialize_u64(self.0.0)
        }
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let time = Timestamp::parse(&Cow::<str>::deserialize(deserializer)?);
            time.map(Self).ok_or_else(|| D::Error::custom("not an RFC 3339 time"))
        } else {
            u64::deserialize(deserializer).map(|millis| Self(Timestamp(millis)))
        }
    }
}

/// Defines how an enum of the domain is written. A variant that only one of the two has does not compile.
///
/// A row holds the number of the variant in the order here, JSON its name: variants are only ever added, at the end.
macro_rules! written_enum {
    ($(#[$attribute:meta])* $record:ident for $domain:ident { $($(#[$of_variant:meta])* $variant:ident),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        $(#[$attribute])*
        pub enum $record {
            $($(#[$of_variant])* $variant),+
        }

        impl From<$domain> for $record {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$variant => Self::$variant),+
                }
            }
        }

        impl From<$record> for $domain {
            fn from(record: $record) -> Self {
                match record {
                    $($record::$variant => Self::$variant),+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_are_text_in_json_and_short_in_rows() {
        let id = Base62Id(ShortId::parse("aB3xYz9").unwrap());
        let time = Time(Timestamp::parse("2026-11-21T07:49:42.028Z").unwrap());
        let json = serde_json::to_string(&(id, time)).unwrap();
        assert_eq!(json, r#"["aB3xYz9","2026-11-21T07:49:42.028Z"]"#);
        assert_eq!(serde_json::from_str::<(Base62Id, Time)>(&json).unwrap(), (id, time));
        let row = postcard::to_allocvec(&(id, time)).unwrap();
        assert_eq!(row.len(), 7 + 6);
        assert_eq!(postcard::from_bytes::<(Base62Id, Time)>(&row).unwrap(), (id, time));
    }

    #[test]
    fn what_is_no_id_or_no_time_is_refused() {
        for json in [r#""../../a""#, r#""shorten""#, r#""""#, "7"] {
            assert!(serde_json::from_str::<Base62Id>(json).is_err(), "{json}");
        }
        for bytes in [b"../../a", b"shorten", b"\xff234567"] {
            assert!(postcard::from_bytes::<Base62Id>(bytes).is_err(), "{bytes:?}");
        }
        for json in [r#""tomorrow""#, "7", r#""1969-12-31T23:59:59Z""#] {
            assert!(serde_json::from_str::<Time>(json).is_err(), "{json}");
        }
    }
}
