//! The fields of bodies about links: parsed, and applied to a link. All errors are collected.

use std::cell::Cell;
use std::collections::HashSet;

use serde_json::value::RawValue;

use crate::domain::calendar::Timestamp;
use crate::domain::link::{
    Link, LinkData, LinkOptions, MAX_CACHE_SECONDS, MAX_WEBHOOKS, NewLink, OptionsError, RedirectStatus, TargetUrl,
};
use crate::domain::webhook_url::WebhookUrl;
use crate::http::Api;
use crate::http::body::{BodyFields, pointer, string};
use crate::http::merge_patch::{Patched, take_patched, take_patched_required};
use crate::http::problem::FieldErrors;

/// The fields of a link that a change may have. A field whose value is wrong is absent.
#[derive(Debug)]
pub struct LinkEdit {
    target: Option<TargetUrl>,
    /// The text of a JSON object.
    data: Patched<String>,
    webhooks: Patched<Vec<String>>,
    options: OptionsEdit,
}

impl LinkEdit {
    /// Takes the fields of a change, in which `null` sets a field to its default.
    pub fn take(api: &Api, fields: &mut BodyFields<'_>) -> Self {
        let now = api.clock.now();
        Self {
            target: take_patched_required(fields, "redirect_url", |fields| target(api, fields, "redirect_url")),
            data: take_patched(fields, "data", data),
            webhooks: take_patched(fields, "webhooks", |fields| webhooks(api, fields)),
            options: OptionsEdit::take(api, fields, now),
        }
    }

    /// The changed link. `faults` gets what only the link itself tells.
    pub fn applied_to(&self, link: &Link, faults: &mut FieldErrors) -> Link {
        let mut changed = link.clone();
        if let Some(target) = &self.target {
            changed.target = target.clone();
        }
        match &self.data {
            Patched::Absent => {}
            Patched::Null => changed.data = LinkData::default(),
            Patched::Value(patch) => match link.data.merged_with(patch) {
                Ok(data) => changed.data = data,
                Err(error) => faults.at("/data", error.to_string()),
            },
        }
        if let Some(urls) = self.webhooks.clone().or(Vec::new()) {
            change_webhooks(&mut changed, urls, faults);
        }
        changed.options = self.options.applied_to(&link.options);
        self.options.check_times(&changed.options, faults);
        changed
    }
}

/// The fields of a link that is to be made, or that replace those of a link.
#[derive(Debug)]
pub struct WholeLink {
    /// `None`: it is missing or wrong, which is among the faults.
    target: Option<TargetUrl>,
    data: LinkData,
    webhooks: Vec<String>,
    tracked: Option<bool>,
    options: LinkOptions,
}

impl WholeLink {
    /// Takes the fields of a creation, in which `null` counts as missing. `now`: by which time they are judged.
    pub fn take(api: &Api, fields: &mut BodyFields<'_>, now: Timestamp) -> Self {
        let whole = Self {
            target: fields
                .take_required_string("redirect_url")
                .and_then(|text| parsed_url(api, fields, "redirect_url", &text)),
            data: data(fields).map_or_else(LinkData::default, |text| {
                LinkData::from_json_object(&text).unwrap_or_else(|error| {
                    fields.faults.at("/data", error.to_string());
                    LinkData::default()
                })
            }),
            webhooks: webhooks(api, fields).unwrap_or_default(),
            tracked: fields.take_bool("tracked"),
            options: LinkOptions::default(),
        };
        let edit = OptionsEdit::take(api, fields, now);
        let options = edit.applied_to(&LinkOptions::default());
        edit.check_times(&options, &mut fields.faults);
        Self { options, ..whole }
    }

    /// A new link without a slug; `None` if there are faults.
    pub fn as_new(&self) -> Option<NewLink> {
        let Self { target, data, webhooks, tracked, options } = self;
        Some(NewLink {
            slug: None,
            target: target.clone()?,
            data: data.clone(),
            webhooks: webhooks.clone().into(),
            tracked: tracked.unwrap_or(true),
            options: options.clone(),
        })
    }

    /// A link with all of these fields in the place of its own.
    pub fn replacing(&self, link: &Link, faults: &mut FieldErrors) -> Link {
        let Self { target, data, webhooks, tracked, options } = self;
        let mut replaced = Link { data: data.clone(), options: options.clone(), ..link.clone() };
        if let Some(target) = target {
            replaced.target = target.clone();
        }
        if tracked.is_some_and(|tracked| tracked != link.tracked) {
            faults.at("/tracked", CANT_BE_CHANGED);
        }
        change_webhooks(&mut replaced, webhooks.clone(), faults);
        replaced
    }
}

