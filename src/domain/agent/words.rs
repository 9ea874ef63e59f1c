//! The words of user agents that tell browser and system.

/// What words tell: sets of bits.
pub(super) mod clue {
    /// Decides alone: Chrome for iOS.
    pub const CHROME_FOR_IOS: u32 = 1 << 0;
    pub const EDGE: u32 = 1 << 1;
    pub const OPERA: u32 = 1 << 2;
    /// A browser or an app that is none of those with a label.
    pub const OTHER_BROWSER: u32 = 1 << 3;
    pub const SAMSUNG: u32 = 1 << 4;
    pub const FIREFOX: u32 = 1 << 5;
    pub const CHROME: u32 = 1 << 6;
    pub const SAFARI: u32 = 1 << 7;
    /// `Version/26.0`: Safari's, and in web views of Android.
    pub const VERSION: u32 = 1 << 8;
    /// `wv`: a web view of Android.
    pub const WEB_VIEW: u32 = 1 << 9;
    /// A system that is none of those with a label.
    pub const OTHER_SYSTEM: u32 = 1 << 10;
    pub const WINDOWS: u32 = 1 << 11;
    pub const IOS: u32 = 1 << 12;
    pub const ANDROID: u32 = 1 << 13;
    pub const CHROME_OS: u32 = 1 << 14;
    pub const MACINTOSH: u32 = 1 << 15;
    /// The kernel of Apple's systems.
    pub const DARWIN: u32 = 1 << 16;
    pub const LINUX: u32 = 1 << 17;
    /// The word `x86`, of `x86_64`.
    pub const INTEL: u32 = 1 << 18;
    /// Counts only as the name of a product, with a `/` behind it: as a word, it also names devices.
    pub const OF_PRODUCT: u32 = 1 << 31;
}

use clue::{
    ANDROID, CHROME, CHROME_FOR_IOS, CHROME_OS, DARWIN, EDGE, FIREFOX, INTEL, IOS, LINUX, MACINTOSH, OF_PRODUCT, OPERA,
    OTHER_BROWSER, OTHER_SYSTEM, SAFARI, SAMSUNG, VERSION, WEB_VIEW, WINDOWS,
};

/// The longest word of the table: as many bytes as a key has.
const MAX_WORD: usize = 16;

/// A word in lower case as a number, so that numbers are in the order of words.
const fn key(word: &[u8]) -> u128 {
    assert!(word.len() <= MAX_WORD);
    let (mut key, mut at) = (0, 0);
    while at < MAX_WORD {
        let byte = if at < word.len() { word[at].to_ascii_lowercase() } else { 0 };
        key = (key << 8) | byte as u128;
        at += 1;
    }
    key
}

