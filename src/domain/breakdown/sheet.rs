//! The sheet of a day: its hits by all dimensions.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::breakdown::{Dimension, LabelForm};
use crate::domain::hit::OTHER_LABEL;
use crate::domain::tally::Tally;

/// The most texts of a dimension in a sheet: further ones count as [`SheetLabel::Other`].
pub const MAX_SHEET_TEXTS: usize = 200;
/// The most texts of a dimension in the sheet of a month.
pub const MAX_MONTH_TEXTS: usize = 1_000;
/// Longer texts are cut.
pub const MAX_TEXT_BYTES: usize = 128;

/// A text, cut at a character if it is longer than sheets keep.
pub fn kept_text(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

/// A label in a sheet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SheetLabel<T> {
    /// The place in the list of the dimension's labels.
    Code(u8),
    Country([u8; 2]),
    /// Never empty.
    Text(T),
    /// Hits whose labels are not known any more.
    Other,
}

impl<T: AsRef<str>> SheetLabel<T> {
    /// The label of a text: what has no place in the dimension is [`Other`](Self::Other). `None` for the empty text,
    /// which is no label.
    pub fn of_text(dimension: Dimension, text: T) -> Option<Self> {
        let label = text.as_ref();
        if label.is_empty() {
            return None;
        }
        let known = match dimension.form() {
            LabelForm::Codes(labels) => {
                let code = labels.iter().position(|known| *known == label);
                code.and_then(|code| u8::try_from(code).ok()).map(Self::Code)
            }
            LabelForm::Country => <[u8; 2]>::try_from(label.as_bytes()).ok().map(Self::Country),
            LabelForm::Text => (label != OTHER_LABEL).then_some(Self::Text(text)),
        };
        Some(known.unwrap_or(Self::Other).in_form(dimension))
    }

    /// This label, or `Other` if it can't be one of the dimension.
    fn in_form(self, dimension: Dimension) -> Self {
        let fits = match (&self, dimension.form()) {
            // A later version may have more codes.
            (Self::Code(code), LabelForm::Codes(_)) => *code < Self::NO_CODE,
            (Self::Country(letters), LabelForm::Country) => letters.iter().all(u8::is_ascii_uppercase),
            (Self::Text(text), LabelForm::Text) => !text.as_ref().is_empty(),
            (Self::Other, _) => true,
            _ => false,
        };
        if fits { self } else { Self::Other }
    }

    /// The text of the label. `None` for hits whose label is not known, also because a later version has noted it.
    pub fn text(&self, dimension: Dimension) -> Option<&str> {
        match (self, dimension.form()) {
            (Self::Code(code), LabelForm::Codes(labels)) => labels.get(usize::from(*code)).copied(),
            (Self::Country(letters), _) => str::from_utf8(letters).ok(),
            (Self::Text(text), _) => Some(text.as_ref()),
            _ => None,
        }
    }

    fn is<U: AsRef<str>>(&self, other: &SheetLabel<U>) -> bool {
        match (self, other) {
            (Self::Code(a), SheetLabel::Code(b)) => a == b,
            (Self::Country(a), SheetLabel::Country(b)) => a == b,
            (Self::Text(a), SheetLabel::Text(b)) => a.as_ref() == b.as_ref(),
            (Self::Other, SheetLabel::Other) => true,
            _ => false,
        }
    }
}

impl<T> SheetLabel<T> {
    /// Is no code.
    pub const NO_CODE: u8 = u8::MAX;
}

/// The hits under a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetEntry<T> {
    pub dimension: Dimension,
    pub label: SheetLabel<T>,
    pub tally: Tally,
}

/// The hits of a day by all dimensions: of a link or of a key's links.
///
/// The texts of a stored sheet are borrowed from its bytes, those of a batch are shared: `T` is `&str` or `Arc<str>`.
///
/// Each hit has a device. In another dimension, it has at most one label, or is `private`; a hit that has neither is
/// not noted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet<T> {
    /// In the order of dimensions, and those of one as they came.
    entries: Vec<SheetEntry<T>>,
    private: Tally,
}

