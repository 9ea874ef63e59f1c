//! Finds the first pattern of a list that matches a user agent.
//!
//! Almost all patterns are literal texts. One Aho–Corasick automaton finds these in one pass, and with them the texts
//! that a match of most other patterns begins or ends with; only where such a text is found is the regular expression
//! run. The few patterns without such a text are one set of regular expressions, a second pass.

use std::fmt::Display;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;
use regex_syntax::hir::literal::{ExtractKind, Extractor, Seq};

/// The shortest text that is worth looking for before a regular expression is run.
const MIN_NEEDLE_BYTES: usize = 3;
/// All texts of the automaton together: a pattern may stand for some hundreds of them.
const MAX_NEEDLES_BYTES: usize = 4 * 1024 * 1024;
/// The patterns that need a regular expression.
const MAX_REGEXES: usize = 1_000;
/// The compiled size of each of these.
const MAX_REGEX_BYTES: usize = 64 * 1024;
/// The patterns without a text to look for.
const MAX_IN_SET: usize = 100;
/// The compiled size of all of them together.
const MAX_SET_BYTES: usize = 1024 * 1024;

/// A pattern can't be used, or all of them together can't.
#[derive(Debug)]
pub(super) struct PatternProblem {
    /// The place of the pattern.
    pub pattern: Option<usize>,
    pub problem: String,
}

/// Compiled patterns.
#[derive(Debug)]
pub(super) struct PatternMatcher {
    needles: AhoCorasick,
    /// For each needle, what it tells.
    meanings: Box<[Needle]>,
    /// Patterns that are tried where a needle of theirs is found, by their place.
    regexes: Box<[(u16, Regex)]>,
    set: RegexSet,
    /// The place of each pattern of the set.
    set_places: Box<[u16]>,
}

/// A text of the automaton.
#[derive(Debug, Clone, Copy)]
struct Needle {
    /// The place of its pattern.
    place: u16,
    /// Whether the pattern matches wherever this text is; else its regular expression decides.
    is_whole: bool,
}

impl PatternMatcher {
    /// Compiles patterns. Their places, from 0 on, are below 65,536.
    pub fn compile<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<Self, PatternProblem> {
        let mut parts = Parts::default();
        for (place, pattern) in patterns.enumerate() {
            parts.add(place, pattern).map_err(|problem| PatternProblem { pattern: Some(place), problem })?;
        }
        let together = |problem: String| PatternProblem { pattern: None, problem };
        let needles = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            // The DFA takes half the time (351 ns against 746 ns an agent of a browser, 2026-11-26) and 20 times the memory.
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&parts.needles)
            .map_err(|error| together(error.to_string()))?;
        let set = RegexSetBuilder::new(parts.set_patterns)
            .unicode(false)
            .size_limit(MAX_SET_BYTES)
            .dfa_size_limit(MAX_SET_BYTES)
            .build()
            .map_err(|error| together(error.to_string()))?;
        Ok(Self {
            needles,
            meanings: parts.meanings.into(),
            regexes: parts.regexes.into(),
            set,
            set_places: parts.set_places.into(),
        })
    }

    /// The place of the first pattern that matches.
    pub fn first_match(&self, agent: &[u8]) -> Option<usize> {
        let mut first = u16::MAX;
        // No allocation where nothing is found, which is so for people.
        let mut doubtful: Vec<u16> = Vec::new();
        for found in self.needles.find_overlapping_iter(agent) {
            let Needle { place, is_whole } = self.meanings[found.pattern().as_usize()];
            if is_whole {
                first = first.min(place);
            } else {
                doubtful.push(place);
            }
        }
        // Each expression runs once at most, however often its text is found.
        doubtful.sort_unstable();
        doubtful.dedup();
        for place in doubtful.into_iter().take_while(|&place| place < first) {
            if self.regex(place).is_some_and(|regex| regex.is_match(agent)) {
                first = place;
                break;
            }
        }
        if !self.set_places.is_empty() {
            let in_set = self.set.matches(agent).iter().map(|index| self.set_places[index]).min();
            first = first.min(in_set.unwrap_or(u16::MAX));
        }
        (first != u16::MAX).then_some(usize::from(first))
    }

    fn regex(&self, place: u16) -> Option<&Regex> {
        let index = self.regexes.binary_search_by_key(&place, |&(place, _)| place).ok()?;
        Some(&self.regexes[index].1)
    }
}