/// Words with the same meaning, each with a space behind it.
const GROUPS: [(u32, &str); 23] = [
    (CHROME_FOR_IOS, "crios crmo "),
    (EDGE | OF_PRODUCT, "edg edga edge edgios "),
    (OPERA, "opera opios "),
    (OPERA | OF_PRODUCT, "coast opr oprgx opt opx "),
    (SAMSUNG, "samsungbrowser "),
    (FIREFOX, "fennec firefox fxios "),
    (FIREFOX | OF_PRODUCT, "focus klar "),
    (CHROME, "chrome chromium headlesschrome "),
    (SAFARI, "safari "),
    (VERSION, "version "),
    (WEB_VIEW, "wv "),
    // Names that also end in `browser` are told by that, see `of_ending`.
    (
        OTHER_BROWSER,
        "2345chrome 2345explorer 360ee 360se alipayclient arkweb avant baiduboxapp barcelona bdspark brave \
         daumapps ecosia fb4a fban fbav iab iemobile instagram iron kakaostory kakaotalk klarna linkedinapp \
         metaiab metasr micromessenger mrchrome msie musical naver pinterest qqbrowserlite rekonq snapchat \
         sogoumse steam swiftfox tesla tiktok trident trill twitter ucpc ucweb viber weibo whale zalo ",
    ),
    (IOS | OTHER_BROWSER, "fbios "),
    (
        OTHER_BROWSER | OF_PRODUCT,
        "arora atlas avast avg avira basilisk bingsapphire bingweb bolt bonecho bowser camino chimera cliqz \
         cobalt conkeror ddg dolfin dolphin dooble dragon duckduckgo electron epiphany falkon firebird flock \
         flow galeon goanna gsa hbpc helio iceape icecat icedragon iceweasel iridium k9 kindle konqueror \
         librewolf line luakit lunascape maxthon meleon midori minimo mxios navigator netscape norton omniweb \
         otter palemoon phantomjs phoenix phx puffin qbcore qq quark quarkpc qupzilla rockmelt seamonkey silk \
         skyfire sleipnir slimboat slimjet vivaldi waterfox webpositive wolvic ",
    ),
    (
        OTHER_SYSTEM,
        "appletv bada bb10 blackberry crkey freebsd fuchsia haiku harmonyos hpwos kaios kepler maemo meego \
         morphos netbsd netrangemmh nettv nintendo openbsd openharmony palmos palmsource playbook playstation \
         qnx roku s60 sailfish series40 series60 symbian symbianos symbos tizen tvos viera watchos wds web0s \
         webos xbox ",
    ),
    (WINDOWS, "win win32 win64 win95 win98 windows winnt "),
    (IOS, "ios ipad iphone ipod "),
    (ANDROID, "adr android dalvik "),
    (CHROME_OS, "cros "),
    (MACINTOSH, "macintosh macos "),
    (
        LINUX,
        "centos debian deepin fedora gentoo jolicloud knoppix kubuntu linpus linspire linux lubuntu mageia \
         mandriva manjaro opensuse pclinuxos raspbian redhat sabayon slackware suse ubuntu vectorlinux \
         xubuntu zenwalk ",
    ),
    (DARWIN, "darwin "),
    (INTEL, "x86 "),
];

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let (text, mut at) = (GROUPS[group].1.as_bytes(), 0);
        while at < text.len() {
            count += (text[at] == b' ') as usize;
            at += 1;
        }
        group += 1;
    }
    count
};

/// All words, sorted.
static TABLE: [(u128, u32); COUNT] = {
    let mut table = [(0, 0); COUNT];
    let (mut group, mut filled) = (0, 0);
    while group < GROUPS.len() {
        let (meaning, text) = GROUPS[group];
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let mut end = 0;
            while rest[end] != b' ' {
                end += 1;
            }
            let (word, behind) = rest.split_at(end);
            let new = key(word);
            // Insertion: what is greater moves up.
            let mut at = filled;
            while at > 0 && table[at - 1].0 > new {
                table[at] = table[at - 1];
                at -= 1;
            }
            table[at] = (new, meaning);
            filled += 1;
            rest = behind.split_at(1).1;
        }
        group += 1;
    }
    table
};

/// Pairs of words, by the second one.
fn of_pair(before: &[u8], word: &[u8]) -> u32 {
    let is = |first: &[u8], second: &[u8]| before.eq_ignore_ascii_case(first) && word.eq_ignore_ascii_case(second);
    match word.len() {
        2 if is(b"mac", b"os") => MACINTOSH,
        2 if is(b"cpu", b"os") => IOS,
        2 if is(b"windows", b"ce") || is(b"watch", b"os") || is(b"apple", b"tv") => OTHER_SYSTEM,
        3 if is(b"red", b"hat") => LINUX,
        5 if is(b"windows", b"phone") => OTHER_SYSTEM,
        6 if is(b"windows", b"mobile") || is(b"rim", b"tablet") => OTHER_SYSTEM,
        7 if is(b"mac", b"powerpc") => MACINTOSH,
        _ => 0,
    }
}

