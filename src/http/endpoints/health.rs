//! `GET /`.

use actix_web::{Responder, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::http::endpoint::{self, Answer, Asks, Docs, Endpoint, Tag, json_body};

pub static SERVICE: Tag = Tag { name: "Service", description: "The service itself." };

/// Who answers here.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// Always `ok`: a service that can't serve does not answer here.
    #[schema(pattern = "^ok$")]
    pub status: &'static str,
    /// Always `signpost`.
    #[schema(pattern = "^signpost$")]
    pub service: &'static str,
    /// The version that runs.
    pub version: &'static str,
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/",
    asks: Asks::Nothing,
    handler: || web::route().to(get),
    docs: Docs {
        id: "getHealth",
        summary: "Health check",
        description: "Tells that the service answers. Needs no key, has no limit, and ignores any query.",
        tag: &SERVICE,
        parameters: &[],
        body: None,
        answers: &[Answer {
            status: 200,
            description: "The service answers.",
            content: &[json_body::<Health>(
                || json!({"status": "ok", "service": "signpost", "version": env!("CARGO_PKG_VERSION")}),
            )],
            ..Answer::NONE
        }],
        problems: &[],
    },
};

pub async fn get() -> impl Responder {
    web::Json(Health { status: "ok", service: "signpost", version: env!("CARGO_PKG_VERSION") })
}
