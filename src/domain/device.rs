//! Which kind of device followed a link, told from what its browser says of itself.
//!
//! The API contract knows three labels, `desktop`, `mobile` and `tablet`, and every hit has one of
//! them, so that they sum to the link's hits. What says nothing of itself, or is none of the three
//! (a bot, a television, a console), is `desktop`.
//!
//! The rules agree with the categories that the npm package `user-agents` gives its records, which
//! the tests check for each of them. They read the user agent once, word by word, without regular
//! expressions: a first look-up costs well under a microsecond.

mod models;

use models::Model;

/// The kind of device behind a hit.
///
/// The discriminants are written to the store: never renumber them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Device {
    /// A computer, and everything that is neither of the others.
    Desktop = 0,
    /// A telephone, or a player or pager of that size.
    Mobile = 1,
    /// A tablet or an e-reader.
    Tablet = 2,
}

impl Device {
    /// All devices, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Desktop, Self::Mobile, Self::Tablet];

    /// The label that analytics shows.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Mobile => "mobile",
            Self::Tablet => "tablet",
        }
    }
}

/// Tells the device from the `User-Agent` header and, where the browser sent it, from
/// `Sec-CH-UA-Mobile` (`?1` is `Some(true)`, `?0` is `Some(false)`).
///
/// The first rule that fits decides:
///
/// 1. An iPad, iPhone or iPod that is named is one. An app made for the iPhone names both on an
///    iPad, hence the order.
/// 2. A television, console or headset is `desktop`, whatever else it pretends to be: an Xbox calls
///    itself a Windows Phone with Android, its rival's handheld runs Silk.
/// 3. A tablet that says so, or whose model is known for one, is one even when its browser adds
///    `Mobile`, as small tablets and old Android browsers do.
/// 4. A Macintosh is `desktop`. An iPad that asks for desktop sites, as it does by default, can't be
///    told from one.
/// 5. `Mobile`, or the name of a telephone's system: `mobile`.
/// 6. The hint `?1` is `mobile` where nothing above has decided. `?0` says nothing: tablets and
///    desktops send it alike.
/// 7. A browser on Android that does not say `Mobile` is on a tablet; that is how Chrome tells the
///    two apart since its user agents hide the model (`Android 10; K`), and how a foldable's browser
///    behaves while it is open. Apps' HTTP clients never say `Mobile`, so theirs is a telephone.
pub fn classify(user_agent: &str, ch_ua_mobile: Option<bool>) -> Device {
    let clues = Clues::read(user_agent);

    if clues.has(IPAD) {
        return Device::Tablet;
    }
    if clues.has(IPHONE) {
        return Device::Mobile;
    }
    // A bare `TV` is also a word in the names of apps that run on telephones.
    if clues.has(SCREEN) || (clues.has(TV) && !clues.has(MOBILE)) {
        return Device::Desktop;
    }
    if clues.has(TABLET) {
        return Device::Tablet;
    }
    match clues.android.map(models::in_comment) {
        Some(Model::Tablet) => return Device::Tablet,
        Some(Model::Phone) => return Device::Mobile,
        Some(Model::Unknown) | None => {}
    }
    let hinted_mobile = ch_ua_mobile == Some(true);
    if clues.has(MACINTOSH) && !clues.has(AMAZON_OR_READER) && !hinted_mobile {
        return Device::Desktop;
    }
    if clues.has(MOBILE) || clues.has(PHONE) {
        return Device::Mobile;
    }
    if clues.has(AMAZON_OR_READER) {
        return Device::Tablet;
    }
    if hinted_mobile {
        return Device::Mobile;
    }
    match clues.android {
        // Bots leave `Mobile` out without meaning a tablet by it.
        Some(_) if clues.has(BOT) => Device::Desktop,
        Some(_) if user_agent.starts_with("Mozilla/") => Device::Tablet,
        Some(_) => Device::Mobile,
        None => Device::Desktop,
    }
}

/// An iPad by name: `iPad`, `iPad13,1`, `iPadOS`.
const IPAD: u16 = 1 << 0;
/// An iPhone or iPod by name.
const IPHONE: u16 = 1 << 1;
/// A television, console, headset or smart display by name.
const SCREEN: u16 = 1 << 2;
/// The bare word `TV`.
const TV: u16 = 1 << 3;
/// A tablet by the word or by a name that stands outside Android's comment.
const TABLET: u16 = 1 << 4;
/// The word `Mobile`.
const MOBILE: u16 = 1 << 5;
/// A telephone's operating system or browser.
const PHONE: u16 = 1 << 6;
const MACINTOSH: u16 = 1 << 7;
/// Silk, which runs on Amazon's tablets even when it poses as a desktop, or an e-reader.
const AMAZON_OR_READER: u16 = 1 << 8;
const BOT: u16 = 1 << 9;
const ANDROID: u16 = 1 << 10;

/// What the words of a user agent say.
struct Clues<'a> {
    seen: u16,
    /// From behind the first `Android` to the end of its comment: release, language, model.
    android: Option<&'a str>,
}

impl<'a> Clues<'a> {
    fn has(&self, clue: u16) -> bool {
        self.seen & clue != 0
    }

