//! The limit by client of endpoints without an API key: redirects and QR codes.
//!
//! A client's window is an estimate over two buckets, the *sliding window counter*: the requests of the current minute,
//! plus the share of the previous minute that is within the last 60 s. The first minute starts with the client's first
//! request, so a burst up to the limit is admitted, and the next request 60 s after the burst began.
//!
//! The guarantees for a limit of L:
//!
//! - A client that sent fewer than L requests in the last two minutes is never refused.
//! - In any n minutes at most (n + 1) · L requests are admitted, so 2 · L in any 60 s. That takes a burst at the end of
//!   one minute and steady requests in the next one.
//! - A refused request is not counted, and its `Retry-After` is exact.
//!
//! The windows are in a lock-free table of fixed size. See [`ClientLimiter`] for what happens when it is full.

use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

// A separate module, so that a model checker can replace the standard library's type.
use super::atomics::{AtomicU64, Table, prefetch, zeros};

/// The length of the window, in milliseconds.
const WINDOW_MS: u64 = 60_000;

/// The highest limit per minute; a higher one is reduced to this.
pub const MAX_LIMIT_PER_MINUTE: u32 = (1 << 20) - 1;

/// What requests are counted by: an IPv4 address, or the /64 network of an IPv6 address, because a subscriber has at
/// least a /64 of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

impl ClientKey {
    /// IPv4 addresses are mapped to the /64 networks of `0:ffff::/32`, a block that is never assigned.
    const IPV4_PREFIX: u64 = 0x0000_ffff_0000_0000;
}

impl From<IpAddr> for ClientKey {
    /// An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is the IPv4 client.
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(Self::IPV4_PREFIX | u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

/// The request is over the limit. The value is the number of whole seconds (1 to 120) after which the client's next
/// request is admitted, if it sends no other meanwhile; one second earlier it is refused.
///
/// Values above 60 occur only after the clock was set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("over the limit of requests per minute; retry after {0} s")]
pub struct RetryAfter(pub u32);

/// Admits each client up to a limit in a sliding minute.
///
/// The memory is 16 bytes for each cell; pages without used cells take none. There are no locks and no allocations: a
/// request takes 35 ns if its client's cell is in the CPU cache, of which the clock takes 27, and about 100 ns if not
/// (`cargo bench -p loadtests --bench redirect_parts`, 2026-11-23). A client takes a cell at its first request and
/// keeps it until another client needs it. A new client may take one of the four cells of one cache line, which a keyed
/// hash selects. If all four are in use, it takes the one whose minute began first, and the previous client of that
/// cell starts a new window at its next request. Until that happens the counts are exact, whatever the number of
/// threads; only a request in progress at the moment in which its client's cell is taken may be counted for the new
/// client.
///
/// Two clients of one cache line with equal 15-bit tags share a window: if all cells are in use, that affects one
/// client in 11,000.
pub struct ClientLimiter {
    /// `None` without a limit.
    windows: Option<WindowRule>,
    /// The lines, from the first word that is aligned to a cache line.
    words: Table,
    first: usize,
    lines: usize,
    hash_keys: [u64; 4],
}

impl ClientLimiter {
    /// A limiter for `cells` clients (rounded up to a multiple of four, and to at least four); a limit of 0 admits all
    /// requests and takes no memory.
    ///
    /// `seed` must be random and secret: a client that knows it can choose addresses that evict another client from the
    /// table.
    pub fn new(limit_per_minute: u32, cells: usize, seed: u64) -> Self {
        let windows = WindowRule::new(limit_per_minute);
        let lines = match windows {
            Some(_) => cells.div_ceil(CELLS_PER_LINE).max(1),
            None => 0,
        };
        let words = zeros((lines + 1) * WORDS_PER_LINE);
        let first = words.as_ptr().align_offset(LINE_BYTES).min(WORDS_PER_LINE);
        Self { windows, words, first, lines, hash_keys: split_mix(seed) }
    }

    /// Counts a request of `client`, or returns when it would be admitted; a refused request is not counted.
    ///
    /// `now_ms` is a time in milliseconds since any fixed moment. Threads may read slightly different times, and the
    /// clock may be set back: by up to a minute the windows stay, by more they start again.
    pub fn admit(&self, client: ClientKey, now_ms: u64) -> Result<(), RetryAfter> {
        self.place(client).admit(now_ms)
    }

    /// The client's place in the table. On x86-64 its cache line is prefetched, while the caller does something else: with
    /// thousands of clients, most of the time of [`admit`](Self::admit) is the wait for that line.
    pub fn prefetched(&self, client: ClientKey) -> ClientPlace<'_> {
        let place = self.place(client);
        if let Some(([word, ..], _)) = place.of_line {
            prefetch(word);
        }
        place
    }

    fn place(&self, client: ClientKey) -> ClientPlace<'_> {
        let of_line = self.windows.map(|rule| {
            let [mask_1, factor_1, mask_2, factor_2] = self.hash_keys;
            let hash = folded_product(client.0 ^ mask_1, factor_1);
            let hash = folded_product(hash ^ mask_2, factor_2);
            #[expect(clippy::cast_possible_truncation, reason = "a fraction of lines")]
            let line = ((u128::from(hash) * self.lines as u128) >> 64) as usize;
            #[expect(clippy::cast_possible_truncation, reason = "the hash's low bits are meant")]
            let tag = hash as u16 & TAG;
            let (lines, _) = self.words[self.first..].as_chunks();
            (&lines[line], (tag.max(1), rule))
        });
        ClientPlace { of_line }
    }
}

