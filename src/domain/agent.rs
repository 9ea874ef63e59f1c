//! Browser and operating system, as a user agent names them.
//!
//! User agents name several products: Edge also names Chrome and Safari, and an iPhone also Mac OS X. So all words are
//! read first, in one pass (`words` has the table), and an order of rules decides between what they mean.
//! `tests/it/hits/agents.rs` compares the result with npm `ua-parser-js` on its own test data.

mod words;

use self::words::{Clues, clue};

/// The most bytes of a `User-Agent` header that are read: as many as the journal keeps of it.
const MAX_BYTES: usize = 512;

/// The browser of a hit.
///
/// The discriminants are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Browser {
    /// Also Chromium and Chrome for iOS.
    Chrome = 1,
    Safari = 2,
    /// Also Firefox Focus and Klar.
    Firefox = 3,
    Edge = 4,
    /// All browsers by Opera.
    Opera = 5,
    /// Samsung Internet.
    Samsung = 6,
    /// Another browser, an app that shows pages itself, or none.
    Other = 7,
}

/// The operating system of a hit's device.
///
/// The discriminants are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum OperatingSystem {
    /// Also iPadOS, where an iPad does not request desktop sites.
    Ios = 1,
    /// Also Fire OS.
    Android = 2,
    /// Windows for computers.
    Windows = 3,
    /// Also an iPad that requests desktop sites: the two look the same.
    MacOs = 4,
    /// Distributions for computers.
    Linux = 5,
    ChromeOs = 6,
    /// Another one, as of televisions and consoles, or none.
    Other = 7,
}

impl Browser {
    /// All browsers, in the order of their discriminants.
    pub const ALL: [Self; 7] =
        [Self::Chrome, Self::Safari, Self::Firefox, Self::Edge, Self::Opera, Self::Samsung, Self::Other];

    /// The label in analytics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Chrome => "chrome",
            Self::Safari => "safari",
            Self::Firefox => "firefox",
            Self::Edge => "edge",
            Self::Opera => "opera",
            Self::Samsung => "samsung",
            Self::Other => "other",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The browser of a discriminant.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&browser| browser as u8 == code)
    }
}

impl OperatingSystem {
    /// All systems, in the order of their discriminants.
    pub const ALL: [Self; 7] =
        [Self::Ios, Self::Android, Self::Windows, Self::MacOs, Self::Linux, Self::ChromeOs, Self::Other];

    /// The label in analytics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ios => "ios",
            Self::Android => "android",
            Self::Windows => "windows",
            Self::MacOs => "macos",
            Self::Linux => "linux",
            Self::ChromeOs => "chromeos",
            Self::Other => "other",
        }
    }

    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The system of a discriminant.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&system| system as u8 == code)
    }
}

/// Reads browser and system of a `User-Agent` header; an empty one is `other`. Reads its first 512 bytes.
pub fn software(agent: &[u8]) -> (Browser, OperatingSystem) {
    let clues = Clues::read(&agent[..agent.len().min(MAX_BYTES)]);
    let system = system(&clues);
    (browser(&clues, system), system)
}

/// The first rule that matches decides:
///
/// 1. Names of browsers that also name the browser that they are built on: those of Edge and Opera, then all others of
///    the table. An app that shows pages itself is a browser of its own.
/// 2. Firefox and Samsung Internet.
/// 3. Chrome; but `wv`, or a `Version` on Android, is a web view of an app, or Android's browser before Chrome.
/// 4. Safari on systems that have it. On iOS it names its `Version`, in whose place apps have their own name.
fn browser(clues: &Clues, system: OperatingSystem) -> Browser {
    if clues.has(clue::CHROME_FOR_IOS) {
        Browser::Chrome
    } else if clues.has(clue::EDGE) {
        Browser::Edge
    } else if clues.has(clue::OPERA) {
        Browser::Opera
    } else if clues.has(clue::OTHER_BROWSER) {
        Browser::Other
    } else if clues.has(clue::SAMSUNG) {
        Browser::Samsung
    } else if clues.has(clue::FIREFOX) {
        Browser::Firefox
    } else if clues.has(clue::CHROME) {
        let is_on_android = system == OperatingSystem::Android;
        let is_in_app = clues.has(clue::WEB_VIEW) || (is_on_android && clues.has(clue::VERSION));
        if is_in_app { Browser::Other } else { Browser::Chrome }
    } else if clues.has(clue::SAFARI) {
        let has_safari = match system {
            OperatingSystem::Ios => clues.has(clue::VERSION),
            OperatingSystem::MacOs | OperatingSystem::Windows => true,
            _ => false,
        };
        if has_safari { Browser::Safari } else { Browser::Other }
    } else {
        Browser::Other
    }
}

/// The first rule that matches decides. Systems of telephones, televisions and consoles come first, because many of
/// them also name Linux, Android, Windows or the Macintosh.
fn system(clues: &Clues) -> OperatingSystem {
    if clues.has(clue::OTHER_SYSTEM) {
        OperatingSystem::Other
    } else if clues.has(clue::WINDOWS) {
        OperatingSystem::Windows
    } else if clues.has(clue::IOS) {
        OperatingSystem::Ios
    } else if clues.has(clue::ANDROID) {
        OperatingSystem::Android
    } else if clues.has(clue::CHROME_OS) {
        OperatingSystem::ChromeOs
    } else if clues.has(clue::MACINTOSH) {
        OperatingSystem::MacOs
    } else if clues.has(clue::DARWIN) {
        // Apple's library for HTTP names no system. Macs before 2020 name their processor.
        if clues.has(clue::INTEL) { OperatingSystem::MacOs } else { OperatingSystem::Ios }
    } else if clues.has(clue::LINUX) {
        OperatingSystem::Linux
    } else {
        OperatingSystem::Other
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_lead_back_to_browsers_and_systems() {
        for (place, browser) in Browser::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(browser.code()), place + 1);
            assert_eq!(Browser::of_code(browser.code()), Some(browser));
        }
        for (place, system) in OperatingSystem::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(system.code()), place + 1);
            assert_eq!(OperatingSystem::of_code(system.code()), Some(system));
        }
        assert_eq!(Browser::of_code(0), None);
        assert_eq!(OperatingSystem::of_code(8), None);
    }

    #[test]
    fn text_beyond_the_bound_is_not_read() {
        let agent = format!("{}Firefox/150.0", " ".repeat(MAX_BYTES - "Firefox".len()));
        assert_eq!(software(agent.as_bytes()).0, Browser::Firefox);
        assert_eq!(software(format!(" {agent}").as_bytes()).0, Browser::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(agent: Vec<u8>) {
            software(&agent);
        }

        #[test]
        fn any_mixture_of_words_is_read(
            words in proptest::collection::vec(
                prop::sample::select(vec![
                    "Mozilla/5.0 (", "Linux; Android 15", "://", "iPhone", ") ", "like ", "Windows Phone", "\u{1F980}", "Edg/",
                ]),
                0..60,
            ),
        ) {
            let agent = words.concat();
            let (browser, system) = software(agent.as_bytes());
            prop_assert_eq!(software(agent.as_bytes()), (browser, system));
        }
    }
}
