//! Secrets: read from the environment only, and never shown.

use std::{ffi::OsString, fmt};

use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    error::{Origin, SettingError},
    layers::variable_of,
};

/// The minimum length of a root key, in characters.
const ROOT_KEY_LENGTH: usize = 32;

/// The secrets of the configuration, which are never shown.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// `SIGNPOST_ROOT_KEY`: the operator's API key.
    pub root_key: Option<RootKey>,
    /// `SIGNPOST_MASTER_KEY`: encrypts the webhook secrets in the store.
    pub master_key: Option<MasterKey>,
    /// `SIGNPOST_SCYLLA_PASSWORD`: the password of the cluster's user.
    pub scylla_password: Option<ScyllaPassword>,
}

/// The operator's API key: at least 32 visible ASCII characters, so that it is valid in a header.
#[derive(Clone)]
pub struct RootKey(String);

/// 32 bytes for AES-256.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

/// The password of the cluster's user.
#[derive(Clone)]
pub struct ScyllaPassword(String);

impl RootKey {
    /// The key, for hashing. Do not show it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl MasterKey {
    /// The key, for encryption. Do not show it.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl ScyllaPassword {
    /// The password, for authentication. Do not show it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RootKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RootKey(masked)")
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(masked)")
    }
}

impl fmt::Debug for ScyllaPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScyllaPassword(masked)")
    }
}

impl Secrets {
    /// Reads all secrets from the environment. A message names the secret, but does not contain its value.
    pub(super) fn read(variables: &[(OsString, OsString)]) -> Result<Self, SettingError> {
        Ok(Self {
            root_key: secret(variables, "root_key", "must be at least 32 visible ASCII characters", |text| {
                let is_key = text.len() >= ROOT_KEY_LENGTH && text.bytes().all(|b| b.is_ascii_graphic());
                is_key.then(|| RootKey(text.to_owned()))
            })?,
            master_key: secret(variables, "master_key", "must be the base64 form of 32 bytes", |text| {
                let bytes = BASE64_STANDARD.decode(text).ok()?;
                bytes.try_into().ok().map(MasterKey)
            })?,
            scylla_password: secret(variables, "scylla_password", "must be text", |text| {
                Some(ScyllaPassword(text.to_owned()))
            })?,
        })
    }

    /// Each secret's name and whether it is set.
    pub(super) fn presence(&self) -> [(&'static str, bool); 3] {
        [
            ("root_key", self.root_key.is_some()),
            ("master_key", self.master_key.is_some()),
            ("scylla_password", self.scylla_password.is_some()),
        ]
    }
}

/// A secret; `None` if its variable is missing or empty.
fn secret<T>(
    variables: &[(OsString, OsString)],
    name: &str,
    refusal: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, SettingError> {
    let variable = variable_of(name);
    let Some((_, value)) = variables.iter().find(|(key, _)| *key == *variable) else {
        return Ok(None);
    };
    if value.is_empty() {
        return Ok(None);
    }
    let parsed = value.to_str().and_then(parse);
    parsed.map(Some).ok_or_else(|| SettingError::new(name, refusal, Origin::Environment { variable }))
}
