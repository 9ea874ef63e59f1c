//! `PUT /links/{short_id}`.

use std::mem;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, LOCATION};
use actix_web::{HttpRequest, HttpResponse, web};
use serde_json::json;

use super::fields::WholeLink;
use super::records::{ShortlinkReplacement, StoredLink};
use super::{CHANGES, ChangeAnswer, LINKS, add_usage, changed, counted, creation_refused};
use crate::domain::link::{Link, LinkName, NewLink};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::{BodyFields, read_json};
use crate::http::conditions::Conditions;
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, json_body, parameters, problem, problem_like, shape,
};
use crate::http::openapi::schemas::{IfAbsent, IfUnchanged, ShortIdPath};
use crate::http::problem::{FieldErrors, Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::links::{ChangeError, Put, PutLink};
use crate::telemetry::metrics::link_changes::LinkChangeOutcome;

pub static PUT: Endpoint = Endpoint {
    methods: endpoint::PUT,
    path: "/links/{short_id}",
    requires: Requirement::Key(CHANGES),
    handler: || web::route().to(put),
    docs: Docs {
        id: "putShortlink",
        summary: "Create or replace a shortlink",
        description: "\
Creates a link under the name in the path, or replaces all fields of the link that has it: a field that is not sent gets its
default. `tracked` can't be changed; where it is sent, it must be what it is (422). So the same request can be sent again, and
changes nothing then.

A creation follows the rules of `POST /shorten`: the name must be a valid `slug` (422), it uses one link of the monthly quota
(403), and a name that is kept for another key is refused with 409 `slug-taken`. With `If-None-Match: *` a link that exists is
not replaced (412). A replacement follows the rules of `PATCH`; a link of another key is 403 `not-owner`.

Requests are checked in this order: key (401), scope (403), rate limit (429), body (415, 413, 400), owner (403), conditions
(412), fields (422), quota (403), name (409).",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>(), parameters::<IfUnchanged>(), parameters::<IfAbsent>()],
        body: Some(Body {
            description: "The link as it is to be.",
            shape: shape::<ShortlinkReplacement>(),
            required: true,
            examples: &[Example {
                name: "link",
                summary: "A link",
                value: || {
                    json!({
                        "redirect_url": "https://example.com/summer?ref=mail",
                        "title": "Summer sale",
                        "webhooks": ["https://hooks.example.com/clicks"],
                    })
                },
            }],
        }),
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The link is as requested.",
                content: &[json_body::<StoredLink>(|| {
                    StoredLink::example_with(&json!({"updated_at": "2026-11-21T08:02:12.052Z", "revision": 2}))
                })],
                headers: &["ETag"],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 201,
                description: "The link is created.",
                content: &[json_body::<StoredLink>(|| {
                    StoredLink::example_with(&json!({
                        "short_id": "summer-sale",
                        "short_url": "https://sign.example/summer-sale",
                        "slug": "summer-sale",
                    }))
                })],
                headers: &["ETag", "Location", "X-Usage-Links-Created", "X-Usage-Links-Limit"],
                names: Some("short_id"),
            },
        ],
        problems: &[
            problem(ProblemKind::NotOwner),
            problem(ProblemKind::PreconditionFailed),
            problem_like(ProblemKind::Validation, || {
                let mut faults = FieldErrors::default();
                faults.parameter("short_id", "must not begin or end with -");
                faults.into_result().err().unwrap_or_else(Problem::internal)
            }),
            problem(ProblemKind::LinkQuotaExceeded),
            problem(ProblemKind::SlugTaken),
        ],
    },
};

pub async fn put(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    counted(&api, answer(&api, &caller, &request, &path, payload)).await
}

async fn answer(api: &Api, caller: &Caller, request: &HttpRequest, path: &str, payload: web::Payload) -> ChangeAnswer {
    let body = read_json(request, payload, api.request_timeout).await?;
    let mut fields = BodyFields::parse(&body)?;
    fields.faults = Query::of(request).into_faults().and(fields.faults);
    // `null` counts as missing, as in a creation.
    if fields.take("slug").is_some() {
        fields.faults.at("/slug", "must not be sent: the path has the name");
    }
    let whole = WholeLink::take(api, &mut fields, api.clock.now());
    let mut replacement = Replacement {
        conditions: Conditions::of(request.headers()),
        whole,
        faults: fields.into_faults(),
        path: path.to_owned(),
    };
    let Some(name) = LinkName::parse(path) else {
        replacement.decide(None)?;
        // `decide` has refused the name.
        return Err(Problem::no_such_link());
    };
    let decide = move |link: Option<&Link>| replacement.decide(link);
    match api.links.put(&caller.key, name, caller.links_created, decide).await {
        Ok(PutLink::Replaced(replaced)) => changed(api, replaced),
        Ok(PutLink::Made(created)) => {
            let location = api.base_url.short_url(format_args!("links/{name}"));
            let mut response = StoredLink::answer(api, StatusCode::CREATED, created.link.clone())?;
            if let Ok(location) = HeaderValue::try_from(location) {
                response.headers_mut().insert(LOCATION, location);
            }
            add_usage(&mut response, caller, created.links_created, created.limit);
            Ok((LinkChangeOutcome::Created, response))
        }
        Err(ChangeError::Create(error)) => Err(creation_refused(api, error)),
        Err(error) => Err(error.into()),
    }
}

/// What a request says about the link of a name.
struct Replacement {
    conditions: Conditions,
    whole: WholeLink,
    faults: FieldErrors,
    path: String,
}

impl Replacement {
    /// What to do with the link that the name has now.
    fn decide(&mut self, link: Option<&Link>) -> Result<Put, Problem> {
        self.conditions.check(link)?;
        // If it is called again, there were none.
        let mut faults = mem::take(&mut self.faults);
        if let Some(link) = link {
            let replaced = self.whole.replacing(link, &mut faults);
            faults.into_result()?;
            return Ok(Put::Replace(replaced));
        }
        let slug = LinkName::parse_slug(&self.path);
        let slug = slug.map_err(|error| faults.parameter("short_id", error.to_string())).ok();
        faults.into_result()?;
        // A missing or malformed target is among the faults.
        let new = self.whole.as_new().ok_or_else(Problem::internal)?;
        Ok(Put::Make(NewLink { slug, ..new }))
    }
}