impl<T> Default for Sheet<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), private: Tally::default() }
    }
}

impl<T: AsRef<str>> Sheet<T> {
    /// Notes hits of visitors who want no tracking, in all dimensions that say something of a visitor.
    pub fn add_private(&mut self, tally: Tally) {
        self.private += tally;
    }

    /// Notes hits under a label. The number of texts is not bounded, and each is compared with those that are there:
    /// large batches add up their labels first, and then [`push`](Self::push) them.
    pub fn add(&mut self, dimension: Dimension, label: SheetLabel<T>, tally: Tally) {
        let label = label.in_form(dimension);
        if tally.is_zero() {
            return;
        }
        if let Some(entry) = self.entry_mut(dimension, &label) {
            entry.tally += tally;
        } else {
            let end = self.entries.partition_point(|entry| entry.dimension <= dimension);
            self.entries.insert(end, SheetEntry { dimension, label, tally });
        }
    }

    /// Replaces the hits under a label.
    pub fn set(&mut self, dimension: Dimension, label: SheetLabel<T>, tally: Tally) {
        match self.entry_mut(dimension, &label) {
            Some(entry) => entry.tally = tally,
            None => self.add(dimension, label, tally),
        }
    }

    fn entry_mut(&mut self, dimension: Dimension, label: &SheetLabel<T>) -> Option<&mut SheetEntry<T>> {
        let start = self.entries.partition_point(|entry| entry.dimension < dimension);
        let mut of_it = self.entries[start..].iter_mut().take_while(|entry| entry.dimension == dimension);
        of_it.find(|entry| entry.label.is(label))
    }

    /// Replaces the hits of visitors who want no tracking.
    pub fn set_private(&mut self, tally: Tally) {
        self.private = tally;
    }

    /// Adds an entry of a stored sheet, or the sum of a label in a batch. Entries come in the order of their
    /// dimensions, and each label once.
    pub fn push(&mut self, entry: SheetEntry<T>) {
        debug_assert!(self.entries.last().is_none_or(|last| last.dimension <= entry.dimension));
        self.entries.push(entry);
    }

    pub fn entries(&self) -> &[SheetEntry<T>] {
        &self.entries
    }

    pub fn private(&self) -> Tally {
        self.private
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.private.is_zero()
    }

    /// All hits: each has a device.
    pub fn hits(&self) -> Tally {
        self.of(Dimension::Device).map(|entry| entry.tally).sum()
    }

    /// The entries of a dimension.
    pub fn of(&self, dimension: Dimension) -> impl Iterator<Item = &SheetEntry<T>> {
        let start = self.entries.partition_point(|entry| entry.dimension < dimension);
        self.entries[start..].iter().take_while(move |entry| entry.dimension == dimension)
    }
}

impl Sheet<&str> {
    /// This sheet with texts of its own.
    pub fn to_shared(&self) -> Sheet<Arc<str>> {
        let shared = |SheetEntry { dimension, label, tally }: &SheetEntry<&str>| {
            let label = match label {
                SheetLabel::Code(code) => SheetLabel::Code(*code),
                SheetLabel::Country(letters) => SheetLabel::Country(*letters),
                SheetLabel::Text(text) => SheetLabel::Text(Arc::from(*text)),
                SheetLabel::Other => SheetLabel::Other,
            };
            SheetEntry { dimension: *dimension, label, tally: *tally }
        };
        Sheet { entries: self.entries.iter().map(shared).collect(), private: self.private }
    }
}

impl<'a> Sheet<&'a str> {
    /// Adds another sheet to this stored one: that of a batch, or of another writer. Texts are cut, and beyond
    /// [`MAX_SHEET_TEXTS`] count as other: which are kept depends on those that are here and on the order of `added`.
    pub fn add_within_bounds<T: AsRef<str>>(&mut self, added: &'a Sheet<T>) {
        self.add_entries(added, &added.entries, MAX_SHEET_TEXTS);
    }

