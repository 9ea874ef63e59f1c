//! `POST /{short_id}/webhooks/test`.

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{ACTIONS, WEBHOOKS};
use crate::domain::link::{Link, LinkName};
use crate::http::Api;
use crate::http::auth::Caller;
use crate::http::body::{optional_fields, read_json};
use crate::http::endpoint::{
    self, Body, Docs, Endpoint, Example, Requirement, ResponseDoc, fault_at, json_body, parameters, problem,
    problem_like, shape,
};
use crate::http::openapi::schemas::{ShortIdPath, TestStatusName};
use crate::http::problem::{Problem, ProblemKind};
use crate::service::webhook_actions::{TestResult, TestedWebhook};

const NO_SUCH_URL: &str = "is not a webhook of this link";

/// Which webhooks to test. A field that is `null` counts as missing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes a body that is taken apart by hand")]
pub struct WebhookTest {
    /// Only this webhook, as sent when the link was created or changed. Default: all of the link's webhooks.
    url: Option<String>,
}

/// The outcome of the tests.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookTestResults {
    /// In the order of the link's webhooks.
    pub results: Vec<WebhookTestResult>,
}

/// The outcome of the test of one webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookTestResult {
    /// The webhook's URL, as sent.
    pub url: String,
    /// Whether the receiver answered 2xx in time.
    #[schema(value_type = TestStatusName)]
    pub status: &'static str,
    /// HTTP status of the answer; `null`: no answer.
    #[schema(required = true)]
    pub response_status: Option<u16>,
    /// The error, such as `http 500`, `timed out` or `quota exceeded`; `null`: none.
    #[schema(required = true)]
    pub error: Option<String>,
    /// How long the receiver took to answer, in milliseconds; 0 if nothing was sent.
    #[schema(minimum = 0)]
    pub duration_ms: u64,
}

impl WebhookTestResult {
    fn of(link: &Link, tested: TestedWebhook) -> Self {
        let (status, response_status, error) = match tested.end {
            TestResult::Delivered(status) => ("delivered", Some(status), None),
            TestResult::Failed(failure) => ("failed", failure.response_status(), Some(failure.to_string())),
            TestResult::NeverSent(reason) => ("failed", None, Some(reason.to_owned())),
        };
        Self {
            url: link.webhooks.at(tested.place).unwrap_or_default().to_owned(),
            status,
            response_status,
            error,
            duration_ms: u64::try_from(tested.took.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

pub static TEST: Endpoint = Endpoint {
    methods: endpoint::POST,
    path: "/{short_id}/webhooks/test",
    requires: Requirement::Key(ACTIONS),
    handler: || web::route().to(test),
    docs: Docs {
        id: "testWebhooks",
        summary: "Test webhooks",
        description: "\
Sends one request to each webhook of a link, or to that with the `url`, and answers with their outcomes, within 10 s.
For the link's owner and the root key.

A test is sent immediately, without retries, and signed like a delivery. It has the link as it is now and a made-up hit:
its `hit_id` is in no list and no analytics. It has the header `Signpost-Test: true`. Each test counts in the owner's monthly
quota of deliveries; one that finds it used up has `failed` with the error `quota exceeded`. At most 32 webhooks of a key, and
256 of all keys, are tested at once; beyond that the answer is 503. At most 10 tests of one host are in flight at once; one that
finds no place within 5 s has `failed` with the error `too many tests of this host at once`, and counts all the same.

A webhook that is suspended is tested all the same, and is not suspended any more if the test is `delivered`.",
        tag: &WEBHOOKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: Some(Body {
            description: "Which webhooks to test. The body is optional.",
            shape: shape::<WebhookTest>(),
            required: false,
            examples: &[Example {
                name: "one",
                summary: "One of the link's webhooks",
                value: || json!({"url": "https://hooks.example.com/clicks"}),
            }],
        }),
        answers: &[ResponseDoc {
            status: 200,
            description: "The results of the tests.",
            content: &[json_body::<WebhookTestResults>(|| {
                json!({"results": [
                    {
                        "url": "https://hooks.example.com/clicks",
                        "status": "delivered",
                        "response_status": 204,
                        "error": null,
                        "duration_ms": 87,
                    },
                    {
                        "url": "https://old.example.com/clicks",
                        "status": "failed",
                        "response_status": 500,
                        "error": "http 500",
                        "duration_ms": 131,
                    },
                ]})
            })],
            ..ResponseDoc::NONE
        }],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::NotOwner),
            problem_like(ProblemKind::Validation, || fault_at("/url", NO_SUCH_URL)),
        ],
    },
};

pub async fn test(
    api: web::Data<Api>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<impl Responder, Problem> {
    let body = read_json(&request, payload, api.request_timeout).await?;
    let mut fields = optional_fields(&request, &body)?;
    let link = api.links.get(&caller.key, LinkName::parse(&path)).await?;
    let mut places = link.webhooks.places().to_vec();
    if let Some(url) = fields.take_string("url") {
        places.retain(|place| link.webhooks.at(*place) == Some(&url));
        if places.is_empty() {
            fields.faults.at("/url", NO_SUCH_URL);
        }
    }
    fields.finish()?;
    let tested = api.webhook_actions.test(&link, &places).await?;
    let results = tested.into_iter().map(|tested| WebhookTestResult::of(&link, tested)).collect();
    Ok(web::Json(WebhookTestResults { results }))
}
