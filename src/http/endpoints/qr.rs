//! `GET /{short_id}/qr`.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use utoipa::IntoParams;

use super::links::LINKS;
use crate::domain::link::LinkName;
use crate::domain::qr::{self, QrImage, QrOptions, QrParameters};
use crate::http::Api;
use crate::http::conditions::is_known_to_client;
use crate::http::endpoint::{
    self, ClientLimit, Content, Docs, Endpoint, Requirement, ResponseDoc, inline_shape, parameters, problem, shape,
};
use crate::http::openapi::schemas::{Binary, ImageFormat, Revalidation, ShortIdPath};
use crate::http::problem::{Problem, ProblemKind};
use crate::http::query::Query;

pub static QR_LIMIT: ClientLimit = ClientLimit { name: "qr", setting: "qr_per_minute" };

const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=86400");

/// Parameters of a QR code.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct QrQuery {
    /// Image format.
    #[param(default = "png")]
    format: Option<ImageFormat>,
    /// Pixels for each module. The image is (modules + 8) × `scale` pixels wide and high.
    #[param(minimum = 1, maximum = 20, default = 5)]
    scale: Option<u8>,
    /// Colour of the modules: hex `#rgb` or `#rrggbb` (the `#` is optional; in a URL it is `%23`), or CMYK
    /// percentages `cmyk(0,100,100,0)` or `0,100,100,0`.
    #[param(default = "#000000", example = "#1a237e")]
    dark: Option<String>,
    /// Colour of the background: as `dark`, or `transparent`. Refused with 422 if a scanner could not distinguish the
    /// two: their brightness (luma, 0.299 red + 0.587 green + 0.114 blue) must differ by at least 25 % of that
    /// between black and white. `dark` may be the brighter one. With `transparent` every `dark` is accepted.
    #[param(default = "#FFFFFF", example = "transparent")]
    light: Option<String>,
}

pub static GET: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/{short_id}/qr",
    requires: Requirement::Client(&QR_LIMIT),
    handler: || web::route().to(get),
    docs: Docs {
        id: "getQrCode",
        summary: "Generate QR code",
        description: "\
Returns the link's `short_url` as a QR code with error correction level M and a quiet zone of 4 modules. Needs no key.

The image may be cached for a day. If `If-None-Match` has its `ETag`, the answer is 304, without the image.",
        tag: &LINKS,
        parameters: &[
            parameters::<ShortIdPath>(),
            parameters::<QrQuery>().with_schemas(&[shape::<ImageFormat>()]),
            parameters::<Revalidation>(),
        ],
        body: None,
        answers: &[
            ResponseDoc {
                status: 200,
                description: "The image.",
                content: &[
                    Content { media_type: "image/png", shape: inline_shape::<Binary>(), example: None },
                    Content { media_type: "image/svg+xml", shape: inline_shape::<String>(), example: None },
                ],
                headers: &["Cache-Control", "ETag"],
                ..ResponseDoc::NONE
            },
            ResponseDoc {
                status: 304,
                description: "The client's copy of the image is current.",
                headers: &["Cache-Control", "ETag"],
                ..ResponseDoc::NONE
            },
        ],
        problems: &[
            problem(ProblemKind::Validation),
            problem(ProblemKind::NotFound),
            problem(ProblemKind::Unavailable),
        ],
    },
};

pub async fn get(api: web::Data<Api>, request: HttpRequest, path: web::Path<String>) -> Result<HttpResponse, Problem> {
    let options = options(&request)?;
    let name = LinkName::parse(&path).ok_or_else(Problem::no_such_link)?;
    let known = match api.redirects.cached(&name) {
        Some(entry) => entry,
        None => api.redirects.load(&name).await?,
    };
    if known.is_none() {
        return Err(Problem::no_such_link());
    }
    let content = api.base_url.short_url(name);
    let etag = qr::etag(&content, &options);
    let mut response = if is_known_to_client(request.headers(), &etag) {
        HttpResponse::NotModified().finish()
    } else {
        let image = rendered(&content, &options)?;
        HttpResponse::Ok().insert_header((CONTENT_TYPE, image.content_type)).body(image.bytes)
    };
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, CACHEABLE);
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(ETAG, etag);
    }
    Ok(response)
}

/// The image. An error is logged.
pub(super) fn rendered(content: &str, options: &QrOptions) -> Result<QrImage, Problem> {
    qr::render(content, options).map_err(|error| {
        tracing::error!(%error, "can't render a QR code");
        Problem::internal()
    })
}

fn options(request: &HttpRequest) -> Result<QrOptions, Problem> {
    let mut query = Query::of(request);
    let [format, scale, dark, light] = ["format", "scale", "dark", "light"].map(|name| query.take(name));
    let parameters = QrParameters {
        format: format.as_deref(),
        scale: scale.as_deref(),
        dark: dark.as_deref(),
        light: light.as_deref(),
    };
    let parsed = QrOptions::parse(&parameters);
    for error in parsed.as_ref().err().into_iter().flatten() {
        query.faults.parameter(error.parameter(), error.to_string());
    }
    query.finish()?;
    // `finish` has reported invalid options.
    parsed.map_err(|_| Problem::internal())
}
