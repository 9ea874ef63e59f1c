//! Base62 text (`0-9A-Za-z`) for short ids and secrets.

use ring::error::Unspecified;
use ring::rand::SecureRandom;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// `length` characters of random bytes, uniformly distributed; `None` if there are too few bytes that can be used.
pub fn text_of(bytes: &[u8], length: usize) -> Option<String> {
    // 248 = 4 × 62: bytes from 248 on would make the first characters more likely.
    let usable = bytes.iter().filter(|byte| **byte < 248);
    let text: String = usable.take(length).map(|byte| char::from(ALPHABET[usize::from(byte % 62)])).collect();
    (text.len() == length).then_some(text)
}

/// `length` random characters, uniformly distributed.
///
/// # Errors
/// If the operating system's random generator fails.
pub fn random_text(random: &dyn SecureRandom, length: usize) -> Result<String, Unspecified> {
    let mut text = String::with_capacity(length);
    let mut bytes = [0u8; 64];
    while text.len() < length {
        random.fill(&mut bytes)?;
        for byte in bytes {
            // 248 = 4 × 62: bytes from 248 on would make the first characters more likely.
            if byte < 248 && text.len() < length {
                text.push(char::from(ALPHABET[usize::from(byte % 62)]));
            }
        }
    }
    Ok(text)
}
