//! The master key: chosen by the operator, or made at the first start of an embedded store and kept beside it.
//!
//! What is sealed under one key opens under no other. So none is made where a store has secrets already, and one that does not
//! fit is refused before anything is changed.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::{StartError, files, keys_on_disk};
use crate::config::Config;
use crate::domain::key::SealedSecret;
use crate::domain::vault::Vault;
use crate::service::root_key::has_key_of;

/// Why there is no master key to go on with. Nothing was changed.
#[derive(Debug, Error)]
pub enum MasterKeyError {
    #[error(
        "{} is missing, and the secrets in {} open under the master key in it alone. Nothing was changed. Restore the file \
         from a backup, or set {SETTING} to what was in it", file.display(), store.display()
    )]
    Lost { file: PathBuf, store: PathBuf },
    #[error(
        "{key} is not the master key that the store in {} was created with. Nothing was changed. {remedy}", store.display()
    )]
    OfAnotherStore { key: KeyPlace, store: PathBuf, remedy: Remedy },
    #[error(
        "the secrets in {} are sealed under the master key of the store that it was exported from, and there is none here. \
         Nothing was changed. Set {SETTING} to that key, or put that store's master.key at {}, and import again",
        export.display(), file.display()
    )]
    NeededForImport { export: PathBuf, file: PathBuf },
    #[error(
        "{key} is not the master key of the store that {} was exported from. Nothing was changed. {}, and import again",
        export.display(), key.replace_by_that_of("that store")
    )]
    OfAnotherExport { key: KeyPlace, export: PathBuf },
}

const SETTING: &str = "SIGNPOST_MASTER_KEY";

/// Where a master key was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    Setting,
    File(PathBuf),
}

impl KeyPlace {
    fn replace_by_that_of(&self, whose: &str) -> String {
        match self {
            Self::Setting => format!("Set it to the key of {whose}"),
            Self::File(_) => format!("Put the master.key of {whose} in its place, or set {SETTING} to that key"),
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
    RestoreSetting,
    RestoreFile,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(file) => write!(f, "{} is: start without {SETTING}", file.display()),
            Self::RestoreSetting => f.write_str("Restore the original value"),
            Self::RestoreFile => write!(f, "Restore the original file from a backup, or set {SETTING} to what was in it"),
        }
    }
}

/// The vault for a store. `check` is what the store keeps to tell its key: none where it has no secrets yet, or where only a store
/// elsewhere can say so.
///
/// # Errors
/// When the key can't be read or made, or is not that of the store.
pub fn for_store(config: &Config, check: Option<&SealedSecret>) -> Result<Vault, StartError> {
    let file = files::master_key(config);
    let Some(check) = check else {
        return match given(config)? {
            Some((_, vault)) => Ok(vault),
            None => vault_of(&keys_on_disk::make_master_key(&file)?),
        };
    };
    let store = files::store(config);
    let Some((key, vault)) = given(config)? else { return Err(MasterKeyError::Lost { file, store }.into()) };
    if has_key_of(&vault, check) {
        return Ok(vault);
    }
    let remedy = match &key {
        KeyPlace::File(_) => Remedy::RestoreFile,
        // One that can't be read is no help.
        KeyPlace::Setting => match kept(&file) {
            Ok(Some(vault)) if has_key_of(&vault, check) => Remedy::Unset(file),
            _ => Remedy::RestoreSetting,
        },
    };
    Err(MasterKeyError::OfAnotherStore { key, store, remedy }.into())
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
