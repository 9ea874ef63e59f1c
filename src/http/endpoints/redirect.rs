//! `GET /{short_id}`. Most redirects are answered before routing; this handler answers the rest.

use actix_web::web;

use super::links::LINKS;
use crate::http::endpoint::{self, Docs, Endpoint, Requirement, ResponseDoc, parameters, problem};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::ProblemKind;
use crate::http::redirect::by_route;

pub static FOLLOW: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/{short_id}",
    requires: Requirement::RedirectLimit,
    handler: || web::route().to(by_route),
    docs: Docs {
        id: "redirect",
        summary: "Redirect to target URL",
        description: "Answers the link's `redirect_status` (302, if it is not set) with its target in `Location`, without a body. \
        Needs no key. The query does not change the answer. `Cache-Control` is `private, no-store`, or `private, max-age=N` for a link with \
        `cache_seconds`; `N` never goes past its `expires_at`.\n\n\
        A link is unknown (404) before its `not_before`. From its `expires_at` on, it leads to its `fallback_url`, else to the \
        operator's `fallbacks.expired` (302, `no-store`), else it is 410 `link-expired`. A blocked link is 410 `link-blocked`. None of \
        these is a hit.\n\n\
        If the operator has set `fallbacks.not_found`, unknown links are redirected there; such a redirect is not a hit. Errors \
        are pages for clients whose `Accept` prefers `text/html` to JSON, such as browsers, else problem documents.\n\n\
        Each redirect of a `GET` to a link's target is one hit: it is counted, and the link's webhooks are called in the background, so that the \
        redirect does not wait for them. A `HEAD` has the same answer and is not a hit. Redirects are limited by client, \
        over all links of a node, and never refused because of a quota.\n\n\
        Read from a visit: `User-Agent` (device, browser, operating system, bot), `Sec-CH-UA-Mobile` (device), `Accept-Language` (the \
        first language), the host of `Referer`, the UTM parameters of the query, `Sec-Purpose`, `Purpose`, `X-Moz` and `X-Purpose` \
        (prefetch), and the address (place, networks of bots). If the operator has set `privacy.respect`, a visitor who sends \
        `Sec-GPC: 1` (with `gpc+dnt` also `DNT: 1`) is counted by device and kind of bot alone. The address is stored only in the hit journal, whose files are deleted once all of \
        their hits are counted.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: None,
        answers: &[
            redirect(301, "A redirect to the target, of a link with this `redirect_status`."),
            redirect(302, "A redirect to the target, or to a fallback."),
            redirect(307, "A redirect to the target, of a link with this `redirect_status`."),
            redirect(308, "A redirect to the target, of a link with this `redirect_status`."),
        ],
        problems: &[
            problem(ProblemKind::NotFound),
            problem(ProblemKind::LinkExpired),
            problem(ProblemKind::LinkBlocked),
            problem(ProblemKind::RateLimited),
            problem(ProblemKind::Unavailable),
        ],
    },
};

const fn redirect(status: u16, description: &'static str) -> ResponseDoc {
    ResponseDoc { status, description, headers: &["Cache-Control", "Location", "X-Robots-Tag"], ..ResponseDoc::NONE }
}
