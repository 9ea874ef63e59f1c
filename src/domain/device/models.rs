//! Device kinds by model name, for browsers that do not send the kind.
//!
//! Two cases need the model. A tablet's browser may add `Mobile` (Android's browser before Chrome always did, and web
//! views on tablets under 600 dp still do), so known tablets are checked before that word. And a telephone may omit
//! `Mobile` in an app or in desktop mode.
//!
//! The table has naming schemes, not single devices, where manufacturers have a scheme.

/// The kind of device of a model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceModel {
    Tablet,
    Phone,
    /// Unknown model: the rest of the user agent decides.
    Unknown,
}

/// Looks for a model in the comment of an Android user agent, given the text after the word `Android`: ` 4.0.3;
/// en-us; KFTT Build/IML74K`.
///
/// A tablet's name anywhere decides, because names of manufacturers and apps may be next to the model.
pub(super) fn in_comment(comment: &str) -> DeviceModel {
    let mut found = DeviceModel::Unknown;
    for part in comment.split(';') {
        let part = part.split_once(" Build/").map_or(part, |(model, _)| model);
        let mut previous = "";
        for word in part.split([' ', '_', '/']).filter(|word| !word.is_empty()) {
            if is_tablet(previous, word) {
                return DeviceModel::Tablet;
            }
            if is_phone(previous, word) {
                found = DeviceModel::Phone;
            }
            previous = word;
        }
    }
    found
}

fn is_phone(previous: &str, word: &str) -> bool {
    match word.as_bytes() {
        // Samsung's letters are product lines: T, P and X are tablets, R are watches. F7 folds to half a telephone;
        // F9 opens to a small tablet, whose browser sends whether it is open.
        [b'S', b'M', b'-', b'F', b'7', ..] => true,
        [b'S', b'M', b'-', line, ..] => b"ACEGJMNS".contains(line),
        // Pixel 8, but not Pixel C or Pixel Tablet.
        [digit, ..] => previous == "Pixel" && digit.is_ascii_digit(),
        [] => false,
    }
}

fn is_tablet(previous: &str, word: &str) -> bool {
    is_of_a_tablet_line(word)
        || TABLET_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
        || TABLETS_OF_TWO_WORDS.iter().any(|&(first, second)| previous == first && word == second)
        || is_called_tablet(word)
        || is_huawei_tablet(word)
        || is_xiaomi_tablet(word)
        || is_lenovo_tablet(previous, word)
        || is_archos_tablet(previous, word)
}

/// Prefixes that only tablets have.
const TABLET_PREFIXES: &[&str] = &[
    // Samsung: Galaxy Tab (T, X), Tab with S Pen (P); before 2013 GT-P, and GT-N5 and GT-N8 for the Note 8.0 and 10.1
    // (GT-N7 is a telephone).
    "SM-T",
    "SM-P",
    "SM-X",
    "GT-P",
    "GT-N5",
    "GT-N8",
    // The same models under the names of carriers in America, Korea and Japan.
    "SCH-I800",
    "SCH-I905",
    "SCH-I705",
    "SCH-I925",
    "SGH-T849",
    "SGH-T859",
    "SGH-T869",
    "SGH-I497",
    "SGH-I957",
    "SGH-I987",
    "SPH-P",
    "SHW-M180",
    "SHW-M380",
    "SHW-M480",
    "SHV-E140",
    "SHV-E150",
    "SHV-E230",
    "SC-01C",
    "SC-02D",
    // Amazon's first models.
    "Kindle",
    // Sony; SO- are docomo's names for Xperia tablets.
    "SGP",
    "SO-03E",
    "SO-05F",
    "SO-05G",
    // LG: G Pad. LG-H and LM-V are telephones of the V line.
    "LG-VK",
    "LG-UK",
    "LM-T",
    // Motorola.
    "Xoom",
    "XOOM",
    "MZ60",
    // Asus, Acer, Barnes & Noble, RCA, Verizon, Nextbook.
    "Transformer",
    "Iconia",
    "BNTV",
    "BNRV",
    "RCT",
    "QTA",
    "NXA",
    // Huawei before its three-letter codes, and spellings of MediaPad with a suffix.
    "MediaPad",
    "S8-701",
    "T1-701",
    "T1-A21",
    "M2-80",
    "M2-A01",
    "PLE-70",
    "FDR-A0",
    // Manufacturers whose only Android devices are tablets.
    "Teclast",
];

/// Names that identify a tablet only as a pair.
const TABLETS_OF_TWO_WORDS: &[(&str, &str)] = &[
    ("Nexus", "7"),
    ("Nexus", "9"),
    ("Nexus", "10"),
    ("Pixel", "C"),
    ("Nokia", "T10"),
    ("Nokia", "T20"),
    ("Nokia", "T21"),
    ("Slate", "7"),
    ("Slate", "8"),
    ("Slate", "10"),
    ("Streak", "7"),
    ("Streak", "10"),
    ("Venue", "7"),
    ("Venue", "8"),
    ("Venue", "10"),
    // Xiaomi Pad 5, whose model has no name.
    ("Xiaomi", "21051182C"),
    ("Xiaomi", "21051182G"),
];

