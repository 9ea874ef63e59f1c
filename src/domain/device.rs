//! The kind of device that followed a link, detected from its request headers.
//!
//! The API has three labels: `desktop`, `mobile` and `tablet`. Every hit has exactly one, so they add up to the
//! link's hits. Unknown devices, and devices of other kinds (a bot, a television, a console), are `desktop`.
//!
//! The rules agree with the categories of the records of the npm package `user-agents`; the tests check each record.
//! They read the user agent once, word by word, without regular expressions: a first look-up takes well under a
//! microsecond.

mod models;

use models::DeviceModel;

/// The kind of device of a hit.
///
/// The discriminants are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Device {
    /// A computer, or any device that is not one of the others.
    Desktop = 0,
    /// A telephone, or a device of that size.
    Mobile = 1,
    /// A tablet or an e-reader.
    Tablet = 2,
}

impl Device {
    /// All devices, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Desktop, Self::Mobile, Self::Tablet];

    /// The label in analytics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Desktop => "desktop",
            Self::Mobile => "mobile",
            Self::Tablet => "tablet",
        }
    }
}

/// Detects the device from the `User-Agent` header and, if the browser sent it, `Sec-CH-UA-Mobile` (`?1` is
/// `Some(true)`, `?0` is `Some(false)`).
///
/// The first rule that matches decides:
///
/// 1. The name iPad, iPhone or iPod decides. An app for the iPhone that runs on an iPad has both names, hence the
///    order.
/// 2. A television, console or headset is `desktop`, even if it has other names: an Xbox has the names Windows Phone
///    and Android, and a handheld console the name Silk.
/// 3. The word tablet or the model of a known tablet decides, even if the browser adds `Mobile`, as small tablets and
///    old Android browsers do.
/// 4. A Macintosh is `desktop`. An iPad that requests desktop sites, its default, looks the same.
/// 5. `Mobile`, or the name of a telephone's operating system: `mobile`.
/// 6. The hint `?1` is `mobile`. `?0` decides nothing: tablets and desktops both send it.
/// 7. A browser on Android without `Mobile` is on a tablet. Chrome distinguishes the two so since its user agents
///    hide the model (`Android 10; K`), and an unfolded foldable does the same. HTTP clients of apps never send
///    `Mobile`, so these are telephones.
pub fn classify(user_agent: &str, ch_ua_mobile: Option<bool>) -> Device {
    let clues = Clues::read(user_agent);

    if clues.has(IPAD) {
        return Device::Tablet;
    }
    if clues.has(IPHONE) {
        return Device::Mobile;
    }
    // The word `TV` alone also occurs in the names of apps on telephones.
    if clues.has(SCREEN) || (clues.has(TV) && !clues.has(MOBILE)) {
        return Device::Desktop;
    }
    if clues.has(TABLET) {
        return Device::Tablet;
    }
    match clues.android.map(models::in_comment) {
        Some(DeviceModel::Tablet) => return Device::Tablet,
        Some(DeviceModel::Phone) => return Device::Mobile,
        Some(DeviceModel::Unknown) | None => {}
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
        // A bot without `Mobile` is not a tablet.
        Some(_) if clues.has(BOT) => Device::Desktop,
        Some(_) if user_agent.starts_with("Mozilla/") => Device::Tablet,
        Some(_) => Device::Mobile,
        None => Device::Desktop,
    }
}

/// The name iPad: `iPad`, `iPad13,1`, `iPadOS`.
const IPAD: u16 = 1 << 0;
/// The name iPhone or iPod.
const IPHONE: u16 = 1 << 1;
/// The name of a television, console, headset or smart display.
const SCREEN: u16 = 1 << 2;
/// The word `TV` alone.
const TV: u16 = 1 << 3;
/// The word tablet, or a tablet's name outside Android's comment.
const TABLET: u16 = 1 << 4;
/// The word `Mobile`.
const MOBILE: u16 = 1 << 5;
/// A telephone's operating system or browser.
const PHONE: u16 = 1 << 6;
const MACINTOSH: u16 = 1 << 7;
/// Silk, which runs on Amazon's tablets even in desktop mode, or an e-reader.
const AMAZON_OR_READER: u16 = 1 << 8;
const BOT: u16 = 1 << 9;
const ANDROID: u16 = 1 << 10;

