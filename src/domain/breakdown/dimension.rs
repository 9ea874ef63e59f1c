//! The properties of a hit that breakdowns count by.

/// A property of hits.
///
/// The discriminants are stored: do not change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dimension {
    Referrer = 0,
    Country = 1,
    Region = 2,
    City = 3,
    Device = 4,
    Browser = 5,
    Os = 6,
    Language = 7,
    UtmSource = 8,
    UtmMedium = 9,
    UtmCampaign = 10,
    UtmTerm = 11,
    UtmContent = 12,
    Destination = 13,
    Bot = 14,
}

/// How the labels of a dimension are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelForm {
    /// By their places in a list, which has all of them.
    Codes(&'static [&'static str]),
    /// Two capital letters.
    Country,
    Text,
}

impl Dimension {
    /// In the order of their discriminants.
    pub const ALL: [Self; 15] = [
        Self::Referrer,
        Self::Country,
        Self::Region,
        Self::City,
        Self::Device,
        Self::Browser,
        Self::Os,
        Self::Language,
        Self::UtmSource,
        Self::UtmMedium,
        Self::UtmCampaign,
        Self::UtmTerm,
        Self::UtmContent,
        Self::Destination,
        Self::Bot,
    ];

    /// Those whose top labels are part of a link's full analytics.
    pub const LISTED: [Self; 4] = [Self::Referrer, Self::Country, Self::Region, Self::City];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Referrer => "referrer",
            Self::Country => "country",
            Self::Region => "region",
            Self::City => "city",
            Self::Device => "device",
            Self::Browser => "browser",
            Self::Os => "os",
            Self::Language => "language",
            Self::UtmSource => "utm_source",
            Self::UtmMedium => "utm_medium",
            Self::UtmCampaign => "utm_campaign",
            Self::UtmTerm => "utm_term",
            Self::UtmContent => "utm_content",
            Self::Destination => "destination",
            Self::Bot => "bot",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.name() == text)
    }

    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether hits of visitors who want no tracking are counted as `private` instead of under their labels.
    pub const fn is_of_visitor(self) -> bool {
        !matches!(self, Self::Device | Self::Destination | Self::Bot)
    }

    /// The places in lists of codes are stored: labels are only added, at the end.
    pub const fn form(self) -> LabelForm {
        match self {
            Self::Device => LabelForm::Codes(&["desktop", "mobile", "tablet"]),
            Self::Browser => LabelForm::Codes(&["chrome", "safari", "firefox", "edge", "opera", "samsung", "other"]),
            Self::Os => LabelForm::Codes(&["ios", "android", "windows", "macos", "linux", "chromeos", "other"]),
            Self::Bot => LabelForm::Codes(&["prefetch", "preview", "crawler", "monitor", "scanner", "tool"]),
            Self::Country => LabelForm::Country,
            Self::Referrer
            | Self::Region
            | Self::City
            | Self::Language
            | Self::UtmSource
            | Self::UtmMedium
            | Self::UtmCampaign
            | Self::UtmTerm
            | Self::UtmContent
            | Self::Destination => LabelForm::Text,
        }
    }
}
