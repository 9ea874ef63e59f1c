//! `GET /`.

use actix_web::http::header::VARY;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::http::Api;
use crate::http::accept::prefers_html;
use crate::http::endpoint::{self, Docs, Endpoint, Requirement, ResponseDoc, Tag, json_body};
use crate::http::pages::BY_ACCEPT;
use crate::http::redirect::to_fallback;

pub static SERVICE: Tag = Tag { name: "Service", description: "State of the service." };

/// The state of the service.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub struct HealthRecord {
    /// Always `ok`: a service that can't serve does not answer.
    #[schema(pattern = "^ok$")]
    pub status: &'static str,
    /// Always `signpost`.
    #[schema(pattern = "^signpost$")]
    pub service: &'static str,
    /// The running version.
    pub version: &'static str,
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/",
    requires: Requirement::Nothing,
    handler: || web::route().to(get),
    docs: Docs {
        id: "getHealth",
        summary: "Health check",
        description: "Shows that the service answers. Needs no key, is not limited, and ignores the query. If the operator has \
        set `fallbacks.root`, clients whose `Accept` prefers `text/html` to JSON, such as browsers, are redirected there.",
        tag: &SERVICE,
        parameters: &[],
        body: None,
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The service answers.",
                content: &[json_body::<HealthRecord>(
                    || json!({"status": "ok", "service": "signpost", "version": env!("CARGO_PKG_VERSION")}),
                )],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 302,
                description: "A redirect to the operator's page, if there is one, of clients that prefer HTML.",
                headers: &["Cache-Control", "Location", "Vary", "X-Robots-Tag"],
                ..ResponseDoc::NONE
            },
        ],
        problems: &[],
    },
};

pub async fn get(api: web::Data<Api>, request: HttpRequest) -> HttpResponse {
    let health = HealthRecord { status: "ok", service: "signpost", version: env!("CARGO_PKG_VERSION") };
    let Some(root) = &api.fallbacks.root else { return HttpResponse::Ok().json(health) };
    let mut response: HttpResponse =
        if prefers_html(request.headers()) { to_fallback(root).into() } else { HttpResponse::Ok().json(health) };
    response.headers_mut().insert(VARY, BY_ACCEPT);
    response
}
