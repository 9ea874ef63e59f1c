//! `GET /links`, and the filters that it shares with exports.

use actix_web::{HttpRequest, Responder, web};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::LINKS;
use super::records::{LinkFields, Shortlink, StoredLink};
use crate::domain::calendar::Timestamp;
use crate::domain::key::{ApiKey, KeyId, Scope};
use crate::domain::link::{LinkFilter, LinkOptions, LinkState, ListIndex, ListOrder, ListPlace, TargetUrl, words_of};
use crate::domain::rate_limit::{RateLimit, RateLimitId};
use crate::http::Api;
use crate::http::auth::{Access, Caller};
use crate::http::endpoint::{
    self, Docs, Endpoint, Parameters, Requirement, ResponseDoc, json_body, parameters, problem, shape,
};
use crate::http::list_cursor::{self, ListFingerprint};
use crate::http::openapi::schemas::{ArchivedFilter, LinkListOrder, LinkStateName, ListInclude};
use crate::http::problem::{FieldErrors, Problem, ProblemKind};
use crate::http::query::Query;
use crate::service::link_lists::{ListRequest, ListedLink};

/// The rate limit of `GET /links`.
pub static LINK_LIST_RATE: RateLimit =
    RateLimit { id: RateLimitId::new(9), name: "link_list", setting: "link_list_per_minute" };

/// The default number of links on a page.
const DEFAULT_PAGE: usize = 25;
/// The longest `q`, in characters.
const MAX_WORDS: usize = 100;

/// A page of links.
#[derive(Debug, Serialize, ToSchema)]
pub struct LinkList {
    /// In the order of the list. There may be fewer than `limit`, even none, although the list goes on.
    pub links: Vec<LinkOfList>,
    /// Send it as `cursor` for the next page, with the same filters, within 24 hours; `null`: the list is at its end.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// A short link as lists have it: all of its fields but `data`.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LinkOfList {
    #[serde(flatten)]
    pub link: Shortlink,
    /// The hits of the link, only with `include=hits`; `null`: the link is untracked.
    #[schema(value_type = Option<ListedHits>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<Option<ListedHits>>,
    #[serde(flatten)]
    #[schema(inline)]
    pub fields: LinkFields,
}

/// The hits of a link in a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ListedHits {
    /// All hits.
    pub total: u64,
    /// Hits of today and the six days before, UTC.
    pub last_7_days: u64,
    /// Hits of each of the last 30 days, UTC, oldest first; the last one is today.
    #[schema(min_items = 30, max_items = 30)]
    pub daily: Vec<u64>,
}

/// Parameters that choose links, of lists and exports.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct LinkFilterParameters {
    /// The order by time of creation. Not with `slug_prefix`. Default: `newest`.
    order: Option<LinkListOrder>,
    /// Only links with this tag, whatever its case. At most one of `tag`, `slug_prefix` and `target`.
    #[param(min_length = 1, max_length = 50, nullable = false)]
    tag: Option<String>,
    /// Only links with a slug that begins with this text, in the order of their slugs. Case matters.
    #[param(pattern = "^[0-9A-Za-z_-]{1,64}$", min_length = 1, max_length = 64, nullable = false)]
    slug_prefix: Option<String>,
    /// Only links with exactly this `redirect_url`, as it was sent or as links show it.
    #[param(format = "uri", nullable = false)]
    target: Option<String>,
    /// Only links with all of these words, whatever their case, each in the name, title, target or tags.
    #[param(min_length = 1, max_length = 100, nullable = false)]
    q: Option<String>,
    /// Whether to list archived links: `false` (the default), only them (`true`), or both (`any`).
    archived: Option<ArchivedFilter>,
    /// Only links in this state.
    state: Option<LinkStateName>,
    /// Only links created at this time or later.
    #[param(value_type = Option<String>, format = DateTime, nullable = false)]
    created_from: Option<Timestamp>,
    /// Only links created before this time.
    #[param(value_type = Option<String>, format = DateTime, nullable = false)]
    created_until: Option<Timestamp>,
    /// Only links with webhooks (`true`), or only those without (`false`).
    #[param(nullable = false)]
    has_webhooks: Option<bool>,
    /// The key whose links are listed. Default: the caller's own; for the root key, all keys. The root key may name any
    /// key, a key with `keys:manage` those that it sees.
    #[param(value_type = Option<String>, format = "uuid", nullable = false)]
    key_id: Option<Uuid>,
    /// `hits`: also the hits of each link.
    include: Option<ListInclude>,
}

/// The parameters that choose links, with their schemas.
pub const FILTER_PARAMETERS: Parameters = parameters::<LinkFilterParameters>().with_schemas(&[
    shape::<LinkListOrder>(),
    shape::<ArchivedFilter>(),
    shape::<LinkStateName>(),
    shape::<ListInclude>(),
]);

