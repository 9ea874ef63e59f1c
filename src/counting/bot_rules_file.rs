//! The rules for bots of the batch that a node has begun to count, in a file.
//!
//! A store without transactions may have a part of a batch when its node dies. The next life makes that batch again, from the same
//! records and with the same rules: else a hit could be a bot's in one row and a person's in another.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::domain::bots::{BotKind, BotList, BotNetworks, BotRules};

/// The first byte of the file. Rules of another version can't be read.
const VERSION: u8 = 1;

/// The file with the rules. It is written before a batch is begun with others.
#[derive(Debug)]
pub struct BotRulesFile {
    path: PathBuf,
    /// The fingerprint of the rules in the file.
    kept: Option<[u8; 16]>,
}

impl BotRulesFile {
    /// The file, and the rules that an earlier life has left in it. A file that can't be read or is damaged has none.
    pub fn open(path: PathBuf) -> (Self, Option<BotRules>) {
        let damaged = || io::Error::other("damaged, or of another version");
        let rules = match fs::read(&path).and_then(|bytes| decode(&bytes).ok_or_else(damaged)) {
            Ok(rules) => Some(rules),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(%error, "can't read the rules for bots of the last batch");
                }
                None
            }
        };
        (Self { path, kept: rules.as_ref().map(BotRules::fingerprint) }, rules)
    }

    /// Keeps the rules of the next batch, once the one before is counted.
    ///
    /// # Errors
    /// If the file can't be written. It then has the rules that it had.
    pub fn keep(&mut self, rules: &BotRules) -> io::Result<()> {
        if self.kept == Some(rules.fingerprint()) {
            return Ok(());
        }
        let unfinished = self.path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&encode(rules))?;
        file.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        self.path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?;
        self.kept = Some(rules.fingerprint());
        Ok(())
    }
}

/// What is behind the version.
#[derive(Serialize, Deserialize)]
struct RuleParts {
    /// Kinds by their codes.
    patterns: Vec<(String, u8)>,
    with_words: bool,
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

fn encode(rules: &BotRules) -> Vec<u8> {
    let (patterns, with_words) = rules.list().parts();
    let patterns = patterns.map(|(pattern, kind)| (pattern.to_owned(), kind as u8)).collect();
    let (v4, v6) = (rules.networks().v4_ranges().to_vec(), rules.networks().v6_ranges().to_vec());
    // Can't fail: it writes to memory, and all lengths are known.
    postcard::to_extend(&RuleParts { patterns, with_words, v4, v6 }, vec![VERSION]).unwrap_or_default()
}

/// `None` if another version wrote the bytes, or they are damaged.
fn decode(bytes: &[u8]) -> Option<BotRules> {
    let RuleParts { patterns, with_words, v4, v6 } = postcard::from_bytes(bytes.strip_prefix(&[VERSION])?).ok()?;
    let patterns = patterns.into_iter().map(|(pattern, kind)| Some((pattern.into(), BotKind::of_code(kind)?)));
    let list = BotList::of_parts(patterns.collect::<Option<Vec<_>>>()?, with_words).ok()?;
    Some(BotRules::new(list, Arc::new(BotNetworks::of_ranges(v4, v6))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_the_same_when_they_are_read_again() {
        let own = Arc::new(BotList::parse(r#"[{"pattern": "Special/\\d", "kind": "monitor"}]"#).unwrap());
        let networks = || Arc::new(BotNetworks::parse("192.0.2.0/24\n2001:db8::/32\n::1").0);
        for rules in
            [BotRules::built_in(), BotRules::new(BotList::built_in(), networks()), BotRules::new(own, networks())]
        {
            let bytes = encode(&rules);
            let read = decode(&bytes).unwrap();
            assert_eq!(read.fingerprint(), rules.fingerprint());
            assert_eq!(encode(&read), bytes);
            assert!(decode(&bytes[..bytes.len() - 1]).is_none());
            assert!(decode(&[&[2], &bytes[1..]].concat()).is_none());
        }
        assert!(decode(b"").is_none());
    }

    #[test]
    fn the_last_rules_are_kept_and_a_failure_keeps_those_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bot-rules");
        let with = |networks| BotRules::new(BotList::built_in(), Arc::new(BotNetworks::parse(networks).0));
        let kept = || BotRulesFile::open(path.clone()).1.map(|rules| rules.fingerprint());
        let (mut file, none) = BotRulesFile::open(path.clone());
        assert!(none.is_none());
        for networks in ["192.0.2.0/24", "192.0.2.0/25", "192.0.2.0/25"] {
            file.keep(&with(networks)).unwrap();
            assert_eq!(kept(), Some(with(networks).fingerprint()));
        }
        fs::create_dir(path.with_extension("new")).unwrap();
        file.keep(&with("")).unwrap_err();
        assert_eq!(kept(), Some(with("192.0.2.0/25").fingerprint()));
        file.keep(&with("192.0.2.0/25")).unwrap();
        fs::write(&path, "x").unwrap();
        assert_eq!(kept(), None);
    }
}