/// The fault of a field that no change may have.
pub const CANT_BE_CHANGED: &str = "can't be changed";

fn change_webhooks(link: &mut Link, urls: Vec<String>, faults: &mut FieldErrors) {
    match link.webhooks.changed_to(urls) {
        Ok(webhooks) => link.webhooks = webhooks,
        Err(error) => faults.at("/webhooks", error.to_string()),
    }
}

/// What a body says about [`LinkOptions`].
#[derive(Debug)]
struct OptionsEdit {
    title: Patched<String>,
    tags: Patched<Vec<String>>,
    notes: Patched<String>,
    archived: Patched<bool>,
    expires_at: Patched<Timestamp>,
    not_before: Patched<Timestamp>,
    fallback: Patched<TargetUrl>,
    redirect_status: Patched<RedirectStatus>,
    cache_seconds: Patched<u32>,
    preview: Patched<bool>,
    skip_bots: Patched<bool>,
    /// `false`: a time of the body is unreadable, which is among the faults.
    can_compare_times: bool,
}

impl OptionsEdit {
    fn take(api: &Api, fields: &mut BodyFields<'_>, now: Timestamp) -> Self {
        let flag = |name: &'static str| move |fields: &mut BodyFields<'_>| fields.take_bool(name);
        let can_compare_times = Cell::new(true);
        let time = |fields: &mut BodyFields<'_>, name: &'static str| {
            let text = fields.take_string(name);
            let time = text.as_deref().and_then(Timestamp::parse);
            if time.is_none() {
                can_compare_times.set(false);
            }
            if time.is_none() && text.is_some() {
                fields.faults.at(pointer(name), "must be an ISO 8601 time such as 2027-01-31T12:00:00Z");
            }
            time
        };
        let expires_at = |fields: &mut BodyFields<'_>| {
            let end = time(fields, "expires_at")?;
            if end <= now {
                fields.faults.at("/expires_at", "must be in the future");
            }
            Some(end)
        };
        Self {
            title: take_patched(fields, "title", |fields| checked(fields, "title", LinkOptions::check_title)),
            tags: take_patched(fields, "tags", tags),
            notes: take_patched(fields, "notes", |fields| checked(fields, "notes", LinkOptions::check_notes)),
            archived: take_patched(fields, "archived", flag("archived")),
            expires_at: take_patched(fields, "expires_at", expires_at),
            not_before: take_patched(fields, "not_before", |fields| time(fields, "not_before")),
            fallback: take_patched(fields, "fallback_url", |fields| target(api, fields, "fallback_url")),
            redirect_status: take_patched(fields, "redirect_status", |fields| {
                let status = integer(fields, "redirect_status").map(RedirectStatus::from_code)?;
                or_fault(fields, "redirect_status", status.ok_or(OptionsError::Status))
            }),
            cache_seconds: take_patched(fields, "cache_seconds", |fields| {
                let seconds = u32::try_from(integer(fields, "cache_seconds")?).ok();
                let seconds = seconds.filter(|seconds| *seconds <= MAX_CACHE_SECONDS);
                or_fault(fields, "cache_seconds", seconds.ok_or(OptionsError::CacheSeconds))
            }),
            preview: take_patched(fields, "preview", flag("preview")),
            skip_bots: take_patched(fields, "skip_bots", flag("skip_bots")),
            can_compare_times: can_compare_times.get(),
        }
    }

    fn applied_to(&self, options: &LinkOptions) -> LinkOptions {
        let default = LinkOptions::default();
        LinkOptions {
            title: optional(&self.title, options.title.as_ref()),
            tags: self.tags.clone().or(default.tags).unwrap_or_else(|| options.tags.clone()),
            notes: optional(&self.notes, options.notes.as_ref()),
            archived: self.archived.or(default.archived).unwrap_or(options.archived),
            expires_at: optional(&self.expires_at, options.expires_at.as_ref()),
            not_before: optional(&self.not_before, options.not_before.as_ref()),
            fallback: optional(&self.fallback, options.fallback.as_ref()),
            redirect_status: self.redirect_status.or(default.redirect_status).unwrap_or(options.redirect_status),
            cache_seconds: self.cache_seconds.or(default.cache_seconds).unwrap_or(options.cache_seconds),
            preview: self.preview.or(default.preview).unwrap_or(options.preview),
            skip_bots: self.skip_bots.or(default.skip_bots).unwrap_or(options.skip_bots),
        }
    }

    /// Judges the times against each other, if the body has one of them.
    fn check_times(&self, result: &LinkOptions, faults: &mut FieldErrors) {
        let (Some(begin), Some(end)) = (result.not_before, result.expires_at) else { return };
        if begin < end || !self.can_compare_times {
            return;
        }
        if let Patched::Value(_) = self.expires_at {
            faults.at("/expires_at", "must be after not_before");
        }
        if let Patched::Value(_) = self.not_before {
            faults.at("/not_before", "must be before expires_at");
        }
    }
}