/// What patterns are compiled from.
#[derive(Default)]
struct Parts {
    needles: Vec<Vec<u8>>,
    needles_bytes: usize,
    meanings: Vec<Needle>,
    regexes: Vec<(u16, Regex)>,
    set_patterns: Vec<String>,
    set_places: Vec<u16>,
}

impl Parts {
    fn add(&mut self, place: usize, pattern: &str) -> Result<(), String> {
        let place = u16::try_from(place).ok().filter(|&place| place < u16::MAX).ok_or("too many patterns")?;
        if let Some(text) = literal(pattern) {
            return self.add_needle(text, Needle { place, is_whole: true });
        }
        let hir = ParserBuilder::new()
            .unicode(false)
            .utf8(false)
            .build()
            .parse(pattern)
            .map_err(|error| not_a_pattern(&error))?;
        if hir.properties().minimum_len() == Some(0) {
            return Err("`pattern` matches the empty text, and so everything".into());
        }
        match needles_of(&hir) {
            Some((needles, is_whole)) => {
                for needle in needles {
                    self.add_needle(needle, Needle { place, is_whole })?;
                }
                if is_whole { Ok(()) } else { self.add_regex(place, pattern) }
            }
            None if self.set_places.len() == MAX_IN_SET => {
                Err(format!("`pattern` is one of more than {MAX_IN_SET} that begin and end with no certain text"))
            }
            None => {
                self.set_patterns.push(pattern.to_owned());
                self.set_places.push(place);
                Ok(())
            }
        }
    }

    fn add_needle(&mut self, text: Vec<u8>, meaning: Needle) -> Result<(), String> {
        self.needles_bytes += text.len();
        if self.needles_bytes > MAX_NEEDLES_BYTES {
            return Err("`pattern` and those before it stand for too many texts".into());
        }
        self.needles.push(text);
        self.meanings.push(meaning);
        Ok(())
    }

    fn add_regex(&mut self, place: u16, pattern: &str) -> Result<(), String> {
        if self.regexes.len() == MAX_REGEXES {
            return Err(format!("`pattern` is one of more than {MAX_REGEXES} that are no plain text"));
        }
        let mut builder = RegexBuilder::new(pattern);
        builder.unicode(false).size_limit(MAX_REGEX_BYTES).dfa_size_limit(MAX_REGEX_BYTES);
        self.regexes.push((place, builder.build().map_err(|error| not_a_pattern(&error))?));
        Ok(())
    }
}

fn not_a_pattern(error: &dyn Display) -> String {
    // The last line says what is wrong; those before it show where.
    let text = error.to_string();
    let problem = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("`pattern` is not a usable regular expression: {problem}")
}

/// The text of a pattern that is one, read without the parser of regular expressions: at the start of a process there
/// are more than a thousand.
fn literal(pattern: &str) -> Option<Vec<u8>> {
    let mut text = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => text.push(bytes.next().filter(|next| b"./-()[]+*?|^$\\{}!".contains(next))?),
            b'.' | b'+' | b'*' | b'?' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'|' | b'^' | b'$' => return None,
            _ => text.push(byte),
        }
    }
    (!text.is_empty()).then_some(text)
}

/// The texts of which one is in whatever a pattern matches, and whether one of them is also enough. `None`: there are
/// none, or too many.
fn needles_of(hir: &Hir) -> Option<(Vec<Vec<u8>>, bool)> {
    let has_no_anchor = hir.properties().look_set().is_empty();
    let extracted = [ExtractKind::Prefix, ExtractKind::Suffix].map(|kind| {
        let mut extractor = Extractor::new();
        extractor.kind(kind);
        extractor.extract(hir)
    });
    let texts = |seq: &Seq| -> Option<Vec<Vec<u8>>> {
        Some(seq.literals()?.iter().map(|literal| literal.as_bytes().to_vec()).collect())
    };
    if has_no_anchor && extracted[0].is_exact() {
        return Some((texts(&extracted[0]).filter(|texts| !texts.is_empty())?, true));
    }
    let is_usable = |seq: &&Seq| seq.min_literal_len().is_some_and(|length| length >= MIN_NEEDLE_BYTES);
    // The longer the texts, the more rarely they are found.
    let best = extracted.iter().filter(is_usable).max_by_key(|seq| seq.min_literal_len())?;
    Some((texts(best)?, false))
}
