//! Reads the list and the networks of bots, reads the networks again when they change, and tells what a user agent is
//! taken for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{StartError, refused, watched_file};
use crate::config::Config;
use crate::domain::bots::{BotList, BotNetworks, BotReason, BotRules, MAX_LIST_BYTES, SharedBotRules};

const LIST: &str = "bots.list";
const NETWORKS: &str = "bots.networks";
/// Most bytes of the file of networks: some more than it can have networks.
const MAX_NETWORKS_BYTES: u64 = 16 * 1024 * 1024;

/// The rules of a service with these settings.
pub(super) fn open(config: &Config) -> Result<BotRules, StartError> {
    let networks = match &config.bots.networks {
        Some(path) => Arc::new(read_networks(path).map_err(|error| unreadable(config, NETWORKS, path, &error))?),
        None => Arc::default(),
    };
    Ok(BotRules::new(open_list(config)?, networks))
}

fn open_list(config: &Config) -> Result<Arc<BotList>, StartError> {
    let Some(path) = &config.bots.list else { return Ok(BotList::built_in()) };
    let bytes =
        watched_file::read(path, MAX_LIST_BYTES as u64).map_err(|error| unreadable(config, LIST, path, &error))?;
    let not_valid = |reason: &dyn std::fmt::Display| refused(config, LIST, format!("{}: {reason}", path.display()));
    let text = String::from_utf8(bytes).map_err(|_| not_valid(&"not UTF-8"))?;
    BotList::parse(&text).map(Arc::new).map_err(|fault| not_valid(&fault))
}

fn unreadable(config: &Config, setting: &'static str, path: &Path, error: &io::Error) -> StartError {
    refused(config, setting, format!("{} can't be read: {error}", path.display()))
}

/// Reads the networks again whenever their file has changed. Stop it by aborting it.
pub(super) fn watch_networks(path: PathBuf, rules: SharedBotRules) -> JoinHandle<()> {
    watched_file::watch(NETWORKS, path, move |path| {
        let networks = read_networks(path)?;
        let ranges = networks.ranges();
        if rules.replace_networks(networks) {
            tracing::info!(ranges, "the networks of bots are replaced");
        }
        Ok(())
    })
}

fn read_networks(path: &Path) -> io::Result<BotNetworks> {
    let bytes = watched_file::read(path, MAX_NETWORKS_BYTES)?;
    let (networks, faults) = BotNetworks::parse(&String::from_utf8_lossy(&bytes));
    if let Some(line) = faults.first() {
        let (path, faults) = (path.display(), faults.len());
        tracing::warn!(%path, line, faults, "skipped invalid lines in the file of bot networks");
    }
    Ok(networks)
}

/// What a user agent is taken for with these settings, and why, in one line.
///
/// # Errors
/// The file of the list can't be read or is not valid.
pub fn describe_agent(config: &Config, agent: &str) -> Result<String, StartError> {
    let list = open_list(config)?;
    let name = match &config.bots.list {
        Some(path) => path.display().to_string(),
        None => format!("the built-in list ({})", BotList::built_in_version()),
    };
    let Some(verdict) = list.verdict(agent.as_bytes()) else {
        return Ok(format!("not a bot: no pattern of {name} matches"));
    };
    let reason = match verdict.reason {
        BotReason::EmptyAgent => "the user agent is empty".to_owned(),
        BotReason::Pattern(pattern) => format!("matches {pattern} of {name}"),
        BotReason::Word(word) => format!("has the word {word:?}, which is part of {name}"),
        // These are not of a user agent.
        BotReason::Prefetch | BotReason::Network => "by its request".to_owned(),
    };
    Ok(format!("{}: {reason}", verdict.kind.label()))
}
