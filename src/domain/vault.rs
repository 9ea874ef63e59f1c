//! Encryption of stored secrets: AES-256-GCM under the master key.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::SecureRandom;
use thiserror::Error;

use super::key::SealedSecret;

/// Why a secret could not be encrypted or decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VaultError {
    #[error("the operating system's random generator failed")]
    NoRandomness,
    /// Encrypted under another master key, or changed since.
    #[error("encrypted under another master key, or damaged")]
    WrongKey,
}

/// Encrypts and decrypts secrets under one master key.
pub struct Vault {
    key: LessSafeKey,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vault(…)")
    }
}

impl Vault {
    /// The length of a master key in bytes.
    pub const KEY_LENGTH: usize = 32;

    /// # Errors
    /// [`VaultError::WrongKey`] if the cipher refuses the key, which does not occur for keys of the right length.
    pub fn new(master_key: &[u8; Self::KEY_LENGTH]) -> Result<Self, VaultError> {
        let key = UnboundKey::new(&AES_256_GCM, master_key).map_err(|_| VaultError::WrongKey)?;
        Ok(Self { key: LessSafeKey::new(key) })
    }

    /// Encrypts `secret` for `context`: it can be decrypted for the same context only.
    ///
    /// Nonces are random, which is safe for the few secrets of a service (up to 2^32 under one key).
    ///
    /// # Errors
    /// [`VaultError::NoRandomness`].
    pub fn seal(&self, random: &dyn SecureRandom, context: &[u8], secret: &str) -> Result<SealedSecret, VaultError> {
        let mut nonce = [0; NONCE_LEN];
        random.fill(&mut nonce).map_err(|_| VaultError::NoRandomness)?;
        let mut sealed = nonce.to_vec();
        let mut text = secret.as_bytes().to_vec();
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(context), &mut text)
            .map_err(|_| VaultError::WrongKey)?;
        sealed.append(&mut text);
        Ok(SealedSecret(sealed))
    }

    /// # Errors
    /// [`VaultError::WrongKey`].
    pub fn open(&self, context: &[u8], sealed: &SealedSecret) -> Result<String, VaultError> {
        let (nonce, ciphertext) = sealed.0.split_first_chunk::<NONCE_LEN>().ok_or(VaultError::WrongKey)?;
        let mut text = ciphertext.to_vec();
        let opened = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), Aad::from(context), &mut text)
            .map_err(|_| VaultError::WrongKey)?;
        String::from_utf8(opened.to_vec()).map_err(|_| VaultError::WrongKey)
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_secret_opens_only_under_its_key_and_context() {
        let (vault, random) = (Vault::new(&[7; 32]).unwrap(), SystemRandom::new());
        let sealed = vault.seal(&random, b"key 1", "whsec_x").unwrap();
        assert_eq!(vault.open(b"key 1", &sealed).as_deref(), Ok("whsec_x"));
        assert_eq!(vault.open(b"key 2", &sealed), Err(VaultError::WrongKey));
        assert_eq!(Vault::new(&[8; 32]).unwrap().open(b"key 1", &sealed), Err(VaultError::WrongKey));
        assert_eq!(vault.open(b"key 1", &SealedSecret(vec![1; 5])), Err(VaultError::WrongKey));
        assert_ne!(sealed, vault.seal(&random, b"key 1", "whsec_x").unwrap());
        assert!(!sealed.0.windows(7).any(|bytes| bytes == b"whsec_x"));
    }
}
