//! What a receiver does to check a webhook request, with nothing of the service's own code.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderMap;
use ring::hmac;
use standardwebhooks::Webhook;

use super::receiver::Received;

/// A `webhook_secret` as a receiver has it.
pub struct Verifier {
    /// The secret's text is the key.
    hex: hmac::Key,
    /// The bytes that the text stands for are the key.
    standard: hmac::Key,
    library: Webhook,
}

impl Verifier {
    pub fn new(secret: &str) -> Self {
        let bytes = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
        Self {
            hex: hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()),
            standard: hmac::Key::new(hmac::HMAC_SHA256, &bytes),
            library: Webhook::new(secret).unwrap(),
        }
    }

    /// Checks `X-Webhook-Signature`.
    pub fn is_signed(&self, request: &Received) -> bool {
        let digest = request.header("x-webhook-signature").strip_prefix("sha256=");
        digest.and_then(bytes_of_hex).is_some_and(|tag| hmac::verify(&self.hex, &request.body, &tag).is_ok())
    }

    /// Checks `webhook-signature`, as the Standard Webhooks page tells it: one of several may be this secret's.
    pub fn is_standard(&self, request: &Received) -> bool {
        let signed = [request.header("webhook-id"), ".", request.header("webhook-timestamp"), "."].concat();
        let signed = [signed.as_bytes(), &request.body].concat();
        request.header("webhook-signature").split(' ').any(|signature| {
            let tag = signature.strip_prefix("v1,").and_then(|tag| STANDARD.decode(tag).ok());
            tag.is_some_and(|tag| hmac::verify(&self.standard, &signed, &tag).is_ok())
        })
    }

    /// As a receiver with a Standard Webhooks library sees it.
    pub fn library_accepts(&self, request: &Received) -> bool {
        let mut headers = HeaderMap::new();
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            headers.insert(name, request.header(name).parse().unwrap());
        }
        self.library.verify(&request.body, &headers).is_ok()
    }
}

/// Of lower-case hex digits alone.
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| b"0123456789abcdef".iter().position(|known| *known == digit);
    let pair = |pair: &[u8]| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok();
    text.len().is_multiple_of(2).then(|| text.as_bytes().chunks(2).map(pair).collect()).flatten()
}