/// Product lines identified by a few letters and the kind of the next character.
fn is_of_a_tablet_line(word: &str) -> bool {
    match word.as_bytes() {
        // Amazon Fire since 2012: KFTT, KFJWI, KFTRPWI.
        [b'K', b'F', code @ ..] => (2..=6).contains(&code.len()) && code.iter().all(u8::is_ascii_uppercase),
        // Lenovo: Tab (TB-X606F, TB350FU) and Yoga Tab (YT3-X50F, YT-J706F).
        [b'T', b'B', next, ..] | [b'Y', b'T', next, ..] => *next == b'-' || next.is_ascii_digit(),
        // LG G Pad: LG-V400 to LG-V940.
        [b'L', b'G', b'-', b'V', digit, ..] => digit.is_ascii_digit(),
        // Asus Transformer (TF101), MeMO Pad (ME173X).
        [b'T', b'F', a, b, c, ..] | [b'M', b'E', a, b, c, ..] => [a, b, c].into_iter().all(u8::is_ascii_digit),
        // Asus ZenPad (P01MA, P027) and Fonepad (K00Z, K012), Acer Iconia (A1-810, B3-A20).
        [b'P', b'0', b'0'..=b'2', _]
        | [b'P', b'0', b'0'..=b'2', _, _]
        | [b'K', b'0', b'0' | b'1', _]
        | [b'A' | b'B', b'1'..=b'3', b'-', _, b'0'..=b'9', b'0'..=b'9', ..] => true,
        // realme Pad (RMP2102), OPPO and OnePlus Pad (OPD2203), vivo Pad (PA2170, DPD2221).
        [b'R', b'M', b'P', digits @ ..] | [b'O' | b'D', b'P', b'D', digits @ ..] | [b'P', b'A', digits @ ..] => {
            digits.len() == 4 && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

/// `Tab`, `TAB3`, `IdeaTab`, `LIFETAB`, `Tablet`, `Pad`, `MatePad`: but not `PadFone`, which is a telephone.
fn is_called_tablet(word: &str) -> bool {
    let bytes = word.as_bytes();
    let ends_with =
        |ending: &[u8]| bytes.len() >= ending.len() && bytes[bytes.len() - ending.len()..].eq_ignore_ascii_case(ending);
    let tab_and_number = match bytes {
        [tab @ .., number, _] | [tab @ .., number] if tab.len() == 3 && number.is_ascii_digit() => {
            tab.eq_ignore_ascii_case(b"tab")
        }
        _ => false,
    };
    ends_with(b"pad") || ends_with(b"tab") || ends_with(b"tablet") || tab_and_number
}

/// Huawei and Honor models have three letters, a generation and a variant: `AGS2-W09`. `W` has no mobile network, so
/// it is never a telephone; for other variants the lines are listed.
fn is_huawei_tablet(word: &str) -> bool {
    const LINES: [&str; 21] = [
        "AGM", "AGR", "AGS", "BAH", "BG2", "BTV", "BZT", "CMR", "CPN", "DBY", "GOT", "HDN", "HEY", "JDN", "KOB", "MON",
        "MRX", "SCM", "SHT", "VRD", "WGR",
    ];
    let Some((line, variant)) = word.split_once('-') else { return false };
    let is_code = (3..=5).contains(&line.len())
        && line.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
        && line.bytes().take(2).all(|byte| byte.is_ascii_uppercase());
    let wifi_only = matches!(variant.as_bytes(), [b'W', a, b, ..] if a.is_ascii_digit() && b.is_ascii_digit());
    let cellular = ["L", "AL", "DL", "TL", "AN"].iter().any(|network| {
        variant.strip_prefix(network).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    is_code && (wifi_only || (cellular && LINES.iter().any(|known| line.starts_with(known))))
}

/// Xiaomi models have year, month and kind: `23043RP34G`, `2405CRPFDG`; `RP` are tablets.
fn is_xiaomi_tablet(word: &str) -> bool {
    let code = word.trim_start_matches(|c: char| c.is_ascii_digit());
    (4..=5).contains(&(word.len() - code.len())) && (code.starts_with("RP") || code.starts_with("CRP"))
}

/// Lenovo's names before `TB`. The same numbers without a variant may be telephones (`A7600-m`).
fn is_lenovo_tablet(previous: &str, word: &str) -> bool {
    const MODELS: [&str; 13] = [
        "A2107A", "A2109A", "A3300-", "A3500-", "A5500-", "A7600-F", "A7600-H", "A7-", "A8-", "A10-", "B6000", "B8000",
        "S6000",
    ];
    previous.eq_ignore_ascii_case("lenovo") && MODELS.iter().any(|model| word.starts_with(model))
}

/// Archos models are numbered by their diagonal in tenths of an inch; from 70 on they are tablets.
fn is_archos_tablet(previous: &str, word: &str) -> bool {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    previous.eq_ignore_ascii_case("archos") && word[..digits].parse::<u16>().is_ok_and(|tenths| tenths >= 70)
}
