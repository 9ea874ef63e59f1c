//! The master key: chosen by the operator, or made at the first start of an embedded store and kept beside it.
//!
//! What is sealed under one key opens under no other. So none is made where a store has secrets already, and one that does not
//! fit is refused before anything is changed.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::kept::Kept;
use super::{StartError, files, keys_on_disk};
use crate::config::{Config, StoreKind};
use crate::domain::key::SealedSecret;
use crate::domain::vault::Vault;
use crate::service::root_key::has_key_of;

/// Why there is no master key to go on with. Nothing was changed.
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
        "the secrets in {} are sealed under the master key of the store that was exported, and there is no master key here. \
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

/// Where a store is, in words.
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
    /// What to do where it is not the key of an export.
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

/// What to do where the key of a start does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The setting hides a file that fits.
    Unset(PathBuf),
    /// The file has what the setting has to be.
    SetToFile(PathBuf),
    RestoreSetting,
    /// Other nodes have it.
    SetAsOnOtherNodes,
    RestoreFile,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(file) => write!(f, "The key in {} is: start without {SETTING}", file.display()),
            Self::SetToFile(file) => write!(f, "The key in {} is: set {SETTING} to it", file.display()),
            Self::RestoreSetting => f.write_str("Restore the original value"),
            Self::SetAsOnOtherNodes => f.write_str("Restore the original value, the same as on all other nodes"),
            Self::RestoreFile => {
                write!(f, "Restore the original file from a backup, or set {SETTING} to the original key")
            }
        }
    }
}

/// The vault for a start on a store. One that has no secrets yet, and is no cluster, has a key made for it where there is none.
///
/// # Errors
/// When the key can't be read or made, or is not that of the store.
pub fn for_start(config: &Config, kept: &Kept) -> Result<Vault, StartError> {
    let Some(check) = &kept.master_key_check else {
        return match given(config)? {
            Some((_, vault)) => Ok(vault),
            None => vault_of(&keys_on_disk::make_master_key(&files::master_key(config))?),
        };
    };
    fitting(config, check)?
        .ok_or_else(|| MasterKeyError::Lost { file: files::master_key(config), store: StorePlace::of(config) }.into())
}

/// Whether the key of a store is here, for whoever needs none of its secrets. A store without secrets has no key.
///
/// # Errors
/// When the key that is here can't be read, or is not that of the store.
pub fn is_here(config: &Config, kept: &Kept) -> Result<bool, StartError> {
    match &kept.master_key_check {
        Some(check) => Ok(fitting(config, check)?.is_some()),
        None => Ok(true),
    }
}

/// The vault, if there is a key.
fn fitting(config: &Config, check: &SealedSecret) -> Result<Option<Vault>, StartError> {
    let Some((key, vault)) = given(config)? else { return Ok(None) };
    if has_key_of(&vault, check) {
        return Ok(Some(vault));
    }
    let file = files::master_key(config);
    let remedy = match &key {
        KeyPlace::File(_) => Remedy::RestoreFile,
        KeyPlace::Setting => match (kept(&file), config.store.kind) {
            (Ok(Some(vault)), kind) if has_key_of(&vault, check) => match kind {
                StoreKind::Embedded => Remedy::Unset(file),
                StoreKind::Scylla => Remedy::SetToFile(file),
            },
            // A file that can't be read is no help.
            (_, StoreKind::Embedded) => Remedy::RestoreSetting,
            (_, StoreKind::Scylla) => Remedy::SetAsOnOtherNodes,
        },
    };
    Err(MasterKeyError::OfAnotherStore { key, store: StorePlace::of(config), remedy }.into())
}

/// Makes sure that what is in an export opens under the key that a start here would use.
///
/// # Errors
/// When it does not, or the key can't be read.
pub fn check_for_import(config: &Config, export: &Path, check: &SealedSecret) -> Result<(), StartError> {
    let export = export.to_owned();
    match given(config)? {
        Some((_, vault)) if has_key_of(&vault, check) => Ok(()),
        Some((key, _)) => Err(MasterKeyError::OfAnotherExport { key, export }.into()),
        None => Err(MasterKeyError::NeededForImport { export, file: files::master_key(config) }.into()),
    }
}

/// The key that is there: the setting comes first.
fn given(config: &Config) -> Result<Option<(KeyPlace, Vault)>, StartError> {
    if let Some(key) = &config.secrets.master_key {
        return Ok(Some((KeyPlace::Setting, vault_of(key.expose())?)));
    }
    let file = files::master_key(config);
    Ok(kept(&file)?.map(|vault| (KeyPlace::File(file), vault)))
}

fn kept(file: &Path) -> Result<Option<Vault>, StartError> {
    keys_on_disk::master_key(file)?.map(|key| vault_of(&key)).transpose()
}

fn vault_of(key: &[u8; Vault::KEY_LENGTH]) -> Result<Vault, StartError> {
    Vault::new(key).map_err(|_| StartError::NoRandomness)
}
