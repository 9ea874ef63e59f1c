//! The rows: the same index gives the same id, link and counter key in every process.

use super::engines::{Id, Rows};
use std::io::Write;

/// splitmix64: the same index gives the same "random" id or row in every process.
pub fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub fn id(index: u64) -> Id {
    const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut rest = mix(index) % 62u64.pow(7);
    [(); 7].map(|()| {
        let digit = BASE62[(rest % 62) as usize];
        rest /= 62;
        digit
    })
}

/// About 180 bytes that compress as links do: an owner, a time, and a URL with random parts.
pub fn row(index: u64) -> Vec<u8> {
    let (a, b, c) = (mix(index ^ 1 << 50), mix(index ^ 2 << 50), mix(index ^ 3 << 50));
    let mut row = Vec::with_capacity(192);
    row.extend_from_slice(&mix(a % 5_000).to_be_bytes());
    row.extend_from_slice(&mix(a % 5_000 + 5_000).to_be_bytes());
    row.extend_from_slice(&(1_790_000_000_000 + index).to_be_bytes());
    let _ = write!(
        row,
        "https://shop{}.example.com/catalogue/{b:016x}/item-{}?utm_source=newsletter&utm_medium=email\
         &utm_campaign=autumn-{}&ref={c:016x}&session={:016x}",
        a % 997,
        b % 100_000,
        c % 53,
        b ^ c
    );
    row
}

pub fn counter_key(link: u64, day: u64) -> [u8; 10] {
    let mut key = [b'h'; 10];
    key[..7].copy_from_slice(&id(link));
    key[8..].copy_from_slice(&(day as u16).to_be_bytes());
    key
}

pub fn add(rows: &mut dyn Rows, key: &[u8], amounts: [u64; 3]) {
    let mut value = rows.counter(key).unwrap_or([0; 24]);
    for (field, amount) in value.chunks_exact_mut(8).zip(amounts) {
        let sum = u64::from_be_bytes((&*field).try_into().unwrap()) + amount;
        field.copy_from_slice(&sum.to_be_bytes());
    }
    rows.put_counter(key, &value);
}
