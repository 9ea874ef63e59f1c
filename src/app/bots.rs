//! Reads the list and the networks of bots, and tells what a user agent is taken for.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::{StartError, refused};
use crate::config::Config;
use crate::domain::bots::{BotList, BotNetworks, BotReason, BotRules, MAX_LIST_BYTES};

/// Most bytes of the file of networks: some more than it can have networks.
const MAX_NETWORKS_BYTES: usize = 16 * 1024 * 1024;

/// The rules of a service with these settings.
pub(super) fn open(config: &Config) -> Result<BotRules, StartError> {
    let list = match &config.bots.list {
        Some(path) => {
            let list = read(path, MAX_LIST_BYTES)
                .and_then(|text| BotList::parse(&text).map_err(|fault| format!("{}: {fault}", path.display())));
            Arc::new(list.map_err(|reason| refused(config, "bots.list", reason))?)
        }
        None => BotList::built_in(),
    };
    let networks = match &config.bots.networks {
        Some(path) => {
            let text = read(path, MAX_NETWORKS_BYTES).map_err(|reason| refused(config, "bots.networks", reason))?;
            let (networks, faults) = BotNetworks::parse(&text);
            if let Some(line) = faults.first() {
                let (path, faults) = (path.display(), faults.len());
                tracing::warn!(%path, line, faults, "the file of bots' networks has lines that are no network: they are skipped");
            }
            Arc::new(networks)
        }
        None => Arc::default(),
    };
    Ok(BotRules::new(list, networks))
}

/// What a user agent is taken for with these settings, and why, in one line.
///
/// # Errors
/// A file of the settings can't be read or is not valid.
pub fn describe_agent(config: &Config, agent: &str) -> Result<String, StartError> {
    let rules = open(config)?;
    let list = match &config.bots.list {
        Some(path) => path.display().to_string(),
        None => format!("the built-in list ({})", BotList::built_in_version()),
    };
    let Some(verdict) = rules.list().verdict(agent.as_bytes()) else {
        return Ok(format!("not a bot: no pattern of {list} matches"));
    };
    let reason = match verdict.reason {
        BotReason::EmptyAgent => "the user agent is empty".to_owned(),
        BotReason::Pattern(pattern) => format!("matches {pattern} of {list}"),
        BotReason::Word(word) => format!("has the word {word:?}, which is part of {list}"),
        // These follow from what a user agent does not have.
        BotReason::Prefetch | BotReason::Network => "by its request".to_owned(),
    };
    Ok(format!("{}: {reason}", verdict.kind.label()))
}

fn read(path: &Path, max_bytes: usize) -> Result<String, String> {
    let read = || -> io::Result<Vec<u8>> {
        // Opening a named pipe would block until another process writes to it.
        if !path.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) if bytes.len() > max_bytes => Err(format!("{} is larger than {max_bytes} bytes", path.display())),
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display())),
        Err(error) => Err(format!("{} can't be read: {error}", path.display())),
    }
}