/// The clues that the words of a user agent give.
struct Clues<'a> {
    seen: u16,
    /// The text after the first `Android` to the end of its comment: release, language, model.
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
                // The URL in a bot's user agent does not describe a device.
                at += after.iter().position(|byte| b" ;,)".contains(byte)).unwrap_or(after.len());
                continue;
            }
            let clue = clue_of(word, &bytes[..start], after);
            clues.seen |= clue;
            if clue == ANDROID && clues.android.is_none() {
                // A word is ASCII, so both ends are character boundaries.
                let rest = &user_agent[at..];
                clues.android = Some(rest.split_once(')').map_or(rest, |(comment, _)| comment));
            }
        }
        clues
    }
}

/// The clue of a word, with the text before and after it; 0 if it has none.
fn clue_of(word: &[u8], before: &[u8], after: &[u8]) -> u16 {
    match word {
        b"Android" | b"android" => ANDROID,
        b"Mobile" | b"mobile" | b"MOBILE" => MOBILE,
        b"Macintosh" => MACINTOSH,
        b"Silk" | b"Kindle" | b"NOOK" | b"Nook" => AMAZON_OR_READER,

        // Internet Explorer sends `Tablet PC 2.0` on every Windows with pen services.
        b"Tablet" | b"tablet" | b"TABLET" if !after.starts_with(b" PC") => TABLET,
        b"PlayBook" | b"TouchPad" => TABLET,
        b"Kobo" if after.starts_with(b" Touch") => TABLET,
        // Windows RT, versions 8 and 8.1 of Windows for ARM, ran on tablets only.
        b"ARM" if before.ends_with(b"Windows NT 6.2; ") || before.ends_with(b"Windows NT 6.3; ") => TABLET,

        b"TV" if before.ends_with(b"SMART-") || before.ends_with(b"Apple ") => SCREEN,
        b"TV" => TV,
        b"OculusBrowser" | b"PlayStation" | b"PLAYSTATION" | b"Playstation" | b"PSP" | b"Xbox" | b"XBOX"
        | b"Nintendo" | b"SmartTV" | b"GoogleTV" | b"AndroidTV" | b"HbbTV" | b"NETTV" | b"NetCast" | b"Web0S"
        | b"Roku" | b"VIERA" | b"BRAVIA" | b"CrKey" | b"Chromecast" => SCREEN,

        // `Windows Phone 10.0`, or HarmonyOS with its comment `(Phone; OpenHarmony 5.0)`.
        b"Phone" if before.ends_with(b"Windows ") || before.ends_with(b"(") => PHONE,
        b"CE" if before.ends_with(b"Windows ") => PHONE,
        b"Mini" if before.ends_with(b"Opera ") => PHONE,
        b"IEMobile" | b"MobileSafari" | b"Mobi" | b"BB10" | b"SymbianOS" | b"Symbian" | b"SymbOS" | b"Series60"
        | b"Series40" | b"J2ME" | b"MIDP" | b"KAIOS" | b"KaiOS" | b"PalmOS" | b"PalmSource" | b"webOS" | b"Maemo"
        | b"MeeGo" | b"Bada" | b"UCWEB" | b"DoCoMo" => PHONE,

        _ => clue_of_prefix(word),
    }
}

/// As [`clue_of`], for names that are followed by a number: `iPad13`, `BlackBerry9700`, `NokiaN97`.
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

/// Whether `word` is `family` followed by a few capitals or digits.
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
    fn text_other_than_ascii_is_accepted() {
        for text in ["", "é", "Android é)", "Android", "Mozilla/5.0 (Linux; Android 9; 平板) Mobile", "://"] {
            classify(text, None);
        }
    }
}
