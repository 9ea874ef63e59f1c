//! The id of a request, sent as `X-Request-Id` and written to its log lines.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use actix_http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries the id in both directions.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id that the client sent, if it is 1 to 64 characters of `A-Za-z0-9._-`, else a new one.
pub fn request_id(headers: &HeaderMap) -> HeaderValue {
    request_id_of(headers.get(X_REQUEST_ID).map_or(&[], HeaderValue::as_bytes))
}

/// The same of the value of the field's first line.
pub fn request_id_of(sent: &[u8]) -> HeaderValue {
    if is_request_id(sent) { value_of(sent) } else { new_request_id() }
}

/// Whether an id that a client sent is one.
pub fn is_request_id(sent: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    (1..=64).contains(&sent.len()) && sent.iter().all(allowed)
}

/// An id as a header value.
pub fn value_of(id: &[u8]) -> HeaderValue {
    // Never fails: a valid id is visible ASCII.
    HeaderValue::from_bytes(id).unwrap_or_else(|_| new_request_id())
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const BITS_PER_DIGIT: usize = 6;
/// 72 random bits: among a billion threads, over all processes, two have the same prefix with a probability of 1 in
/// 9,000.
const PREFIX_DIGITS: usize = 12;
/// 42 bits: a thread that creates a million ids a second repeats after seven weeks.
const COUNTER_DIGITS: usize = 7;
const ID_DIGITS: usize = PREFIX_DIGITS + COUNTER_DIGITS;
/// Half of the counter's bits.
const HALF_BITS: u32 = 21;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
/// Rounds of the permutation. Four make a Feistel network a pseudorandom permutation (Luby and Rackoff, 1988).
const ROUNDS: usize = 4;

/// The state from which a thread creates its ids.
struct IdSource {
    prefix: [u8; PREFIX_DIGITS],
    round_keys: [u64; ROUNDS],
    next: Cell<u64>,
}

impl IdSource {
    fn new() -> Self {
        let random = RandomState::new();
        // Odd, so that no key is zero and no bit of a half is lost.
        let round_keys = std::array::from_fn(|round| random.hash_one(round) | 1);
        Self { prefix: random_prefix(), round_keys, next: Cell::new(0) }
    }

    /// The next number, in an order that depends on the keys: a Feistel network over the counter. Two counts never
    /// result in the same number, and numbers do not reveal how many ids were created.
    fn next_number(&self) -> u64 {
        let count = self.next.get();
        self.next.set(count.wrapping_add(1));
        let (mut left, mut right) = (count >> HALF_BITS & HALF_MASK, count & HALF_MASK);
        for key in self.round_keys {
            // The high bits of a product depend on all bits of the half and of the key.
            let mixed = (right ^ key >> 43).wrapping_mul(key) >> (64 - HALF_BITS);
            (left, right) = (right, left ^ mixed);
        }
        left << HALF_BITS | right
    }
}

/// A new id, from [`new_id`], as a header value.
#[expect(clippy::missing_panics_doc, reason = "it never panics: the digits are a valid header value")]
pub fn new_request_id() -> HeaderValue {
    // Never fails: every digit is a visible ASCII character.
    HeaderValue::from_bytes(&new_id()).expect("digits are visible ASCII")
}

/// A new id of 19 characters, different from all others of this and other processes: a random prefix of the thread,
/// and its counter under a keyed permutation, so that visitors can't derive the traffic from their ids. A UUID (v7)
/// as a header value takes twenty times as long (`cargo bench -p loadtests --bench redirect_parts`).
pub fn new_id() -> [u8; ID_DIGITS] {
    thread_local! {
        static SOURCE: IdSource = IdSource::new();
    }
    let (prefix, number) = SOURCE.with(|source| (source.prefix, source.next_number()));
    let mut id = [0; ID_DIGITS];
    id[..PREFIX_DIGITS].copy_from_slice(&prefix);
    id[PREFIX_DIGITS..].copy_from_slice(&digits::<COUNTER_DIGITS>(number.into()));
    id
}

/// The low bits of a number in base 64, the highest digit first.
fn digits<const COUNT: usize>(number: u128) -> [u8; COUNT] {
    std::array::from_fn(|place| {
        let shift = BITS_PER_DIGIT * (COUNT - 1 - place);
        DIGITS[(number >> shift) as usize % DIGITS.len()]
    })
}

/// Random digits. The standard library keys its hasher from the system's random source; the prefix only needs to be
/// different in each thread.
fn random_prefix() -> [u8; PREFIX_DIGITS] {
    let random = RandomState::new();
    digits(u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1)))
}
