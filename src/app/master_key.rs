//! The master key: set by the operator, or generated at the first start of an embedded store and stored beside it.
//!
//! Secrets that are encrypted under one key can't be decrypted with another. So no key is generated for a store that
//! has secrets, and a key that does not fit is refused before anything is changed.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::store_state::StoreState;
use super::{StartError, files, keys_on_disk};
use crate::config::{Config, StoreKind};
use crate::domain::key::SealedSecret;
use crate::domain::vault::Vault;
use crate::service::root_key::has_key_of;

/// Why there is no usable master key. Nothing was changed.
#[derive(Debug, Error)]
pub enum MasterKeyError {
    #[error(
        "the master key of {store} is missing: {SETTING} is not set, and {} is not there. Nothing was changed. Restore the file \
         from a backup, or set {SETTING} to the original key", file.display()
    )]
    Lost { file: PathBuf, store: StorePlace },
    #[error("{key} is not the master key that {store} was created with. Nothing was changed. {remedy}")]
    OfAnotherStore { key: KeyPlace, store: StorePlace, remedy: Remedy },
    #[error(
        "the secrets in {} are encrypted under the master key of the store that was exported, but no master key is configured here. \
         Nothing was changed. Set {SETTING} to that key, or put that store's master.key at {}, and import again",
        export.display(), file.display()
    )]
    NeededForImport { export: PathBuf, file: PathBuf },
    #[error(
        "{key} is not the master key of the store that {} was exported from. Nothing was changed. {}, and import again",
        export.display(), key.replaced()
    )]
    OfAnotherExport { key: KeyPlace, export: PathBuf },
}

/// The location of a store, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorePlace {
    Directory(PathBuf),
    Keyspace(String),
}

impl StorePlace {
    pub fn of(config: &Config) -> Self {
        match config.store.kind {
            StoreKind::Embedded => Self::Directory(files::store(config)),
            StoreKind::Scylla => Self::Keyspace(config.scylla.keyspace.clone()),
        }
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "the store in {}", path.display()),
            Self::Keyspace(name) => write!(f, "the store in the keyspace {name} of the cluster"),
        }
    }
}

const SETTING: &str = "SIGNPOST_MASTER_KEY";

/// Where a master key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    Setting,
    File(PathBuf),
}

impl KeyPlace {
    /// What to do if it is not the key of an export.
    fn replaced(&self) -> String {
        match self {
            Self::Setting => "Set it to the key of that store".to_owned(),
            Self::File(_) => format!("Put the master.key of that store in its place, or set {SETTING} to that key"),
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting => f.write_str(SETTING),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What to do if the key does not fit the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The setting overrides a file that fits.
    Unset(PathBuf),
    /// The file has the value that the setting needs.
    SetToFile(PathBuf),
    RestoreSetting,
    /// Other nodes have the value.
    SetAsOnOtherNodes,
    RestoreFile,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(file) => write!(f, "The key in {} is the right one: unset {SETTING}", file.display()),
            Self::SetToFile(file) => write!(f, "The key in {} is the right one: set {SETTING} to it", file.display()),
            Self::RestoreSetting => f.write_str("Restore the original value"),
            Self::SetAsOnOtherNodes => f.write_str("Restore the original value, the same as on all other nodes"),
            Self::RestoreFile => {
                write!(f, "Restore the original file from a backup, or set {SETTING} to the original key")
            }
        }
    }
}

/// The vault for a start. A new embedded store without a key gets a generated one.
///
/// # Errors
/// If the key can't be read or generated, or is not the store's key.
pub fn for_start(config: &Config, state: &StoreState) -> Result<Vault, StartError> {
    let Some(check) = &state.master_key_check else {
        return match available(config)? {
            Some((_, vault)) => Ok(vault),
            None => vault_of(&keys_on_disk::make_master_key(&files::master_key(config))?),
        };
    };
    matching_vault(config, check)?
        .ok_or_else(|| MasterKeyError::Lost { file: files::master_key(config), store: StorePlace::of(config) }.into())
}

/// Whether the store's key is available, for commands that need no secrets. A store without secrets has no key.
///
/// # Errors
/// If the available key can't be read, or is not the store's key.
pub fn is_available(config: &Config, state: &StoreState) -> Result<bool, StartError> {
    match &state.master_key_check {
        Some(check) => Ok(matching_vault(config, check)?.is_some()),
        None => Ok(true),
    }
}

/// The vault with the store's key, if a key is available.
fn matching_vault(config: &Config, check: &SealedSecret) -> Result<Option<Vault>, StartError> {
    let Some((key, vault)) = available(config)? else { return Ok(None) };
    if has_key_of(&vault, check) {
        return Ok(Some(vault));
    }
    let file = files::master_key(config);
    let remedy = match &key {
        KeyPlace::File(_) => Remedy::RestoreFile,
        KeyPlace::Setting => match (in_file(&file), config.store.kind) {
            (Ok(Some(vault)), kind) if has_key_of(&vault, check) => match kind {
                StoreKind::Embedded => Remedy::Unset(file),
                StoreKind::Scylla => Remedy::SetToFile(file),
            },
            // A file that can't be read is ignored.
            (_, StoreKind::Embedded) => Remedy::RestoreSetting,
            (_, StoreKind::Scylla) => Remedy::SetAsOnOtherNodes,
        },
    };
    Err(MasterKeyError::OfAnotherStore { key, store: StorePlace::of(config), remedy }.into())
}

/// Checks that the secrets of an export can be decrypted with the key that a start here would use.
///
/// # Errors
/// If they can't be, or if the key can't be read.
pub fn check_for_import(config: &Config, export: &Path, check: &SealedSecret) -> Result<(), StartError> {
    let export = export.to_owned();
    match available(config)? {
        Some((_, vault)) if has_key_of(&vault, check) => Ok(()),
        Some((key, _)) => Err(MasterKeyError::OfAnotherExport { key, export }.into()),
        None => Err(MasterKeyError::NeededForImport { export, file: files::master_key(config) }.into()),
    }
}

/// The available key. The setting takes precedence over the file.
fn available(config: &Config) -> Result<Option<(KeyPlace, Vault)>, StartError> {
    if let Some(key) = &config.secrets.master_key {
        return Ok(Some((KeyPlace::Setting, vault_of(key.expose())?)));
    }
    let file = files::master_key(config);
    Ok(in_file(&file)?.map(|vault| (KeyPlace::File(file), vault)))
}

fn in_file(file: &Path) -> Result<Option<Vault>, StartError> {
    keys_on_disk::master_key(file)?.map(|key| vault_of(&key)).transpose()
}

fn vault_of(key: &[u8; Vault::KEY_LENGTH]) -> Result<Vault, StartError> {
    Vault::new(key).map_err(|_| StartError::NoRandomness)
}
