//! `[privacy]`: visitors who ask not to be tracked.

use super::{error::SettingError, layers::LayeredSettings};

/// Settings for visitors who ask not to be tracked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivacyConfig {
    /// By which signals they ask for it.
    pub respect: PrivacyRespect,
}

/// The signals that are respected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivacyRespect {
    /// None of them.
    None,
    /// `Sec-GPC`.
    Gpc,
    /// `Sec-GPC` and `DNT`.
    GpcAndDnt,
}

impl PrivacyConfig {
    pub(super) fn read(settings: &mut LayeredSettings) -> Result<Self, SettingError> {
        let choices =
            [("none", PrivacyRespect::None), ("gpc", PrivacyRespect::Gpc), ("gpc+dnt", PrivacyRespect::GpcAndDnt)];
        Ok(Self { respect: settings.choice("privacy.respect", &choices)? })
    }
}
