//! Answers that are JSON or, as tables of two columns, CSV.

use std::borrow::Cow;

use actix_web::http::header::{CONTENT_TYPE, VARY};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use crate::http::accept::prefers_csv;
use crate::http::csv;
use crate::http::pages::BY_ACCEPT;
use crate::http::query::Query;

/// Numbers with a text each.
pub trait CountTable: Serialize {
    /// The names of the columns.
    const COLUMNS: [&'static str; 2];

    fn rows(&self) -> impl Iterator<Item = (Cow<'_, str>, u64)>;

    /// The table as CSV.
    fn to_csv(&self) -> String {
        let mut text = String::new();
        csv::line(&mut text, Self::COLUMNS);
        for (row, count) in self.rows() {
            csv::line(&mut text, [&*row, &count.to_string()]);
        }
        text
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableFormat {
    Json,
    Csv,
}

impl TableFormat {
    /// Reads `format`. Without it, the format is the one that `Accept` prefers.
    pub fn read(query: &mut Query<'_>, request: &HttpRequest) -> Self {
        let given = query.parse("format", |text| match text {
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            _ => Err("must be json or csv"),
        });
        given.unwrap_or_else(|| if prefers_csv(request.headers()) { Self::Csv } else { Self::Json })
    }

    pub fn answer(self, table: &impl CountTable) -> HttpResponse {
        let mut response = match self {
            Self::Json => HttpResponse::Ok().json(table),
            Self::Csv => {
                HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/csv; charset=utf-8")).body(table.to_csv())
            }
        };
        response.headers_mut().insert(VARY, BY_ACCEPT);
        response
    }
}