/// Words of which only the beginning or the end is known: `iPhone15`, `BlackBerry9700`, `HuaweiBrowser`.
fn of_ending(word: &[u8]) -> u32 {
    const BROWSER: &[u8] = b"browser";
    let starts = |start: &[u8]| word.len() > start.len() && word[..start.len()].eq_ignore_ascii_case(start);
    if word.len() >= BROWSER.len() && word[word.len() - BROWSER.len()..].eq_ignore_ascii_case(BROWSER) {
        return OTHER_BROWSER;
    }
    match word[0] {
        b'i' | b'I' if starts(b"iphone") || starts(b"ipad") || starts(b"ipod") => IOS,
        b'b' | b'B' if starts(b"blackberry") => OTHER_SYSTEM,
        b'a' | b'A' if starts(b"appletv") => OTHER_SYSTEM,
        b't' | b'T' if starts(b"twitter") => OTHER_BROWSER,
        _ => 0,
    }
}

/// What all words of a user agent tell.
#[derive(Debug)]
pub(super) struct Clues(u32);

impl Clues {
    /// Whether there is one of the clues.
    pub fn has(&self, clues: u32) -> bool {
        self.0 & clues != 0
    }

    pub fn read(agent: &[u8]) -> Self {
        let mut seen = 0;
        let mut before: &[u8] = b"";
        let mut at = 0;
        while at < agent.len() {
            let start = at;
            while at < agent.len() && agent[at].is_ascii_alphanumeric() {
                at += 1;
            }
            let (word, after) = (&agent[start..at], &agent[at..]);
            if word.is_empty() {
                at += 1;
            } else if after.starts_with(b"://") {
                // The words of a URL describe no browser.
                at += after.iter().position(|byte| b" ;,)".contains(byte)).unwrap_or(after.len());
                before = b"";
            } else {
                // `like Android` is another system, `like Firefox` another browser, and `like Mac OS X` an iPhone.
                if before.eq_ignore_ascii_case(b"like") {
                    before = b"";
                } else {
                    seen |= meaning(before, word, after.first() == Some(&b'/'));
                    before = word;
                }
            }
        }
        Self(seen)
    }
}

fn meaning(before: &[u8], word: &[u8], is_product: bool) -> u32 {
    let of_table = (word.len() <= MAX_WORD).then(|| {
        let key = key(word);
        TABLE.binary_search_by_key(&key, |&(known, _)| known).ok().map(|place| TABLE[place].1)
    });
    match of_table.flatten() {
        Some(meaning) if meaning & OF_PRODUCT == 0 => meaning,
        Some(meaning) if is_product => meaning & !OF_PRODUCT,
        Some(_) => 0,
        None => of_pair(before, word) | of_ending(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_each_word_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let words =
            GROUPS.iter().flat_map(|(meaning, words)| words.split_terminator(' ').map(move |word| (word, meaning)));
        for (word, meaning) in words {
            let told = super::meaning(b"", word.to_uppercase().as_bytes(), true);
            assert_eq!(told, meaning & !OF_PRODUCT, "{word}");
        }
    }

    #[test]
    fn words_count_where_they_stand() {
        for (agent, expected) in [
            ("motorola edge 50", 0),
            ("Edge/18", EDGE),
            ("like Android", 0),
            ("Windows Phone", WINDOWS | OTHER_SYSTEM),
            ("https://firefox.example/Windows) Chrome/1", CHROME),
            ("AFooBrowser", OTHER_BROWSER),
            ("iPhone15,3", IOS),
            ("AVeryLongWordThatIsABrowser", OTHER_BROWSER),
            ("AVeryLongWordThatIsNone", 0),
            ("Mac_PowerPC", MACINTOSH),
            ("x86_64", INTEL),
        ] {
            assert_eq!(Clues::read(agent.as_bytes()).0, expected, "{agent}");
        }
    }
}
