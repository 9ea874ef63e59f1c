//! Parameters that several endpoints of analytics have.

use utoipa::IntoParams;

use crate::domain::range_end::RangeFault;
use crate::domain::tally::BotFilter;
use crate::http::endpoint::{Parameters, parameters, shape};
use crate::http::openapi::schemas::{BotFilterName, TableFormatName};
use crate::http::query::Query;

/// Which hits are counted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct BotsParameter {
    /// Which hits are counted: all (`include`), all but those of bots, prefetches, previews and scanners (`exclude`), or
    /// these alone (`only`). Each number with `include` is the sum of those with `exclude` and `only`; of lists that are cut
    /// off, the number of each label.
    #[param(default = "include")]
    bots: Option<BotFilterName>,
}

pub const BOTS_PARAMETER: Parameters = parameters::<BotsParameter>().with_schemas(&[shape::<BotFilterName>()]);

/// Reads `bots`.
pub fn bots(query: &mut Query<'_>) -> BotFilter {
    let parse = |text: &str| BotFilter::parse(text).ok_or("must be include, exclude or only");
    query.parse("bots", parse).unwrap_or_default()
}

/// The format of an answer.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct TableParameters {
    /// The format of the answer. Default: `csv` if `Accept` prefers `text/csv` to JSON, else `json`.
    format: Option<TableFormatName>,
}

pub const TABLE_PARAMETERS: Parameters = parameters::<TableParameters>().with_schemas(&[shape::<TableFormatName>()]);

/// The range, or `None` if it has faults, which are reported.
pub fn range<R>(query: &mut Query<'_>, range: Result<R, Vec<RangeFault>>) -> Option<R> {
    match range {
        Ok(range) => Some(range),
        Err(faults) => {
            for fault in faults {
                query.faults.parameter(fault.parameter, fault.detail);
            }
            None
        }
    }
}
