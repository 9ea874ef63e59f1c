//! What an endpoint consists of. Each one is a constant in a file of `endpoints/`, where its handler stands too; the routes,
//! the rate limits and the API reference are made from these constants.

use actix_web::Route;
use actix_web::http::Method;
use serde_json::Value;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, ToSchema};

use super::auth::Access;
use super::problem::{Faults, Kind, Problem};

/// What an endpoint that is read answers.
pub const GET: &[Method] = &[Method::GET, Method::HEAD];
pub const POST: &[Method] = &[Method::POST];
pub const DELETE: &[Method] = &[Method::DELETE];

/// A method of a path.
pub struct Endpoint {
    /// The HTTP methods that it answers. The reference names the first.
    pub methods: &'static [Method],
    pub path: &'static str,
    pub asks: Asks,
    pub docs: Docs,
    pub handler: fn() -> Route,
}

/// What an endpoint asks of who calls it.
#[derive(Clone, Copy)]
pub enum Asks {
    Nothing,
    /// No key. Each client may send so many requests.
    Client(&'static ClientLimit),
    /// A key.
    Key(Access),
}

/// A limit on the requests of each client, an address, to one endpoint.
pub struct ClientLimit {
    /// Its name in the metric `signpost_requests_limited_total`.
    pub name: &'static str,
    /// The setting that has the number, in `[limits]`.
    pub setting: &'static str,
}

impl Endpoint {
    /// What it asks of a key; `None`: it needs none.
    pub fn access(&self) -> Option<Access> {
        match self.asks {
            Asks::Key(access) => Some(access),
            Asks::Nothing | Asks::Client(_) => None,
        }
    }
}

/// What the reference says of an endpoint. Texts are Markdown.
///
/// The answers that all endpoints give, and those of the auth middleware and of reading a body, are described in one place
/// (`openapi/problems.rs`); here is what is an endpoint's own.
pub struct Docs {
    /// Its name in generated clients, and its anchor on the page.
    pub id: &'static str,
    pub tag: &'static Tag,
    pub summary: &'static str,
    pub description: &'static str,
    pub parameters: &'static [Parameters],
    pub body: Option<Body>,
    pub answers: &'static [Answer],
    pub problems: &'static [OwnProblem],
}

/// A group of endpoints in the reference.
pub struct Tag {
    pub name: &'static str,
    pub description: &'static str,
}

/// Parameters of the path, the query or the header.
pub struct Parameters {
    pub described: fn() -> Vec<Parameter>,
    /// Schemas that they refer to.
    pub schemas: &'static [Shape],
}

/// The parameters that a type describes.
pub const fn parameters<P: IntoParams>() -> Parameters {
    Parameters { described: || P::into_params(|| None), schemas: &[] }
}

impl Parameters {
    /// Names the schemas that the parameters refer to.
    #[must_use]
    pub const fn with_schemas(self, schemas: &'static [Shape]) -> Self {
        Self { schemas, ..self }
    }
}

/// Which schema a body or a parameter has.
#[derive(Clone, Copy)]
pub struct Shape {
    pub schema: fn() -> RefOr<Schema>,
    /// Hands out, with their names, the schemas that the document must have for it.
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

/// The schema of a type, where it is used.
pub const fn inline_shape<T: ToSchema>() -> Shape {
    Shape { schema: T::schema, components: |_| {} }
}

/// The body of a request.
pub struct Body {
    pub description: &'static str,
    pub shape: Shape,
    /// Whether it may not be left out.
    pub required: bool,
    pub examples: &'static [Example],
}

/// An example of a request's body.
pub struct Example {
    pub name: &'static str,
    pub summary: &'static str,
    pub value: fn() -> Value,
}

/// An answer that is no error.
pub struct Answer {
    pub status: u16,
    pub description: &'static str,
    pub content: &'static [Content],
    /// Names out of `openapi/headers.rs`, of the headers that are this endpoint's own.
    pub headers: &'static [&'static str],
    /// The field of the body that other endpoints take as a parameter of this name.
    pub names: Option<&'static str>,
}

impl Answer {
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

/// A problem that the handler itself answers.
pub struct OwnProblem {
    pub kind: Kind,
    /// `None`: the usual one of its kind.
    pub example: Option<fn() -> Problem>,
}

/// A problem, with the usual example of its kind.
pub const fn problem(kind: Kind) -> OwnProblem {
    OwnProblem { kind, example: None }
}

/// A problem, with an example of its own.
pub const fn problem_like(kind: Kind, example: fn() -> Problem) -> OwnProblem {
    OwnProblem { kind, example: Some(example) }
}

/// The problem of a body with one fault, as an example.
pub fn fault_at(pointer: &str, detail: &'static str) -> Problem {
    let mut faults = Faults::default();
    faults.at(pointer, detail);
    faults.into_result().err().unwrap_or_else(Problem::internal)
}
