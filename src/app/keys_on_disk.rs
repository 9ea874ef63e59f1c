//! Small files of a node beside its store: its id and the master key that was generated here.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

use super::{StartError, files};
use crate::domain::hit::NodeId;
use crate::domain::vault::Vault;

/// The node's id, which belongs to the journal in the same directory. Generated if the file is missing.
pub fn node_id(path: &Path) -> Result<NodeId, StartError> {
    let text = read_or_create(path, || Ok(Uuid::now_v7().to_string()))?;
    node_id_in(path, &text)
}

/// The id of this node; `None` if no node has ever been started here.
pub fn known_node_id(path: &Path) -> Result<Option<NodeId>, StartError> {
    read(path)?.map(|text| node_id_in(path, &text)).transpose()
}

fn node_id_in(path: &Path, text: &str) -> Result<NodeId, StartError> {
    Uuid::try_parse(text.trim()).map(NodeId).map_err(|_| damaged(path, "not a node id"))
}

/// The master key that was generated on this node, if there is one.
pub fn master_key(path: &Path) -> Result<Option<[u8; Vault::KEY_LENGTH]>, StartError> {
    read(path)?.map(|text| key_in(path, &text)).transpose()
}

/// As [`master_key`], generated if the file is missing.
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
    key.ok_or_else(|| damaged(path, "not the base64 form of 32 bytes"))
}

/// Reads the file, or creates it.
fn read_or_create(path: &Path, make: impl FnOnce() -> Result<String, StartError>) -> Result<String, StartError> {
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let directory = path.parent().map(File::open).transpose().map_err(|error| file_error(path, error))?;
    // Of two processes that start at once, one creates the file. Some network file systems can't lock a directory;
    // there the last rename wins, and the other process can't lock the store.
    let _ = directory.as_ref().map(File::lock);
    if let Some(text) = read(path)? {
        return Ok(text);
    }
    let text = make()?;
    let written = files::write_private(path, &text).and_then(|()| directory.as_ref().map_or(Ok(()), File::sync_all));
    written.map_err(|error| file_error(path, error))?;
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
