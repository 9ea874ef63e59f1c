//! Small files that a node keeps beside its store: its id, and the master key it made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

use super::StartError;
use crate::domain::hit::NodeId;
use crate::domain::vault::Vault;

/// The node's id: it stays with the journal that the node writes. Made where it is not there.
pub fn node_id(path: &Path) -> Result<NodeId, StartError> {
    let text = read_or_create(path, || Ok(Uuid::now_v7().to_string()))?;
    Uuid::try_parse(text.trim()).map(NodeId).map_err(|_| damaged(path, "is no node id"))
}

/// The master key that this node made for itself; `None` where it made none.
pub fn master_key(path: &Path) -> Result<Option<[u8; Vault::KEY_LENGTH]>, StartError> {
    read(path)?.map(|text| key_in(path, &text)).transpose()
}

/// As [`master_key`], made where it is not there.
pub fn make_master_key(path: &Path) -> Result<[u8; Vault::KEY_LENGTH], StartError> {
    let make = || {
        let mut key = [0; Vault::KEY_LENGTH];
        SystemRandom::new().fill(&mut key).map_err(|_| StartError::NoRandomness)?;
        Ok(STANDARD.encode(key))
    };
    key_in(path, &read_or_create(path, make)?)
}

fn key_in(path: &Path, text: &str) -> Result<[u8; Vault::KEY_LENGTH], StartError> {
    let key = STANDARD.decode(text.trim()).ok().and_then(|key| key.try_into().ok());
    key.ok_or_else(|| damaged(path, "is no base64 of 32 bytes"))
}

/// What is in the file; where there is none, one is made, readable by its owner alone. It is whole or not there.
fn read_or_create(path: &Path, make: impl FnOnce() -> Result<String, StartError>) -> Result<String, StartError> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let directory = path.parent().map(File::open).transpose().map_err(|error| file_error(path, error))?;
    // Of two processes that are started at once, one makes it. Not all network file systems can lock a directory; there the one
    // that comes last has it, and the other does not get the store.
    let _ = directory.as_ref().map(File::lock);
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let text = make()?;
    let unfinished = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        directory.as_ref().map_or(Ok(()), File::sync_all)
    };
    write().map_err(|error| file_error(path, error))?;
    Ok(text)
}

fn read(path: &Path) -> Result<Option<String>, StartError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error(path, error)),
    }
}

fn file_error(path: &Path, source: io::Error) -> StartError {
    StartError::File { path: path.display().to_string(), source }
}

fn damaged(path: &Path, reason: &'static str) -> StartError {
    StartError::DamagedFile { path: path.display().to_string(), reason }
}
