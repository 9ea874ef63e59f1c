//! Times in answers: ISO 8601 with milliseconds and `Z`.

use serde::Serializer;

use crate::domain::calendar::Timestamp;

/// For `#[serde(with)]`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "Serde asks for it")]
pub fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

/// A time that may be missing.
pub mod option {
    use serde::Serializer;

    use crate::domain::calendar::Timestamp;

    /// For `#[serde(with)]`.
    #[expect(clippy::ref_option, reason = "Serde asks for it")]
    pub fn serialize<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(time),
            None => serializer.serialize_none(),
        }
    }
}
