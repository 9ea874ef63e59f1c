//! A hash table that many threads read and write at once, without locks: from an id's hash to the position of its
//! record.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::words::Words;

/// The lower bits of a slot: the position of the record. The bits above are of the hash and never all zero. So a slot
/// that is zero is empty.
const POSITION: u64 = (1 << 40) - 1;
/// Stands for the position of a record while there is none that may be read: the file begins with other bytes.
pub const LOOK_UP: u64 = 1;

/// An index with capacity for a number of ids; with more ids, look-ups take longer. Ids are never removed.
///
/// Of an id's hash it keeps 24 bits beside the slot: about one unknown id in a million is taken for a known one. As
/// rarely, two known ids share a slot, and the record of one of them is not found.
pub struct Index {
    slots: Words,
    capacity: u64,
    ids: AtomicU64,
}

impl Index {
    pub fn new(capacity: u64) -> Self {
        let slots = usize::try_from(slots_for(capacity)).expect("memory cannot hold more slots");
        Self { slots: Words::zeros(slots), capacity, ids: AtomicU64::new(0) }
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many ids were inserted.
    pub fn len(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Adds an id by its hash; [`place`](Self::place) adds the position of its record later.
    pub fn insert(&self, hash: u64) {
        let tag = tag_of(hash);
        for slot in self.slots_from(hash) {
            match slot.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.ids.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(there) if there & !POSITION == tag => return,
                Err(_) => {}
            }
        }
    }

    /// Sets the position of an id's record unless one was set before, also [`LOOK_UP`]. Returns whether it is set now.
    pub fn place_first(&self, hash: u64, position: u64) -> bool {
        let tag = tag_of(hash);
        position <= POSITION
            && self.slot_of(hash).is_some_and(|slot| {
                slot.compare_exchange(tag, tag | position, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            })
    }

    /// Sets the position of an id's record, or [`LOOK_UP`]. Returns the position before; `None` for an id that was not
    /// inserted.
    pub fn place(&self, hash: u64, position: u64) -> Option<u64> {
        let position = if position <= POSITION { position } else { LOOK_UP };
        self.slot_of(hash).map(|slot| slot.swap(tag_of(hash) | position, Ordering::AcqRel) & POSITION)
    }

    /// The position of an id's record, 0 if it is not set; `None` for an id that was certainly not inserted.
    pub fn find(&self, hash: u64) -> Option<u64> {
        self.slot_of(hash).map(|slot| slot.load(Ordering::Acquire) & POSITION)
    }

    fn slot_of(&self, hash: u64) -> Option<&AtomicU64> {
        let tag = tag_of(hash);
        let mut slots = self.slots_from(hash).map(|slot| (slot, slot.load(Ordering::Acquire)));
        slots
            .find(|(_, there)| *there == 0 || there & !POSITION == tag)
            .filter(|(_, there)| *there != 0)
            .map(|(slot, _)| slot)
    }

    /// Brings the slot of this hash into the processor's cache. The processor waits for memory in [`find`](Self::find), and so
    /// one hash after another; here it does not, and gets the slots of many hashes at the same time.
    pub fn prefetch(&self, hash: u64) {
        black_box(self.slots[self.first_slot(hash)].load(Ordering::Relaxed));
    }

    /// All slots, in the order in which those with this hash are tried.
    fn slots_from(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let (before, from) = self.slots.split_at(self.first_slot(hash));
        from.iter().chain(before)
    }

    #[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
    fn first_slot(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> u64::BITS) as usize
    }

    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.capacity.to_le_bytes())?;
        out.write_all(&self.len().to_le_bytes())?;
        self.slots.iter().try_for_each(|slot| out.write_all(&slot.load(Ordering::Acquire).to_le_bytes()))
    }

    /// Reads an index that was written, at most this long.
    pub fn read(from: &mut impl Read, most_bytes: u64) -> io::Result<Self> {
        let capacity = read_u64(from)?;
        // More than the file can hold is not allocated.
        if capacity > most_bytes || slots_for(capacity) * size_of::<u64>() as u64 > most_bytes {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let index = Self { ids: AtomicU64::new(read_u64(from)?), ..Self::new(capacity) };
        for slot in index.slots.iter() {
            let kept = read_u64(from)?;
            if kept != 0 {
                slot.store(kept, Ordering::Relaxed);
            }
        }
        Ok(index)
    }
}

/// A fifth stays free: look-ups in full tables are slow.
fn slots_for(capacity: u64) -> u64 {
    capacity + capacity / 4 + 1
}

/// The slot follows from the upper bits of the hash, the tag from the lower ones.
fn tag_of(hash: u64) -> u64 {
    let tag = hash << POSITION.count_ones();
    if tag == 0 { POSITION + 1 } else { tag }
}

pub fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distinct hashes.
    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn all_that_is_inserted_is_found_where_it_was_placed_last() {
        let index = Index::new(1_000);
        (1..=1_000).for_each(|number| index.insert(hash(number)));
        assert!(index.is_full());
        assert!((1..=500).all(|number| index.place_first(hash(number), number + 1)));
        assert!(!(1..=500).any(|number| index.place_first(hash(number), 7_000)));
        (1..=500).for_each(|number| index.insert(hash(number)));
        assert_eq!(index.len(), 1_000);
        let placed = |number: u64| Some(if number > 500 { 0 } else { number + 1 });
        assert!((1..=1_000).all(|number| index.find(hash(number)) == placed(number)));
        assert!((1_001..10_000).all(|number| index.find(hash(number)).is_none()));
        assert!((1..=500).all(|number| index.place(hash(number), 7_000) == placed(number)));
        assert!((1..=500).all(|number| index.find(hash(number)) == Some(7_000)));
    }

    #[test]
    fn no_position_is_set_of_others_or_out_of_range() {
        let index = Index::new(1_000);
        index.insert(hash(1));
        assert!(!index.place_first(hash(2), 3) && index.place(hash(2), 3).is_none());
        assert_eq!(index.find(hash(2)), None, "one that was not inserted");
        assert!(!index.place_first(hash(1), POSITION + 1));
        assert_eq!(index.find(hash(1)), Some(0), "a position out of range");
        index.place(hash(1), POSITION + 1);
        assert_eq!(index.find(hash(1)), Some(LOOK_UP));
        assert!(!index.place_first(hash(1), 3), "it is looked up until its next change");
    }

    #[test]
    fn look_ups_in_a_table_that_is_too_full_end() {
        let index = Index::new(4);
        (0..100).for_each(|number| index.insert(hash(number)));
        assert!((0..100).filter(|number| index.place(hash(*number), 2).is_some()).count() == 6);
        assert!((0..100).filter(|number| index.find(hash(*number)).is_some()).count() == 6);
    }

    #[test]
    fn hashes_without_lower_bits_are_found() {
        let index = Index::new(4);
        index.insert(1 << 63);
        assert_eq!((index.find(1 << 63), index.find(1 << 62)), (Some(0), None));
    }

    #[test]
    fn threads_that_insert_and_place_at_once_lose_nothing() {
        let index = Index::new(10_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 1..=10_000 {
                        index.insert(hash(number));
                        index.place(hash(number), number);
                        assert_eq!(index.find(hash(number)), Some(number));
                    }
                });
            }
        });
        assert_eq!(index.len(), 10_000);
    }
}
