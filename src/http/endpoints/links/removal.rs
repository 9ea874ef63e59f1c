//! `DELETE /links/{short_id}`.

use std::mem;

use actix_web::{HttpRequest, HttpResponse, web};

use super::{CHANGES, ChangeAnswer, LINKS, counted};
use crate::domain::link::LinkName;
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::conditions::Conditions;
use crate::http::endpoint::{self, Docs, Endpoint, Requirement, ResponseDoc, parameters, problem};
use crate::http::openapi::schemas::{IfUnchanged, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;
use crate::telemetry::metrics::link_changes::LinkChangeOutcome;

pub static DELETE: Endpoint = Endpoint {
    methods: endpoint::DELETE,
    path: "/links/{short_id}",
    requires: Requirement::Key(CHANGES),
    handler: || web::route().to(delete),
    docs: Docs {
        id: "deleteShortlink",
        summary: "Delete a shortlink",
        description: "\
Deletes a link for its owner or the root key. Its redirects and its analytics are answered 404 from then on: at once by the
node that answers, within 2 s by all others. Deliveries to its webhooks that are still pending are sent. What was counted of
its hits is removed within 24 h; the usage of its key keeps it.

The name is kept for the key that had it: only that key and the root key can make another link of that name. A second
request is answered 404.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>(), parameters::<IfUnchanged>()],
        body: None,
        answers: &[ResponseDoc { status: 204, description: "The link is deleted.", ..ResponseDoc::NONE }],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::PreconditionFailed),
            problem(ProblemKind::Validation),
        ],
    },
};

pub async fn delete(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
) -> Result<HttpResponse, Problem> {
    counted(&api, answer(&api, &caller, &request, &path)).await
}

async fn answer(api: &Api, caller: &Caller, request: &HttpRequest, path: &str) -> ChangeAnswer {
    let (conditions, mut faults) = (Conditions::of(request.headers()), Query::of(request).into_faults());
    let check = move |link: &_| {
        conditions.check(Some(link))?;
        mem::take(&mut faults).into_result()
    };
    api.links.delete(&caller.key, LinkName::parse(path), check).await?;
    Ok((LinkChangeOutcome::Deleted, HttpResponse::NoContent().finish()))
}
