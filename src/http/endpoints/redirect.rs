//! `GET /{short_id}`. Most redirects are answered before the routes are asked; what that leaves comes here.

use actix_web::web;

use super::links::LINKS;
use crate::http::endpoint::{self, Answer, Asks, Docs, Endpoint, parameters, problem};
use crate::http::openapi::schemas::ShortIdPath;
use crate::http::problem::Kind;
use crate::http::redirect::by_route;

pub static FOLLOW: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/{short_id}",
    asks: Asks::Nothing,
    handler: || web::route().to(by_route),
    docs: Docs {
        id: "redirect",
        summary: "Redirect to target URL",
        description: "Answers 302 with the link's target in `Location`, without a body. Needs no key, and ignores any query.\n\n\
        Each 302 to a `GET` is one hit: it is counted, and the link's webhooks are fired in the background, so that the \
        redirect does not wait for them. A `HEAD` answers the same and records nothing. Redirects are limited by client, \
        over all links of a node, and never blocked by a quota.\n\n\
        Of the visitor these are read: `User-Agent` and `Sec-CH-UA-Mobile` for the kind of device, the host of `Referer`, \
        and the address for the place. The address is kept only in the hit journal, whose files are deleted once all of \
        their hits are counted.",
        tag: &LINKS,
        parameters: &[parameters::<ShortIdPath>()],
        body: None,
        answers: &[Answer {
            status: 302,
            description: "The way to the target.",
            headers: &["Cache-Control", "Location"],
            ..Answer::NONE
        }],
        problems: &[problem(Kind::NotFound), problem(Kind::RateLimited), problem(Kind::Unavailable)],
    },
};
