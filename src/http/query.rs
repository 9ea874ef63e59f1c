//! Query parameters: taken apart one by one, all faults told at once.

use actix_web::HttpRequest;
use url::form_urlencoded;

use super::problem::{Faults, Problem};

/// The parameters of a request's query.
///
/// They are looked for in its text, once for each name that is asked for: a query of tens of thousands takes no memory.
pub struct Query<'a> {
    text: &'a str,
    /// The names that were asked for.
    known: Vec<&'static str>,
    pub faults: Faults,
}

impl<'a> Query<'a> {
    pub fn of(request: &'a HttpRequest) -> Self {
        Self { text: request.query_string(), known: Vec::new(), faults: Faults::default() }
    }

    /// Takes a parameter out. One that is given twice is a fault.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let mut values = form_urlencoded::parse(self.text.as_bytes()).filter(|(parameter, _)| parameter == name);
        let (_, value) = values.next()?;
        if values.next().is_some() {
            self.faults.parameter(name, "must be given once");
        }
        Some(value.into_owned())
    }

    /// Takes a parameter that `parse` reads; what it says of a fault is told.
    pub fn parse<T, E: std::fmt::Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.take(name)?;
        parse(&value).map_err(|error| self.faults.parameter(name, error.to_string())).ok()
    }

    /// `limit`: how many entries a page has.
    pub fn page_limit(&mut self, default: usize) -> usize {
        let parse = |text: &str| {
            let number = text.parse().ok().filter(|limit| (1..=100).contains(limit));
            number.ok_or("must be an integer from 1 to 100")
        };
        self.parse("limit", parse).unwrap_or(default)
    }

    /// Ends the taking: what is left are parameters that nobody knows.
    pub fn into_faults(mut self) -> Faults {
        for (name, _) in form_urlencoded::parse(self.text.as_bytes()) {
            if self.faults.is_full() {
                break;
            }
            if !self.known.iter().any(|known| *known == name) {
                self.faults.parameter(name, "is no parameter of this request");
            }
        }
        self.faults
    }

    /// # Errors
    /// The `validation` problem with all faults.
    pub fn finish(self) -> Result<(), Problem> {
        self.into_faults().into_result()
    }
}
