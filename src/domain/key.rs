//! API keys: their permissions and secrets.

use std::fmt;

use ring::digest;
use ring::rand::SecureRandom;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use super::base62;
use super::calendar::Timestamp;

/// The id of an API key, a UUID v7: keys are sorted by the time of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub Uuid);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The maximum length of a key's name, in characters.
const MAX_NAME: usize = 100;

/// What is wrong with a key's name, if anything. Names appear in lists and terminals, and are copied from there.
pub fn fault_of_name(name: &str) -> Option<&'static str> {
    if !(1..=MAX_NAME).contains(&name.chars().count()) {
        return Some("must have 1 to 100 characters");
    }
    if name.contains(char::is_control) {
        return Some("must have no control characters");
    }
    name.trim().is_empty().then_some("must not consist of white space only")
}

/// The tier of a key, which sets its rate limits and quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    Free,
    Pro,
}

impl Tier {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Free" => Some(Self::Free),
            "Pro" => Some(Self::Pro),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "Free",
            Self::Pro => "Pro",
        }
    }
}

/// A permission of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Scope {
    LinksWrite = 0,
    LinksRead = 1,
    AnalyticsRead = 2,
    UsageRead = 3,
    WebhooksRead = 4,
    KeysManage = 5,
    WebhooksWrite = 6,
}

impl Scope {
    /// In the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::LinksWrite,
        Self::LinksRead,
        Self::AnalyticsRead,
        Self::UsageRead,
        Self::WebhooksRead,
        Self::WebhooksWrite,
        Self::KeysManage,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::LinksWrite => "links:write",
            Self::LinksRead => "links:read",
            Self::AnalyticsRead => "analytics:read",
            Self::UsageRead => "usage:read",
            Self::WebhooksRead => "webhooks:read",
            Self::WebhooksWrite => "webhooks:write",
            Self::KeysManage => "keys:manage",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == text)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeSet(u8);

impl ScopeSet {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self(0b111_1111);

    /// One bit for each scope, at the scope's number.
    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }

    #[must_use]
    pub fn with(self, scope: Scope) -> Self {
        Self(self.0 | 1 << scope as u8)
    }

    #[must_use]
    pub fn without(self, scope: Scope) -> Self {
        Self(self.0 & !(1 << scope as u8))
    }

    /// Whether every scope of `self` is in `other`.
    pub fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The secret of a key: `sp_` and 43 base62 characters (256 random bits).
///
/// Never stored, and never shown by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// Characters after `sp_`: 62^43 is just above 2^256.
    const RANDOM_CHARACTERS: usize = 43;

    /// Generates a secret.
    ///
    /// # Errors
    /// If the operating system's random generator fails.
    pub fn generate(random: &dyn SecureRandom) -> Result<Self, ring::error::Unspecified> {
        Ok(Self(format!("sp_{}", base62::random_text(random, Self::RANDOM_CHARACTERS)?)))
    }

    /// A secret that the operator has chosen for the root key.
    pub fn chosen(text: String) -> Self {
        Self(text)
    }

    /// The secret, for the one answer that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> SecretHash {
        SecretHash::of(self.0.as_bytes())
    }

    /// The first 8 characters, by which people distinguish keys.
    pub fn prefix(&self) -> String {
        self.0.chars().take(8).collect()
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret(…)")
    }
}

/// The SHA-256 of a key's secret. The secret itself is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash(pub [u8; 32]);

impl SecretHash {
    pub fn of(secret: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, secret).as_ref());
        Self(hash)
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretHash(…)")
    }
}

/// A secret encrypted under the master key (AES-256-GCM): nonce, then ciphertext and tag.
#[derive(Clone, PartialEq, Eq)]
pub struct SealedSecret(pub Vec<u8>);

impl fmt::Debug for SealedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedSecret(…)")
    }
}

/// A previous secret, which remains valid until the end of its grace period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retiring<T> {
    pub secret: T,
    pub until: Timestamp,
}

/// An API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub tier: Tier,
    pub scopes: ScopeSet,
    /// The operator's key: it has every scope and no limits, and may access every link and key.
    pub is_root: bool,
    pub prefix: String,
    pub secret_hash: SecretHash,
    pub retiring_secret: Option<Retiring<SecretHash>>,
    pub webhook_secret: SealedSecret,
    pub retiring_webhook_secret: Option<Retiring<SealedSecret>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub rotated_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// The keys above this one: its creator first, the root key last.
    pub ancestors: Vec<KeyId>,
    /// Increases by one with every change, so that concurrent changes are detected.
    pub revision: u64,
}

impl ApiKey {
    /// The maximum number of keys above a key. It bounds the rows that a key takes.
    pub const MAX_DEPTH: usize = 16;

    /// Whether a request with the secret hash `presented` is authenticated as this key at `now`.
    pub fn accepts(&self, presented: &SecretHash, now: Timestamp) -> bool {
        let current = self.secret_hash.matches(presented);
        let retiring =
            self.retiring_secret.as_ref().is_some_and(|old| old.secret.matches(presented) && now < old.until);
        (current || retiring) && self.is_live(now)
    }

    /// Neither revoked nor expired.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// Whether this key may see and change `other`: itself, and all keys below it.
    pub fn sees(&self, other: &Self) -> bool {
        self.is_root || self.id == other.id || other.ancestors.contains(&self.id)
    }

    /// The key that created this one; the root key has none.
    pub fn created_by(&self) -> Option<KeyId> {
        self.ancestors.first().copied()
    }

    /// Whether a key with this expiry is valid for longer than this one. This one may not create it then.
    pub fn is_outlived_by(&self, expires_at: Option<Timestamp>) -> bool {
        self.expires_at.is_some_and(|own| expires_at.is_none_or(|other| own < other))
    }

    /// The scopes of a key that this key creates, unless others are requested.
    pub fn default_scopes(&self) -> ScopeSet {
        self.scopes.without(Scope::KeysManage)
    }

    /// The ancestors of a key that this key creates.
    pub fn ancestors_of_child(&self) -> Vec<KeyId> {
        std::iter::once(self.id).chain(self.ancestors.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_secret_has_its_form_and_never_shows_in_debug() {
        let secret = KeySecret::generate(&SystemRandom::new()).unwrap();
        assert_eq!(secret.reveal().len(), 46);
        assert!(secret.reveal().starts_with("sp_"));
        assert!(secret.reveal()[3..].bytes().all(|b| b.is_ascii_alphanumeric()));
        assert!(!format!("{secret:?} {:?}", secret.hash()).contains(&secret.reveal()[3..10]));
    }

    #[test]
    fn scope_names_round_trip_and_sets_contain_the_given_scopes() {
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.name()), Some(scope));
        }
        let set: ScopeSet = [Scope::LinksWrite, Scope::KeysManage].into_iter().collect();
        assert!(set.contains(Scope::KeysManage) && !set.contains(Scope::LinksRead));
        assert!(set.is_subset_of(ScopeSet::ALL) && !ScopeSet::ALL.is_subset_of(set));
        assert_eq!(ScopeSet::ALL.iter().count(), Scope::ALL.len());
    }
}
