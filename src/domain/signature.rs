//! The secrets of webhooks, and the two signatures that use them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::error::Unspecified;
use ring::hmac;
use ring::rand::SecureRandom;
use thiserror::Error;

const PREFIX: &str = "whsec_";
const GENERATED_BYTES: usize = 32;
/// The lengths of a symmetric secret in the Standard Webhooks specification, in bytes.
const ACCEPTED_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A key's webhook secret: `whsec_` and the base64 of its bytes. Generated secrets have 32 random bytes.
///
/// `Debug` masks it; [`reveal`](Self::reveal) is the only access to its text.
#[derive(Clone)]
pub struct WebhookSecret {
    text: Box<str>,
    /// The HMAC keys of the two signatures: the text, and its bytes.
    text_key: hmac::Key,
    bytes_key: hmac::Key,
}

/// A text is not a webhook secret. The text is not kept, so that no log can show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a webhook secret is `whsec_` followed by the base64 of 24 to 64 bytes")]
pub struct MalformedSecret;

impl WebhookSecret {
    /// Generates a secret of 32 random bytes. Fails only if the operating system's random generator fails.
    pub fn generate(rng: &dyn SecureRandom) -> Result<Self, Unspecified> {
        let mut bytes = [0; GENERATED_BYTES];
        rng.fill(&mut bytes)?;
        Ok(Self::of(format!("{PREFIX}{}", BASE64.encode(bytes)), &bytes))
    }

    /// Parses a secret.
    pub fn parse(text: &str) -> Result<Self, MalformedSecret> {
        let encoded = text.strip_prefix(PREFIX).ok_or(MalformedSecret)?;
        let bytes = BASE64.decode(encoded).map_err(|_| MalformedSecret)?;
        if !ACCEPTED_BYTES.contains(&bytes.len()) {
            return Err(MalformedSecret);
        }
        Ok(Self::of(text.to_owned(), &bytes))
    }

    fn of(text: String, bytes: &[u8]) -> Self {
        let key = |bytes| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        Self { text_key: key(text.as_bytes()), bytes_key: key(bytes), text: text.into() }
    }

    /// The secret's text, which its owner is shown once.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

/// The value of `X-Webhook-Signature`: `sha256=` and the HMAC-SHA256 of `body` in lower-case hex. The HMAC key is the
/// secret's text, including `whsec_`.
pub fn sign_hex(secret: &WebhookSecret, body: &[u8]) -> String {
    let mut value = String::with_capacity(7 + 64);
    value.push_str("sha256=");
    push_lower_hex(&mut value, hmac_sha256(&secret.text_key, &[body]).as_ref());
    value
}

/// The value of `webhook-signature`: for each secret `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`,
/// separated by spaces, in the order of `secrets` (the newest first, if a rotation left two). The HMAC key is the
/// bytes that the secret's base64 encodes.
///
/// `timestamp` is in seconds since the Unix epoch. Source: the Standard Webhooks specification.
pub fn standard_signature(secrets: &[&WebhookSecret], id: &str, timestamp: i64, body: &[u8]) -> String {
    let head = format!("{id}.{timestamp}.");
    let mut value = String::with_capacity(48 * secrets.len());
    for secret in secrets {
        value.push_str(if value.is_empty() { "v1," } else { " v1," });
        BASE64.encode_string(hmac_sha256(&secret.bytes_key, &[head.as_bytes(), body]), &mut value);
    }
    value
}

fn hmac_sha256(key: &hmac::Key, parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    context.sign()
}

fn push_lower_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for nibble in bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]) {
        text.push(char::from(DIGITS[usize::from(nibble)]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 §4.2, §4.3, §4.4 and §4.7 (a key longer than SHA-256's block).
    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 4] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            let (start, end) = message.split_at(message.len() / 2);
            let key = hmac::Key::new(hmac::HMAC_SHA256, key);
            for parts in [&[message][..], &[start, end]] {
                let mut hex = String::new();
                push_lower_hex(&mut hex, hmac_sha256(&key, parts).as_ref());
                assert_eq!(hex, expected);
            }
        }
    }
}
