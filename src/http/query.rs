//! Query parameters: taken apart one by one, all faults told at once.

use actix_web::HttpRequest;
use url::form_urlencoded;

use super::problem::{Faults, Problem};

/// The parameters of a request's query.
pub struct Query {
    parameters: Vec<(String, String)>,
    pub faults: Faults,
}

impl Query {
    pub fn of(request: &HttpRequest) -> Self {
        let parameters = form_urlencoded::parse(request.query_string().as_bytes()).into_owned().collect();
        Self { parameters, faults: Faults::default() }
    }

    /// Takes a parameter out. One that is given twice is a fault.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(parameter, _)| parameter == name)?;
        let (_, value) = self.parameters.remove(at);
        if self.parameters.iter().any(|(parameter, _)| parameter == name) {
            self.parameters.retain(|(parameter, _)| parameter != name);
            self.faults.parameter(name, "must be given once");
        }
        Some(value)
    }

    /// Takes a parameter that `parse` reads; what it says of a fault is told.
    pub fn parse<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
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
        for (name, _) in self.parameters {
            self.faults.parameter(name, "is no parameter of this request");
        }
        self.faults
    }

    /// # Errors
    /// The `validation` problem with all faults.
    pub fn finish(self) -> Result<(), Problem> {
        self.into_faults().into_result()
    }
}
