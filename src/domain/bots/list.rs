//! The list of user agents of bots: the built-in one, or the operator's.

use std::sync::{Arc, LazyLock};

use ring::digest::{Context, SHA256};
use serde_json::Value;
use thiserror::Error;

use super::matcher::{PatternMatcher, PatternProblem};
use super::{BotKind, BotReason, BotVerdict, MAX_AGENT_BYTES, built_in, words};

/// The longest text of an operator's list, in bytes.
pub const MAX_LIST_BYTES: usize = 1024 * 1024;
/// The most patterns of an operator's list.
pub const MAX_PATTERNS: usize = 10_000;
/// The longest pattern, in bytes.
pub const MAX_PATTERN_BYTES: usize = 512;

/// Patterns with their kinds. The first that matches decides.
#[derive(Debug)]
pub struct BotList {
    rules: Box<[(Box<str>, BotKind)]>,
    matcher: PatternMatcher,
    /// Whether the words of the built-in list are looked for, where no pattern matches.
    with_words: bool,
    fingerprint: [u8; 32],
}

/// An operator's list can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BotListFault {
    #[error("longer than {MAX_LIST_BYTES} bytes")]
    TooLong,
    #[error("not JSON: {0}")]
    NotJson(String),
    #[error("not a JSON array of objects with `pattern` and `kind`")]
    NotAnArray,
    #[error("more than {MAX_PATTERNS} patterns")]
    TooMany,
    #[error("entry {entry}: {problem}")]
    Entry {
        /// From 1 on.
        entry: usize,
        problem: String,
    },
    #[error("all patterns together: {0}")]
    Together(String),
}

impl BotList {
    /// The list that comes with the program. It is compiled once.
    pub fn built_in() -> Arc<Self> {
        static LIST: LazyLock<Arc<BotList>> = LazyLock::new(|| {
            let rules = built_in::rules().map(|(pattern, kind)| (pattern.into(), kind)).collect();
            // The tests compile the same text.
            let list = BotList::compile(rules, true).expect("the built-in list is valid");
            Arc::new(list)
        });
        Arc::clone(&LIST)
    }

    /// Name, version and date of the built-in list.
    pub fn built_in_version() -> &'static str {
        built_in::version()
    }

    /// Reads an operator's list: a JSON array of objects with `pattern`, a regular expression without look-around whose
    /// classes are those of ASCII, and `kind`, a label of [`BotKind`] other than `prefetch`.
    pub fn parse(text: &str) -> Result<Self, BotListFault> {
        if text.len() > MAX_LIST_BYTES {
            return Err(BotListFault::TooLong);
        }
        let Value::Array(entries) =
            serde_json::from_str(text).map_err(|error| BotListFault::NotJson(error.to_string()))?
        else {
            return Err(BotListFault::NotAnArray);
        };
        if entries.len() > MAX_PATTERNS {
            return Err(BotListFault::TooMany);
        }
        let rules = entries.iter().enumerate().map(|(place, entry)| {
            parse_entry(entry).map_err(|problem| BotListFault::Entry { entry: place + 1, problem })
        });
        Self::compile(rules.collect::<Result<_, _>>()?, false)
    }

    fn compile(rules: Box<[(Box<str>, BotKind)]>, with_words: bool) -> Result<Self, BotListFault> {
        let matcher = PatternMatcher::compile(rules.iter().map(|(pattern, _)| &**pattern)).map_err(
            |PatternProblem { pattern, problem }| match pattern {
                Some(place) => BotListFault::Entry { entry: place + 1, problem },
                None => BotListFault::Together(problem),
            },
        )?;
        let mut context = Context::new(&SHA256);
        if with_words {
            context.update(words::table().as_bytes());
        }
        for (pattern, kind) in &rules {
            context.update(&[0xFF, *kind as u8]);
            context.update(pattern.as_bytes());
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Ok(Self { rules, matcher, with_words, fingerprint })
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// A list of these patterns, which looks for words if `with_words`. If it is the built-in list, that is returned.
    ///
    /// # Errors
    /// If a pattern is not valid.
    pub fn of_parts(
        patterns: impl IntoIterator<Item = (Box<str>, BotKind)>,
        with_words: bool,
    ) -> Result<Arc<Self>, BotListFault> {
        let list = Self::compile(patterns.into_iter().collect(), with_words)?;
        let built_in = Self::built_in();
        Ok(if list.fingerprint == built_in.fingerprint { built_in } else { Arc::new(list) })
    }

    /// The patterns with their kinds, and whether words are looked for.
    pub fn parts(&self) -> (impl Iterator<Item = (&str, BotKind)>, bool) {
        (self.rules.iter().map(|(pattern, kind)| (&**pattern, *kind)), self.with_words)
    }

    pub(super) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// What a user agent is taken for; `None` is a person. Reads its first [`MAX_AGENT_BYTES`].
    pub fn verdict(&self, agent: &[u8]) -> Option<BotVerdict<'_>> {
        let agent = &agent[..agent.len().min(MAX_AGENT_BYTES)];
        if agent.trim_ascii().is_empty() {
            return Some(BotVerdict { kind: BotKind::Tool, reason: BotReason::EmptyAgent });
        }
        if let Some(place) = self.matcher.first_match(agent) {
            let (pattern, kind) = &self.rules[place];
            return Some(BotVerdict { kind: *kind, reason: BotReason::Pattern(pattern) });
        }
        let (kind, word) = words::kind_by_word(agent).filter(|_| self.with_words)?;
        Some(BotVerdict { kind, reason: BotReason::Word(word) })
    }
}

fn parse_entry(entry: &Value) -> Result<(Box<str>, BotKind), String> {
    let Value::Object(fields) = entry else { return Err("not an object with `pattern` and `kind`".into()) };
    if let Some(unknown) = fields.keys().find(|name| !matches!(name.as_str(), "pattern" | "kind")) {
        let shown: String = unknown.chars().take(40).collect();
        return Err(format!("unknown field {shown:?}; an entry has `pattern` and `kind`"));
    }
    let text = |name: &str| {
        let text = fields.get(name).and_then(Value::as_str);
        text.ok_or_else(|| format!("`{name}` is missing, or not a text"))
    };
    let pattern = text("pattern")?;
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(format!("`pattern` has more than {MAX_PATTERN_BYTES} bytes"));
    }
    let kind = BotKind::of_label(text("kind")?).filter(|&kind| kind != BotKind::Prefetch);
    let kind = kind.ok_or("`kind` is one of preview, crawler, monitor, scanner and tool")?;
    Ok((pattern.into(), kind))
}