    /// Adds the sheet of a day to this one of a month. It has more texts, and no devices, which are counted by day.
    pub fn add_to_month<T: AsRef<str>>(&mut self, added: &'a Sheet<T>) {
        let lists = added.entries.iter().filter(|entry| entry.dimension != Dimension::Device);
        self.add_entries(added, lists, MAX_MONTH_TEXTS);
    }

    fn add_entries<T: AsRef<str> + 'a>(
        &mut self,
        added: &'a Sheet<T>,
        entries: impl IntoIterator<Item = &'a SheetEntry<T>>,
        most_texts: usize,
    ) {
        self.add_private(added.private);
        let mut before = std::mem::take(&mut self.entries).into_iter().peekable();
        let mut entries = entries.into_iter().peekable();
        for dimension in Dimension::ALL {
            let start = self.entries.len();
            self.entries.extend(std::iter::from_fn(|| before.next_if(|entry| entry.dimension == dimension)));
            let mut list = AddedList::new(&mut self.entries, start, dimension, most_texts);
            while let Some(entry) = entries.next_if(|entry| entry.dimension == dimension) {
                let label = match &entry.label {
                    SheetLabel::Code(code) => SheetLabel::Code(*code),
                    SheetLabel::Country(letters) => SheetLabel::Country(*letters),
                    SheetLabel::Text(text) => SheetLabel::Text(kept_text(text.as_ref())),
                    SheetLabel::Other => SheetLabel::Other,
                };
                list.add(label, entry.tally);
            }
        }
    }
}

/// Up to so many labels are compared one by one; more are looked up by hash.
const MOST_COMPARED: usize = 32;

/// The last dimension of a sheet, to which many labels are added. What visitors send may be a new label each time.
struct AddedList<'s, 'a> {
    entries: &'s mut Vec<SheetEntry<&'a str>>,
    start: usize,
    dimension: Dimension,
    texts: usize,
    most_texts: usize,
    /// The places of all labels, once there are many.
    places: HashMap<SheetLabel<&'a str>, usize>,
}

impl<'s, 'a> AddedList<'s, 'a> {
    fn new(entries: &'s mut Vec<SheetEntry<&'a str>>, start: usize, dimension: Dimension, most_texts: usize) -> Self {
        let texts = entries[start..].iter().filter(|entry| matches!(entry.label, SheetLabel::Text(_))).count();
        Self { entries, start, dimension, texts, most_texts, places: HashMap::new() }
    }

    fn add(&mut self, label: SheetLabel<&'a str>, tally: Tally) {
        if tally.is_zero() {
            return;
        }
        let mut place = self.place(&label);
        let mut label = label;
        if place.is_none() && self.texts >= self.most_texts && matches!(label, SheetLabel::Text(_)) {
            label = SheetLabel::Other;
            place = self.place(&label);
        }
        if let Some(place) = place {
            self.entries[place].tally += tally;
            return;
        }
        self.texts += usize::from(matches!(label, SheetLabel::Text(_)));
        if !self.places.is_empty() {
            self.places.insert(label.clone(), self.entries.len());
        }
        self.entries.push(SheetEntry { dimension: self.dimension, label, tally });
    }

    fn place(&mut self, label: &SheetLabel<&'a str>) -> Option<usize> {
        let of_it = &self.entries[self.start..];
        if of_it.len() <= MOST_COMPARED {
            return of_it.iter().position(|entry| entry.label == *label).map(|place| self.start + place);
        }
        if self.places.is_empty() {
            let places = of_it.iter().zip(self.start..).map(|(entry, place)| (entry.label.clone(), place));
            self.places.extend(places);
        }
        self.places.get(label).copied()
    }
}
