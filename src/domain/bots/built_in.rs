//! The list that comes with the program: `bots/built-in.tsv` (see the README beside it), and the words of
//! [`words`](super::words).

use super::BotKind;

/// The version on the first line, then a kind, a tab and a pattern on each.
const TEXT: &str = include_str!("../../../bots/built-in.tsv");

/// What the list is, in words: its name, version and date.
pub(super) fn version() -> &'static str {
    TEXT.split('\n').next().unwrap_or_default()
}

/// Patterns with their kinds, in the order in which they are tried.
pub(super) fn rules() -> impl Iterator<Item = (&'static str, BotKind)> {
    let lines = TEXT.split('\n').skip(1).filter(|line| !line.is_empty());
    lines.filter_map(|line| {
        let (kind, pattern) = line.split_once('\t')?;
        Some((pattern, BotKind::of_label(kind)?))
    })
}
