//! Query parameters: read one by one. All errors are reported together.

use actix_web::HttpRequest;
use url::form_urlencoded;

use super::problem::{FieldErrors, Problem};

/// The parameters of a request's query.
///
/// Each is searched in the query's text by name: a query with tens of thousands of parameters takes no memory.
pub struct Query<'a> {
    text: &'a str,
    /// The names that were read.
    known: Vec<&'static str>,
    pub faults: FieldErrors,
}

impl<'a> Query<'a> {
    pub fn of(request: &'a HttpRequest) -> Self {
        Self { text: request.query_string(), known: Vec::new(), faults: FieldErrors::default() }
    }

    /// Reads a parameter. A repeated parameter is an error.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let mut values = form_urlencoded::parse(self.text.as_bytes()).filter(|(parameter, _)| parameter == name);
        let (_, value) = values.next()?;
        if values.next().is_some() {
            self.faults.parameter(name, "must occur only once");
        }
        Some(value.into_owned())
    }

    /// Reads a parameter with `parse`, whose error is reported.
    pub fn parse<T, E: std::fmt::Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.take(name)?;
        parse(&value).map_err(|error| self.faults.parameter(name, error.to_string())).ok()
    }

    /// `limit`: the number of entries on a page.
    pub fn page_limit(&mut self, default: usize) -> usize {
        let parse = |text: &str| {
            let number = text.parse().ok().filter(|limit| (1..=100).contains(limit));
            number.ok_or("must be an integer from 1 to 100")
        };
        self.parse("limit", parse).unwrap_or(default)
    }

    /// The errors, including unknown parameters: those that were not read.
    pub fn into_faults(mut self) -> FieldErrors {
        for (name, _) in form_urlencoded::parse(self.text.as_bytes()) {
            if self.faults.is_full() {
                break;
            }
            if !self.known.iter().any(|known| *known == name) {
                self.faults.parameter(name, "unknown parameter");
            }
        }
        self.faults
    }

    /// # Errors
    /// The `validation` problem with all errors.
    pub fn finish(self) -> Result<(), Problem> {
        self.into_faults().into_result()
    }
}
