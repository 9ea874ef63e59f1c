//! The lists that are kept of a month.

use super::dimension::Dimension;

/// A list of labels of a month, with the hits under each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LabelList {
    /// There is none of [`Dimension::Device`]: devices are counted by day.
    Of(Dimension),
    /// Hits of visitors who want no tracking, under [`PRIVATE_LABEL`] alone.
    Private,
}

/// The only label of [`LabelList::Private`].
pub const PRIVATE_LABEL: &str = "(private)";

impl LabelList {
    /// The number of [`Private`](Self::Private).
    const PRIVATE: u8 = 15;
    /// Numbers of lists have four bits where they are stored: a further dimension needs a new version of these rows.
    const _FITS: () = assert!(Dimension::ALL.len() <= Self::PRIVATE as usize);

    /// The number that is stored.
    pub const fn number(self) -> u8 {
        match self {
            Self::Of(dimension) => dimension as u8,
            Self::Private => Self::PRIVATE,
        }
    }

    /// The list of a number; `None` if there is none, or a later version has added it.
    pub fn from_number(number: u8) -> Option<Self> {
        match Dimension::from_number(number) {
            Some(Dimension::Device) => None,
            Some(dimension) => Some(Self::Of(dimension)),
            None => (number == Self::PRIVATE).then_some(Self::Private),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_the_numbers_that_released_versions_wrote() {
        let released = [Dimension::Referrer, Dimension::Country, Dimension::Region, Dimension::City];
        assert_eq!(released.map(|dimension| LabelList::Of(dimension).number()), [0, 1, 2, 3]);
        let lists: Vec<_> =
            (0..=u8::MAX).filter_map(|number| Some((number, LabelList::from_number(number)?))).collect();
        assert_eq!(lists.len(), Dimension::ALL.len(), "all but that of devices, and the private hits");
        assert!(lists.iter().all(|(number, list)| list.number() == *number));
    }
}
