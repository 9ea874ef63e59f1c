//! Reads the operator's pages and checks the fallbacks.

use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;

use super::{StartError, refused, watched_file};
use crate::cache::redirect_head::RedirectHead;
use crate::config::Config;
use crate::domain::link::{BaseUrl, TargetUrl};
use crate::http::pages::{Fallbacks, OperatorPages, Pages, Template};

/// Most bytes of a page: it is in memory, and sent to whoever asks for an unknown link.
const MAX_PAGE_BYTES: u64 = 256 * 1024;
/// Most bytes of `pages.robots`: what crawlers have to read at least (RFC 9309, section 2.5).
const MAX_ROBOTS_BYTES: u64 = 500 * 1024;

/// The pages of a service with these settings.
pub(super) fn open(config: &Config, base_url: &BaseUrl) -> Result<Pages, StartError> {
    let page = |name| match &config.pages.directory {
        Some(directory) => read_page(directory, name).map_err(|reason| refused(config, "pages.directory", reason)),
        None => Ok(None),
    };
    let robots = match &config.pages.robots {
        Some(path) => read_text(path, MAX_ROBOTS_BYTES).map_err(|reason| refused(config, "pages.robots", reason))?,
        None => None,
    };
    let operator = OperatorPages {
        not_found: page("not-found.html")?,
        gone: page("gone.html")?,
        blocked: page("blocked.html")?,
        preview: page("preview.html")?,
        robots: robots.map(Bytes::from),
    };
    Pages::new(base_url.clone(), config.redirect.noindex, operator)
        .map_err(|error| refused(config, "pages.directory", error.to_string()))
}

/// A page; `None` if there is no such file.
fn read_page(directory: &Path, name: &str) -> Result<Option<Template>, String> {
    let in_file = |reason: String| format!("{name}: {reason}");
    let Some(text) = read_text(&directory.join(name), MAX_PAGE_BYTES).map_err(in_file)? else { return Ok(None) };
    Template::parse(&text).map(Some).map_err(|error| in_file(error.to_string()))
}

fn read_text(path: &Path, max_bytes: u64) -> Result<Option<String>, String> {
    match watched_file::read(path, max_bytes) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "is not UTF-8".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("can't be read: {error}")),
    }
}

/// Where requests without a link are redirected. The URLs are checked as targets of links are.
pub(super) fn fallbacks(config: &Config, base_url: &BaseUrl) -> Result<Fallbacks, StartError> {
    let head = |setting, url: &Option<String>| match url {
        Some(url) => {
            let target =
                TargetUrl::parse(url, base_url).map_err(|error| refused(config, setting, error.to_string()))?;
            let head = RedirectHead::of_fallback(target.as_str(), config.redirect.noindex);
            head.map(Some).map_err(|error| refused(config, setting, error.to_string()))
        }
        None => Ok(None),
    };
    Ok(Fallbacks {
        root: head("fallbacks.root", &config.fallbacks.root)?,
        not_found: head("fallbacks.not_found", &config.fallbacks.not_found)?,
        expired: head("fallbacks.expired", &config.fallbacks.expired)?,
    })
}