/// The page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it describes a query that is taken apart by hand")]
pub struct LinkListPageParameters {
    /// Maximum number of links on the page.
    #[param(minimum = 1, maximum = 100, default = 25)]
    limit: Option<u8>,
    /// `next_cursor` of the previous page, with the same filters. Omit it for the first page.
    cursor: Option<String>,
}

pub static LIST: Endpoint = Endpoint {
    methods: endpoint::GET,
    path: "/links",
    requires: Requirement::Key(Access { scope: Scope::LinksRead, rate_limit: &LINK_LIST_RATE, or_self: false }),
    handler: || web::route().to(list),
    docs: Docs {
        id: "listLinks",
        summary: "List links",
        description: "\
Lists links, newest first unless `order` says otherwise, without their `data`. Archived links are left out unless they
are asked for.

`tag`, `slug_prefix` and `target` are looked up in an index of their own. All other filters narrow what is found there:
a request looks at up to 1,000 links, so a page may have fewer links than `limit`, even none. Only `next_cursor: null`
is the end. Until the end, each link that was created before the first page was read and is not deleted meanwhile is listed exactly once.

While a service is being updated from release 0.1.0, lists may be answered 503 until all links are in the indexes.",
        tag: &LINKS,
        parameters: &[parameters::<LinkListPageParameters>(), FILTER_PARAMETERS],
        body: None,
        answers: &[ResponseDoc {
            status: 200,
            description: "A page of links.",
            content: &[json_body::<LinkList>(|| json!({"links": [LinkOfList::example()], "next_cursor": null}))],
            ..ResponseDoc::NONE
        }],
        problems: &[problem(ProblemKind::Validation), problem(ProblemKind::NotFound)],
    },
};

pub async fn list(api: web::Data<Api>, caller: Caller, request: HttpRequest) -> Result<impl Responder, Problem> {
    let mut query = Query::of(&request);
    let limit = query.page_limit(DEFAULT_PAGE);
    let cursor = query.take("cursor");
    let requested = RequestedList::read(&api, &caller, query, cursor.as_deref())?;
    let (list, with_hits) = (requested.list(&api, &caller).await?, requested.with_hits);
    let page = api.link_lists.page(&list, requested.after, limit, with_hits).await?;
    api.metrics.link_lists.count(page.examined, page.links.len());
    Ok(web::Json(LinkList {
        links: page.links.into_iter().map(|listed| LinkOfList::of(&api, &caller.key, listed, with_hits)).collect(),
        next_cursor: page.next.map(|place| list_cursor::encode(place, requested.fingerprint, api.clock.now())),
    }))
}

impl LinkOfList {
    /// As `reader` may see it.
    pub fn of(api: &Api, reader: &ApiKey, listed: ListedLink, with_hits: bool) -> Self {
        let ListedLink { link, state, hits } = listed;
        let hits = hits.map(|hits| ListedHits { total: hits.total, last_7_days: hits.last_7_days, daily: hits.daily });
        // A key with `keys:manage` also lists the links of keys below it, and is not told why one is blocked.
        let sees_reason = reader.is_root || reader.id == link.owner;
        let shortlink = Shortlink::of(api, &link);
        let fields = LinkFields::of(link, state);
        let block_reason = fields.block_reason.filter(|_| sees_reason);
        Self { link: shortlink, hits: with_hits.then_some(hits), fields: LinkFields { block_reason, ..fields } }
    }

    /// The example of the API reference.
    pub fn example() -> Value {
        let mut example = StoredLink::example();
        if let Some(members) = example.as_object_mut() {
            members.remove("data");
        }
        example
    }
}

/// The list that a request asks for, by its filters.
pub struct RequestedList {
    /// What a cursor of the list is bound to: its filters and the key that asks.
    fingerprint: ListFingerprint,
    /// The place in the cursor that was sent.
    after: Option<ListPlace>,
    index: ListIndex,
    order: ListOrder,
    filter: LinkFilter,
    key: Option<KeyId>,
    pub with_hits: bool,
}

/// The parameters that a cursor is bound to, in this order.
const BOUND: [&str; 11] = [
    "order",
    "tag",
    "slug_prefix",
    "target",
    "q",
    "archived",
    "state",
    "created_from",
    "created_until",
    "has_webhooks",
    "key_id",
];

