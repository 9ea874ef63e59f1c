//! The definition of an endpoint. Each endpoint is a constant in a file of `endpoints/`, next to its handler. The
//! routes, the rate limits and the API reference are generated from these constants.

use actix_web::Route;
use actix_web::http::Method;
use serde_json::Value;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, ToSchema};

use super::auth::Access;
use super::problem::{FieldErrors, Problem, ProblemKind};
use crate::domain::rate_limit::RateLimit;

/// The methods of an endpoint that only reads.
pub const GET: &[Method] = &[Method::GET, Method::HEAD];
pub const POST: &[Method] = &[Method::POST];
pub const DELETE: &[Method] = &[Method::DELETE];
pub const PUT: &[Method] = &[Method::PUT];
/// The body is a JSON Merge Patch: see `merge_patch.rs`.
pub const PATCH: &[Method] = &[Method::PATCH];

/// A path with its methods.
pub struct Endpoint {
    /// The HTTP methods. The reference has the first.
    pub methods: &'static [Method],
    pub path: &'static str,
    pub requires: Requirement,
    pub docs: Docs,
    pub handler: fn() -> Route,
}

/// The credentials or limits that an endpoint requires.
#[derive(Clone, Copy)]
pub enum Requirement {
    Nothing,
    /// No key. The handler takes each request from the client's limit of redirects.
    RedirectLimit,
    /// No key. Requests are limited by client.
    Client(&'static ClientLimit),
    /// Any valid key, whatever its scopes.
    AnyKey(&'static RateLimit),
    /// A key with a scope.
    Key(Access),
}

/// A limit on the requests of each client, by IP address, to an endpoint.
pub struct ClientLimit {
    /// The name in the metric `signpost_requests_limited_total`.
    pub name: &'static str,
    /// The setting with the limit, in `[limits]`.
    pub setting: &'static str,
}

impl Endpoint {
    /// The scope that the endpoint requires, with its rate limit; `None`: no key, or any key.
    pub fn access(&self) -> Option<Access> {
        match self.requires {
            Requirement::Key(access) => Some(access),
            Requirement::Nothing | Requirement::RedirectLimit | Requirement::Client(_) | Requirement::AnyKey(_) => None,
        }
    }

    /// The rate limit of the endpoint's keys; `None`: it requires no key.
    pub fn rate_limit(&self) -> Option<&'static RateLimit> {
        match self.requires {
            Requirement::Key(access) => Some(access.rate_limit),
            Requirement::AnyKey(rate_limit) => Some(rate_limit),
            Requirement::Nothing | Requirement::RedirectLimit | Requirement::Client(_) => None,
        }
    }

    /// Whether the body of a request is a JSON Merge Patch.
    pub fn takes_patch(&self) -> bool {
        self.methods == PATCH
    }
}

/// The documentation of an endpoint. Texts are Markdown.
///
/// Answers of all endpoints, of the auth middleware and of reading a body are described in `openapi/problems.rs`.
/// Here are the endpoint's own.
pub struct Docs {
    /// The name in generated clients, and the anchor on the page.
    pub id: &'static str,
    pub tag: &'static Tag,
    pub summary: &'static str,
    pub description: &'static str,
    pub parameters: &'static [Parameters],
    pub body: Option<Body>,
    pub answers: &'static [ResponseDoc],
    pub problems: &'static [OwnProblem],
}

/// A group of endpoints in the reference.
pub struct Tag {
    pub name: &'static str,
    pub description: &'static str,
}

/// Parameters in the path, the query or the header.
pub struct Parameters {
    pub described: fn() -> Vec<Parameter>,
    /// The schemas to which they refer.
    pub schemas: &'static [Shape],
}

/// The parameters that a type describes.
pub const fn parameters<P: IntoParams>() -> Parameters {
    Parameters { described: || P::into_params(|| None), schemas: &[] }
}

impl Parameters {
    /// Adds the schemas to which the parameters refer.
    #[must_use]
    pub const fn with_schemas(self, schemas: &'static [Shape]) -> Self {
        Self { schemas, ..self }
    }
}

/// The schema of a body or a parameter.
#[derive(Clone, Copy)]
pub struct Shape {
    pub schema: fn() -> RefOr<Schema>,
    /// Adds the named schemas that the document needs for it.
    pub components: fn(&mut Vec<(String, RefOr<Schema>)>),
}

/// A reference to the schema of a type.
pub const fn shape<T: ToSchema>() -> Shape {
    Shape {
        schema: || RefOr::Ref(Ref::from_schema_name(T::name())),
        components: |components| {
            components.push((T::name().into_owned(), T::schema()));
            T::schemas(components);
        },
    }
}

/// The schema of a type, inline.
pub const fn inline_shape<T: ToSchema>() -> Shape {
    Shape { schema: T::schema, components: |_| {} }
}

/// The body of a request.
pub struct Body {
    pub description: &'static str,
    pub shape: Shape,
    /// Whether the body is required.
    pub required: bool,
    pub examples: &'static [Example],
}

/// An example of a request's body.
pub struct Example {
    pub name: &'static str,
    pub summary: &'static str,
    pub value: fn() -> Value,
}

/// The documentation of a successful answer.
pub struct ResponseDoc {
    pub status: u16,
    pub description: &'static str,
    pub content: &'static [Content],
    /// The names, in `openapi/headers.rs`, of headers that only this endpoint has.
    pub headers: &'static [&'static str],
    /// The field of the body that other endpoints take as a parameter of this name.
    pub names: Option<&'static str>,
}

impl ResponseDoc {
    pub const NONE: Self = Self { status: 204, description: "", content: &[], headers: &[], names: None };
}

/// A body of an answer.
pub struct Content {
    pub media_type: &'static str,
    pub shape: Shape,
    pub example: Option<fn() -> Value>,
}

/// A JSON body, with an example.
pub const fn json_body<T: ToSchema>(example: fn() -> Value) -> Content {
    Content { media_type: "application/json", shape: shape::<T>(), example: Some(example) }
}

/// A problem of the handler itself.
pub struct OwnProblem {
    pub kind: ProblemKind,
    /// `None`: the default example of its kind.
    pub example: Option<fn() -> Problem>,
}

/// A problem with the default example of its kind.
pub const fn problem(kind: ProblemKind) -> OwnProblem {
    OwnProblem { kind, example: None }
}

/// A problem with its own example.
pub const fn problem_like(kind: ProblemKind, example: fn() -> Problem) -> OwnProblem {
    OwnProblem { kind, example: Some(example) }
}

/// The problem of a body with one error, as an example.
pub fn fault_at(pointer: &str, detail: &'static str) -> Problem {
    let mut faults = FieldErrors::default();
    faults.at(pointer, detail);
    faults.into_result().err().unwrap_or_else(Problem::internal)
}
