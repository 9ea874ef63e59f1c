//! Series: a link's hits by hour, day, week or month of a time zone.
//!
//! Days of UTC are counted for ever. Other intervals are made of quarters of an hour, which are kept for some weeks:
//! [`QUARTERS_DAYS`].

mod intervals;
mod range;
mod sums;

pub use self::intervals::{Interval, IntervalStarts};
pub use self::range::{MAX_POINTS, QUARTERS_DAYS, SeriesParameters, SeriesRange, quarters_kept_until};
pub use self::sums::{SeriesAnswer, SeriesPoint, SeriesSums};