impl RequestedList {
    /// Takes the rest of a query apart.
    ///
    /// # Errors
    /// With all faults of the query.
    pub fn read(api: &Api, caller: &Caller, mut query: Query<'_>, cursor: Option<&str>) -> Result<Self, Problem> {
        let texts = BOUND.map(|name| query.take(name));
        let key_of_caller = caller.key.id.to_string();
        let bound = texts.iter().map(Option::as_deref).chain([Some(key_of_caller.as_str())]);
        let fingerprint = ListFingerprint::of(bound);
        let after = cursor.map(|text| list_cursor::decode(text, fingerprint, api.clock.now())).transpose();
        let after = after.unwrap_or_else(|fault| {
            query.faults.parameter("cursor", fault);
            None
        });
        let of = |name: &str| BOUND.iter().position(|bound| *bound == name).and_then(|at| texts[at].as_deref());
        let order = choice(&mut query.faults, "order", of("order"), "must be newest or oldest", ListOrder::parse);
        if order.is_some() && of("slug_prefix").is_some() {
            query.faults.parameter("order", "is not possible with slug_prefix");
        }
        let index = index(&mut query.faults, of("tag"), of("slug_prefix"), of("target"));
        let faults = &mut query.faults;
        let words_fault = "must have 1 to 100 characters, not only spaces";
        let state_fault = "must be active, scheduled, expired or blocked";
        let parse_state = |text: &str| LinkState::ALL.into_iter().find(|state| state.name() == text);
        let time_fault = "must be an ISO 8601 time such as 2027-01-31T12:00:00Z";
        let parse_archived = |text: &str| match text {
            "any" => Some(None),
            text => parse_bool(text).map(Some),
        };
        let archived = choice(faults, "archived", of("archived"), "must be false, true or any", parse_archived);
        let filter = LinkFilter {
            archived: archived.unwrap_or(Some(false)),
            state: choice(faults, "state", of("state"), state_fault, parse_state),
            has_webhooks: choice(faults, "has_webhooks", of("has_webhooks"), "must be true or false", parse_bool),
            created_from: choice(faults, "created_from", of("created_from"), time_fault, Timestamp::parse),
            created_until: choice(faults, "created_until", of("created_until"), time_fault, Timestamp::parse),
            words: choice(faults, "q", of("q"), words_fault, words).unwrap_or_default(),
        };
        let parse_key = |text: &str| Uuid::try_parse(text).ok().map(KeyId);
        let key = choice(faults, "key_id", of("key_id"), "must be the id of a key", parse_key);
        let with_hits = query.parse("include", |text| if text == "hits" { Ok(true) } else { Err("must be hits") });
        query.finish()?;
        let (order, with_hits) = (order.unwrap_or_default(), with_hits.unwrap_or(false));
        Ok(Self { fingerprint, after, index, order, filter, key, with_hits })
    }

    /// The list that is asked for, if the caller may have it.
    pub async fn list(&self, api: &Api, caller: &Caller) -> Result<ListRequest, Problem> {
        let owner = api.link_lists.owner(&caller.key, self.key).await?;
        let Self { index, order, filter, .. } = self;
        Ok(ListRequest { owner, index: index.clone(), order: *order, filter: filter.clone() })
    }
}

/// Reads the value of a parameter, which has the fault if it can't be read.
fn choice<T>(
    faults: &mut FieldErrors,
    name: &'static str,
    text: Option<&str>,
    fault: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let parsed = parse(text?);
    if parsed.is_none() {
        faults.parameter(name, fault);
    }
    parsed
}

fn parse_bool(text: &str) -> Option<bool> {
    text.parse().ok()
}

fn words(text: &str) -> Option<Vec<String>> {
    let words = words_of(text);
    (text.chars().count() <= MAX_WORDS && !words.is_empty()).then_some(words)
}

/// The index that a list is read from: of the first of these filters. Each further one has a fault.
fn index(faults: &mut FieldErrors, tag: Option<&str>, slug_prefix: Option<&str>, target: Option<&str>) -> ListIndex {
    let given = [("tag", tag), ("slug_prefix", slug_prefix), ("target", target)];
    for (name, _) in given.into_iter().filter(|(_, text)| text.is_some()).skip(1) {
        faults.parameter(name, "only one of tag, slug_prefix and target is possible");
    }
    if let Some(tag) = tag {
        for (_, fault) in LinkOptions::faults_of_tags(&[tag.to_owned()]) {
            faults.parameter("tag", fault.to_string());
        }
        return ListIndex::of_tag(tag);
    }
    if let Some(prefix) = slug_prefix {
        let is_of_slugs = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=64).contains(&prefix.len()) || !prefix.bytes().all(is_of_slugs) {
            faults.parameter("slug_prefix", "must be 1 to 64 of the letters A-Z and a-z, digits, - and _");
        }
        return ListIndex::SlugPrefix(prefix.to_owned());
    }
    match target.map(TargetUrl::parse_sought) {
        None => ListIndex::All,
        Some(Ok(target)) => ListIndex::Target(target.as_str().to_owned()),
        Some(Err(error)) => {
            faults.parameter("target", error.to_string());
            ListIndex::All
        }
    }
}