    fn read(user_agent: &'a str) -> Self {
        let bytes = user_agent.as_bytes();
        let mut clues = Self { seen: 0, android: None };
        let mut at = 0;
        while at < bytes.len() {
            if !bytes[at].is_ascii_alphanumeric() {
                at += 1;
                continue;
            }
            let start = at;
            while at < bytes.len() && bytes[at].is_ascii_alphanumeric() {
                at += 1;
            }
            let word = &bytes[start..at];
            let after = &bytes[at..];
            if after.starts_with(b"://") {
                // The address of a bot's page is no description of its device.
                at += after.iter().position(|byte| b" ;,)".contains(byte)).unwrap_or(after.len());
                continue;
            }
            let clue = clue_of(word, &bytes[..start], after);
            clues.seen |= clue;
            if clue == ANDROID && clues.android.is_none() {
                // A word is ASCII, so both its ends are character boundaries.
                let rest = &user_agent[at..];
                clues.android = Some(rest.split_once(')').map_or(rest, |(comment, _)| comment));
            }
        }
        clues
    }
}

/// The clue that a word gives, between what stands before and after it; 0 for none.
fn clue_of(word: &[u8], before: &[u8], after: &[u8]) -> u16 {
    match word {
        b"Android" | b"android" => ANDROID,
        b"Mobile" | b"mobile" | b"MOBILE" => MOBILE,
        b"Macintosh" => MACINTOSH,
        b"Silk" | b"Kindle" | b"NOOK" | b"Nook" => AMAZON_OR_READER,

        // Internet Explorer says `Tablet PC 2.0` on every Windows that has the pen services.
        b"Tablet" | b"tablet" | b"TABLET" if !after.starts_with(b" PC") => TABLET,
        b"PlayBook" | b"TouchPad" => TABLET,
        b"Kobo" if after.starts_with(b" Touch") => TABLET,
        // Windows for ARM was Windows RT in its versions 8 and 8.1, and that came on tablets only.
        b"ARM" if before.ends_with(b"Windows NT 6.2; ") || before.ends_with(b"Windows NT 6.3; ") => TABLET,

        b"TV" if before.ends_with(b"SMART-") || before.ends_with(b"Apple ") => SCREEN,
        b"TV" => TV,
        b"OculusBrowser" | b"PlayStation" | b"PLAYSTATION" | b"Playstation" | b"PSP" | b"Xbox" | b"XBOX"
        | b"Nintendo" | b"SmartTV" | b"GoogleTV" | b"AndroidTV" | b"HbbTV" | b"NETTV" | b"NetCast" | b"Web0S"
        | b"Roku" | b"VIERA" | b"BRAVIA" | b"CrKey" | b"Chromecast" => SCREEN,

        // `Windows Phone 10.0`, and HarmonyOS in its comment `(Phone; OpenHarmony 5.0)`.
        b"Phone" if before.ends_with(b"Windows ") || before.ends_with(b"(") => PHONE,
        b"CE" if before.ends_with(b"Windows ") => PHONE,
        b"Mini" if before.ends_with(b"Opera ") => PHONE,
        b"IEMobile" | b"MobileSafari" | b"Mobi" | b"BB10" | b"SymbianOS" | b"Symbian" | b"SymbOS" | b"Series60"
        | b"Series40" | b"J2ME" | b"MIDP" | b"KAIOS" | b"KaiOS" | b"PalmOS" | b"PalmSource" | b"webOS" | b"Maemo"
        | b"MeeGo" | b"Bada" | b"UCWEB" | b"DoCoMo" => PHONE,

        _ => clue_of_prefix(word),
    }
}

/// As [`clue_of`], for names that run into a number: `iPad13`, `BlackBerry9700`, `NokiaN97`.
fn clue_of_prefix(word: &[u8]) -> u16 {
    let starts = |prefix: &[u8]| word.starts_with(prefix);
    match word[0] {
        b'i' if starts(b"iPad") => IPAD,
        b'i' if starts(b"iPhone") || starts(b"iPod") => IPHONE,
        b'B' if starts(b"BlackBerry") => PHONE,
        b'N' if starts(b"Nokia") => PHONE,
        // Amazon's model names: Fire TV (`AFTMM`, `AFTKA`) and Echo Show (`AEOKN`).
        b'A' if starts(b"AppleTV") || is_amazon_code(word, b"AFT") || is_amazon_code(word, b"AEO") => SCREEN,
        b'M' if starts(b"MIBOX") || starts(b"MiTV") => SCREEN,
        _ if [b"bot".as_slice(), b"Bot", b"spider", b"Spider", b"crawler", b"Crawler"]
            .iter()
            .any(|ending| word.ends_with(ending)) =>
        {
            BOT
        }
        _ => 0,
    }
}

/// Whether `word` is `family` and a few more capitals or digits.
fn is_amazon_code(word: &[u8], family: &[u8]) -> bool {
    word.starts_with(family)
        && (1..=5).contains(&(word.len() - family.len()))
        && word.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_discriminants_are_the_order_of_all() {
        for (index, device) in Device::ALL.into_iter().enumerate() {
            assert_eq!(device as usize, index);
        }
    }

    #[test]
    fn a_bots_address_is_not_read_for_clues() {
        let bot = "Mozilla/5.0 (compatible; SomeBot/1.0; +https://mobile.example.com/iPhone-Tablet)";
        assert_eq!(classify(bot, None), Device::Desktop);
    }

    #[test]
    fn text_that_is_no_ascii_does_no_harm() {
        for text in ["", "é", "Android é)", "Android", "Mozilla/5.0 (Linux; Android 9; 平板) Mobile", "://"] {
            classify(text, None);
        }
    }
}
