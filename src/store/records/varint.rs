//! Numbers in as few bytes as they need: seven bits a byte, the lowest first; the highest bit says that more follow.

/// The longest number.
pub const MAX_BYTES: usize = 10;

pub fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Takes a number off the beginning; `None` if there is none that fits into 64 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..MAX_BYTES {
        let byte = *bytes.get(at)?;
        // Of the tenth byte, one bit fits.
        if at == MAX_BYTES - 1 && byte > 1 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

/// The largest count: answers have integers up to this one.
pub const MAX_COUNT: u64 = u64::MAX >> 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_they_were_written() {
        for bits in 0..=64_u32 {
            let number = 1_u64.checked_shl(bits).unwrap_or(0).wrapping_sub(1);
            for number in [number, number.wrapping_add(1)] {
                let mut bytes = vec![];
                push(&mut bytes, number);
                assert_eq!(bytes.len(), (64 - number.leading_zeros()).div_ceil(7).max(1) as usize);
                bytes.push(7);
                let mut rest = &bytes[..];
                assert_eq!((take(&mut rest), rest), (Some(number), &[7_u8][..]));
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_too_large_is_no_number() {
        for bytes in
            [&[][..], &[0x80], &[0xff; 9], &[0xff; 20], &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]]
        {
            let mut rest = bytes;
            assert_eq!((take(&mut rest), rest), (None, bytes));
        }
    }
}