/// Where a client is counted.
#[derive(Clone, Copy)]
pub struct ClientPlace<'a> {
    /// The line of its window, the tag that identifies the client in it, and the rule; `None` without a limit.
    of_line: Option<(&'a [AtomicU64; WORDS_PER_LINE], (u16, WindowRule))>,
}

impl ClientPlace<'_> {
    /// As [`ClientLimiter::admit`].
    pub fn admit(self, now_ms: u64) -> Result<(), RetryAfter> {
        let Some((line, (tag, rule))) = self.of_line else { return Ok(()) };
        CellLine::of(line).admit(tag, rule, now_ms)
    }
}

/// Folds both halves of the 128-bit product into one: the mixing step of wyhash.
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
    let (high, low) = ((product >> 64) as u64, product as u64);
    high ^ low
}

/// Four hash keys from one seed, by the `SplitMix64` generator. They are odd, so that none is zero.
fn split_mix(seed: u64) -> [u64; 4] {
    let mut state = seed;
    std::array::from_fn(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) | 1
    })
}

const CELLS_PER_LINE: usize = 4;
const LINE_BYTES: usize = 64;
const WORDS_PER_LINE: usize = LINE_BYTES / size_of::<u64>();

/// Bits of the directory for each cell: 15 of its client's tag, and the mark `NEW`.
const ENTRY_BITS: usize = 16;
const TAG: u16 = 0x7fff;
/// The cell is being taken or emptied: no other thread takes it, even if its window looks free.
const NEW: u16 = 0x8000;

/// One cache line of the table: four windows, and one word that identifies their clients.
///
/// All four entries are in one word, so taking a cell is one compare-and-swap, which fails if another thread took a
/// cell of the line meanwhile. So a client never gets two cells.
struct CellLine<'a> {
    /// Four entries; 0 is an unused cell.
    directory: &'a AtomicU64,
    /// Packed by [`WindowRule`].
    windows: [&'a AtomicU64; CELLS_PER_LINE],
}

impl<'a> CellLine<'a> {
    fn of([directory, a, b, c, d, ..]: &'a [AtomicU64; WORDS_PER_LINE]) -> Self {
        Self { directory, windows: [a, b, c, d] }
    }

    /// Counts a request of the client with this tag, which takes a cell if it has none.
    fn admit(&self, tag: u16, rule: WindowRule, now: u64) -> Result<(), RetryAfter> {
        // Each iteration but the last one means that another thread has taken or used a cell.
        loop {
            let directory = self.directory.load(Acquire);
            if let Some(index) = position(directory, tag) {
                return count(self.windows[index], rule, now);
            }
            match self.oldest(directory, rule, now) {
                Some((index, Cell::Over)) => {
                    if self.replace(index, tag | NEW, directory) {
                        let answer = count(self.windows[index], rule, now);
                        self.directory.fetch_and(!entry(index, NEW), Release);
                        return answer;
                    }
                }
                // The previous client is removed first, which fails if anything changed since the read: so a window
                // that its client, maybe this one, has just started is never emptied. The next iteration takes the
                // cell.
                Some((index, Cell::Live)) => {
                    if self.replace(index, NEW, directory) {
                        self.windows[index].store(0, Relaxed);
                        self.directory.fetch_and(!entry(index, NEW), Release);
                    }
                }
                // All four cells are being taken right now.
                None => std::hint::spin_loop(),
            }
        }
    }

    /// The cell to take: one whose window has ended or was never used, else the one whose minute began first; `None` if
    /// other threads are taking all four.
    fn oldest(&self, directory: u64, rule: WindowRule, now: u64) -> Option<(usize, Cell)> {
        let mut oldest: Option<(u64, usize)> = None;
        for (index, window) in self.windows.iter().enumerate() {
            if directory & entry(index, NEW) != 0 {
                continue;
            }
            let Some(window) = rule.read(window.load(Relaxed), now) else {
                return Some((index, Cell::Over));
            };
            if oldest.is_none_or(|(age, _)| window.age > age) {
                oldest = Some((window.age, index));
            }
        }
        oldest.map(|(_, index)| (index, Cell::Live))
    }

