//! Words by which bots that no list has call themselves.

use super::BotKind;

/// The words, and where they have to stand in a word of the user agent. Earlier ones are tried first.
const WORDS: [(&str, Place, BotKind); 9] = [
    ("preview", Place::End, BotKind::Preview),
    ("monitor", Place::End, BotKind::Monitor),
    ("monitoring", Place::End, BotKind::Monitor),
    ("bot", Place::End, BotKind::Crawler),
    ("bots", Place::End, BotKind::Crawler),
    ("crawl", Place::Start, BotKind::Crawler),
    ("crawler", Place::End, BotKind::Crawler),
    ("spider", Place::End, BotKind::Crawler),
    ("headless", Place::Start, BotKind::Tool),
];

/// Words that end like a bot's and are none: the telephones of the manufacturer Cubot.
const NO_BOTS: [&str; 1] = ["cubot"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    End,
}

/// The kind that a word of `agent` tells, and that word. A word is a run of letters: `FooBot/1.0`, `foo_bot2` and
/// `Robot` have the word `bot`, `bottle` has not.
pub(super) fn kind_by_word(agent: &[u8]) -> Option<(BotKind, &'static str)> {
    let words = agent.split(|byte| !byte.is_ascii_alphabetic()).filter(|word| word.len() >= 3);
    // The first of the table, wherever it stands: what a bot is for says more than that it is one.
    let place = words.filter_map(place_in_table).min()?;
    let (word, _, kind) = WORDS[place];
    Some((kind, word))
}

fn place_in_table(word: &[u8]) -> Option<usize> {
    // Most words have none of these ends. `headless` and `crawl` are looked for at the start.
    let (first, last) = (word.first()?.to_ascii_lowercase(), word.last()?.to_ascii_lowercase());
    if !matches!(last, b't' | b's' | b'r' | b'w' | b'g') && !matches!(first, b'c' | b'h') {
        return None;
    }
    let found = WORDS.iter().position(|(text, place, _)| {
        let text = text.as_bytes();
        word.len() >= text.len()
            && match place {
                Place::Start => word[..text.len()].eq_ignore_ascii_case(text),
                Place::End => word[word.len() - text.len()..].eq_ignore_ascii_case(text),
            }
    })?;
    let is_none = NO_BOTS.iter().any(|other| word.eq_ignore_ascii_case(other.as_bytes()));
    (!is_none).then_some(found)
}

/// All that decides here, for the fingerprint of a list.
pub(super) fn table() -> String {
    format!("{WORDS:?}{NO_BOTS:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_at_their_boundaries() {
        for (agent, expected) in [
            ("ExampleBot/1.0 (+https://example.com)", Some(BotKind::Crawler)),
            ("example_bot2", Some(BotKind::Crawler)),
            ("ROBOT", Some(BotKind::Crawler)),
            ("our bots", Some(BotKind::Crawler)),
            ("Mozilla/5.0 (compatible; a web crawler)", Some(BotKind::Crawler)),
            ("Crawling/2", Some(BotKind::Crawler)),
            ("WebSpider", Some(BotKind::Crawler)),
            ("LinkPreview/1", Some(BotKind::Preview)),
            ("UptimeMonitor/1 bot", Some(BotKind::Monitor)),
            ("Foo-Monitoring/1", Some(BotKind::Monitor)),
            ("HeadlessChrome/150", Some(BotKind::Tool)),
            ("headless browser of a crawler", Some(BotKind::Crawler)),
            ("bottle/0.1", None),
            ("CUBOT_NOTE_S", None),
            ("Cubot KingKong", None),
            ("Scrawl", None),
            ("Spiderman", None),
            ("", None),
            ("bo", None),
        ] {
            assert_eq!(kind_by_word(agent.as_bytes()).map(|(kind, _)| kind), expected, "{agent}");
        }
    }

    #[test]
    fn no_word_is_left_out_for_its_letters() {
        for (text, place, kind) in WORDS {
            let word = match place {
                Place::Start => format!("{text}zz"),
                Place::End => format!("zz{text}"),
            };
            for word in [word.clone(), word.to_ascii_uppercase(), text.to_owned()] {
                assert_eq!(kind_by_word(word.as_bytes()).map(|(kind, _)| kind), Some(kind), "{word}");
            }
        }
    }
}
