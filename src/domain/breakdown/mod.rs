//! Breakdowns: a link's hits by one of their properties.
//!
//! Whole months are counted for ever. Single days have a [`Sheet`] each, which is kept for some weeks.

mod answer;
mod dimension;
mod list;
mod range;
mod sheet;

pub use self::answer::{Breakdown, BreakdownAnswer};
pub use self::dimension::{Dimension, LabelForm};
pub use self::list::{LabelList, PRIVATE_LABEL};
pub use self::range::{
    BreakdownRange, BreakdownReads, DEFAULT_SHEET_DAYS, MonthSpan, first_sheet_day, sheet_kept_until,
};
pub use self::sheet::{MAX_MONTH_TEXTS, MAX_SHEET_TEXTS, MAX_TEXT_BYTES, Sheet, SheetEntry, SheetLabel, kept_text};