/// The new value of a field whose default is to have none.
fn optional<T: Clone>(patched: &Patched<T>, present: Option<&T>) -> Option<T> {
    match patched {
        Patched::Absent => present.cloned(),
        Patched::Null => None,
        Patched::Value(value) => Some(value.clone()),
    }
}

fn or_fault<T>(fields: &mut BodyFields<'_>, name: &str, value: Result<T, OptionsError>) -> Option<T> {
    value.map_err(|error| fields.faults.at(pointer(name), error.to_string())).ok()
}

fn checked(fields: &mut BodyFields<'_>, name: &str, check: fn(&str) -> Result<(), OptionsError>) -> Option<String> {
    let text = fields.take_string(name)?;
    or_fault(fields, name, check(&text).map(|()| text))
}

/// A field that must be a number. One that is no positive integer is `u64::MAX`, which is never valid.
fn integer(fields: &mut BodyFields<'_>, name: &str) -> Option<u64> {
    let value = fields.take(name)?;
    // `60.0` is an integer in JSON, and some clients have only floating-point numbers.
    let number: Option<f64> = serde_json::from_str(value.get()).ok();
    let number = number.filter(|number| number.fract() == 0.0 && (0.0..1e9).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an integer from 0 to 1e9")]
    Some(number.map_or(u64::MAX, |number| number as u64))
}

fn target(api: &Api, fields: &mut BodyFields<'_>, name: &str) -> Option<TargetUrl> {
    let text = fields.take_string(name)?;
    parsed_url(api, fields, name, &text)
}

fn parsed_url(api: &Api, fields: &mut BodyFields<'_>, name: &str, text: &str) -> Option<TargetUrl> {
    let parsed = TargetUrl::parse(text, &api.base_url);
    let url = parsed.map_err(|error| fields.faults.at(pointer(name), error.to_string())).ok()?;
    if api.blocked_hosts.list().has_host_of(url.as_str()) {
        fields.faults.at(pointer(name), "must not lead to a host that the operator of this service has blocked");
        return None;
    }
    Some(url)
}

/// The text of `data`, which must be an object.
fn data(fields: &mut BodyFields<'_>) -> Option<String> {
    let value = fields.take("data")?;
    if value.get().starts_with('{') {
        return Some(value.get().to_owned());
    }
    fields.faults.at("/data", "must be an object");
    None
}

fn tags(fields: &mut BodyFields<'_>) -> Option<Vec<String>> {
    let values = fields.take_array("tags")?;
    let texts: Vec<Option<String>> =
        values.into_iter().enumerate().map(|(place, value)| tag(fields, place, value)).collect();
    let is_text = |place: usize| texts.get(place).is_some_and(Option::is_some);
    let tags: Vec<String> = texts.iter().map(|text| text.clone().unwrap_or_default()).collect();
    let faults = LinkOptions::faults_of_tags(&tags);
    let is_valid = faults.is_empty();
    for (place, fault) in faults {
        match place {
            None => fields.faults.at("/tags", fault.to_string()),
            // That it is no text is reported already.
            Some(place) if !is_text(place) => {}
            Some(place) => fields.faults.at(format!("/tags/{place}"), fault.to_string()),
        }
    }
    is_valid.then_some(tags)
}

fn tag(fields: &mut BodyFields<'_>, place: usize, value: &RawValue) -> Option<String> {
    let text = string(value);
    text.unwrap_or_else(|fault| {
        fields.faults.at(format!("/tags/{place}"), fault);
        None
    })
}

fn webhooks(api: &Api, fields: &mut BodyFields<'_>) -> Option<Vec<String>> {
    let values = fields.take_array("webhooks")?;
    if values.len() > MAX_WEBHOOKS {
        fields.faults.at("/webhooks", "must have at most 10 entries");
    }
    let (mut urls, mut targets) = (Vec::with_capacity(values.len()), HashSet::new());
    for (index, value) in values.into_iter().enumerate() {
        if fields.faults.is_full() {
            break;
        }
        let at = format!("/webhooks/{index}");
        let text = match string(value) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(fault) => {
                fields.faults.at(at, fault);
                continue;
            }
        };
        match WebhookUrl::parse(&text, &api.webhook_guard) {
            Err(error) => fields.faults.at(at, error.to_string()),
            Ok(url) if !targets.insert(url.target().clone()) => fields.faults.at(at, "must differ from the others"),
            Ok(url) => urls.push(url.as_str().to_owned()),
        }
    }
    Some(urls)
}
