//! `GET /`.

use actix_web::{Responder, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::http::endpoint::{self, Asks, Docs, Endpoint, ResponseDoc, Tag, json_body};

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
    asks: Asks::Nothing,
    handler: || web::route().to(get),
    docs: Docs {
        id: "getHealth",
        summary: "Health check",
        description: "Shows that the service answers. Needs no key, is not limited, and ignores the query.",
        tag: &SERVICE,
        parameters: &[],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "The service answers.",
            content: &[json_body::<HealthRecord>(
                || json!({"status": "ok", "service": "signpost", "version": env!("CARGO_PKG_VERSION")}),
            )],
            ..ResponseDoc::NONE
        }],
        problems: &[],
    },
};

pub async fn get() -> impl Responder {
    web::Json(HealthRecord { status: "ok", service: "signpost", version: env!("CARGO_PKG_VERSION") })
}