    /// Sets a cell's entry to `bits`; returns false if the directory has changed since it was `seen`.
    fn replace(&self, index: usize, bits: u16, seen: u64) -> bool {
        let replaced = seen & !entry(index, u16::MAX) | entry(index, bits);
        self.directory.compare_exchange(seen, replaced, Release, Relaxed).is_ok()
    }
}

/// Whether a cell to be taken has a live window.
enum Cell {
    Over,
    Live,
}

/// The index of a client's tag in the directory.
fn position(directory: u64, tag: u16) -> Option<usize> {
    (0..CELLS_PER_LINE).find(|&index| directory & entry(index, TAG) == entry(index, tag))
}

/// An entry's bits, shifted to its position in the directory.
fn entry(index: usize, bits: u16) -> u64 {
    u64::from(bits) << (index * ENTRY_BITS)
}

/// Counts one request in a window.
fn count(cell: &AtomicU64, rule: WindowRule, now: u64) -> Result<(), RetryAfter> {
    let mut seen = cell.load(Relaxed);
    loop {
        let next = rule.admit(seen, now)?;
        match cell.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
            Ok(_) => return Ok(()),
            Err(newer) => seen = newer,
        }
    }
}

/// How a window is packed into a word, read, and decided. Pure.
///
/// From the top, a word has the start of the current minute, the count of the previous minute and the count of the
/// current one. The counts are as wide as the limit needs and the start has the rest: 50 bits at a limit of 100, 24 at
/// the highest limit. It is in milliseconds and wraps around: an idle window counts again for three minutes after 4.7
/// hours at the highest limit, after 35,000 years at 100. A live window has counted a request, so 0 is an empty cell.
#[derive(Clone, Copy)]
struct WindowRule {
    limit: u64,
    count_bits: u32,
}

/// A window with requests that still count.
#[derive(Clone, Copy)]
struct Window {
    /// Milliseconds since the start of the current minute.
    age: u64,
    /// Milliseconds until the start of the current minute, if the clock was set back.
    ahead: u64,
    previous: u64,
    current: u64,
}

impl WindowRule {
    /// `None` for 0, which is no limit.
    fn new(limit_per_minute: u32) -> Option<Self> {
        let limit = limit_per_minute.min(MAX_LIMIT_PER_MINUTE);
        (limit > 0).then(|| Self { limit: limit.into(), count_bits: u32::BITS - limit.leading_zeros() })
    }

    /// The word after one more request, or the refusal.
    fn admit(self, word: u64, now: u64) -> Result<u64, RetryAfter> {
        let Some(read) = self.read(word, now) else {
            return Ok(self.pack(now, 0, 1));
        };
        let window = read.rolled();
        // The unit is a request / WINDOW_MS, so that nothing is rounded. The last 60 s are the millisecond `now` and
        // the 59,999 before it.
        let counted = window.previous * (WINDOW_MS - 1 - window.age) + window.current * WINDOW_MS;
        if counted < self.limit * WINDOW_MS {
            let start = now.wrapping_sub(window.age).wrapping_add(window.ahead);
            return Ok(self.pack(start, window.previous, window.current + 1));
        }
        let opens_at = if window.current < self.limit {
            // The request is refused although the current count is below the limit, so the previous minute counts and
            // `previous` is not 0.
            let free = (self.limit - window.current) * WINDOW_MS - 1;
            WINDOW_MS - 1 - free / window.previous
        } else {
            WINDOW_MS
        };
        let wait_ms = window.ahead + opens_at - window.age;
        #[expect(clippy::cast_possible_truncation, reason = "at most two minutes")]
        Err(RetryAfter(wait_ms.div_ceil(1000) as u32))
    }

    /// The window in a word; `None` if it is empty or has ended.
    fn read(self, word: u64, now: u64) -> Option<Window> {
        let counts = (1 << self.count_bits) - 1;
        let current = word & counts;
        let previous = word >> self.count_bits & counts;
        let start = word >> (2 * self.count_bits);
        let times = u64::MAX >> (2 * self.count_bits);
        let age = now.wrapping_sub(start) & times;
        let ahead = start.wrapping_sub(now) & times;
        if current == 0 {
            None
        } else if age < 2 * WINDOW_MS {
            Some(Window { age, ahead: 0, previous, current })
        } else if ahead <= WINDOW_MS {
            Some(Window { age: 0, ahead, previous, current })
        } else {
            None
        }
    }

    fn pack(self, start: u64, previous: u64, current: u64) -> u64 {
        start << (2 * self.count_bits) | previous << self.count_bits | current
    }
}

impl Window {
    /// The window at its age: in the second minute, the count of the first one becomes the previous count.
    fn rolled(self) -> Self {
        if self.age < WINDOW_MS {
            return self;
        }
        Self { age: self.age - WINDOW_MS, previous: self.current, current: 0, ..self }
    }
}
