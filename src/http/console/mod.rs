//! The console: the files of `src/console`, as they are served. They need no build step: they are compiled in, and prepared at the
//! first request for one.

mod joined;

use std::io::Write;
use std::sync::OnceLock;

use actix_web::http::header::HeaderValue;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{Context, SHA256};

use joined::joined;

/// Files with their paths below `src/console`.
macro_rules! sources {
    ($($path:literal,)*) => {
        [$(($path, include_str!(concat!("../../console/", $path)))),*]
    };
}

const PAGE: &str = include_str!("../../console/index.html");
/// What stands in the page for the version of the assets.
const VERSION: &str = "@";

/// Files that are served as they are, below their last name.
static PLAIN: [(&str, &str); 6] =
    sources!["app.css", "icon.svg", "theme.js", "vendor/hooks.js", "vendor/htm.js", "vendor/preact.js",];

/// Modules that are served as one, so that a browser asks for few files and these are small. The first one starts the console.
const MAIN: &str = "main.js";
static MODULES: [(&str, &str); 28] = sources![
    "api.js",
    "bulk.js",
    "csv.js",
    "drafts.js",
    "fields.js",
    "form.js",
    "format.js",
    "html.js",
    "json.js",
    "load.js",
    "main.js",
    "plots.js",
    "router.js",
    "screens/all-clicks.js",
    "screens/breakdowns.js",
    "screens/clicks.js",
    "screens/composer.js",
    "screens/edit.js",
    "screens/keys.js",
    "screens/link.js",
    "screens/links.js",
    "screens/many.js",
    "screens/series.js",
    "screens/sign-in.js",
    "screens/webhooks.js",
    "session.js",
    "stream.js",
    "ui.js",
];

/// The files of the console of a service.
#[derive(Default)]
pub struct ConsoleFiles {
    files: OnceLock<PreparedFiles>,
}

/// What is served.
struct PreparedFiles {
    /// The name of the assets' directory: it changes with what is in any of them.
    version: String,
    page: ConsoleFile,
    etag: HeaderValue,
    /// With their names, in order.
    assets: Vec<(&'static str, ConsoleFile)>,
}

/// A file as it is sent.
pub struct ConsoleFile {
    pub content_type: &'static str,
    pub text: Bytes,
    pub gzip: Bytes,
}

impl ConsoleFiles {
    /// The page, and its `ETag`, which does not depend on the encoding.
    pub fn page(&self) -> (&ConsoleFile, &HeaderValue) {
        let files = self.files();
        (&files.page, &files.etag)
    }

    /// An asset of this version.
    pub fn asset(&self, version: &str, name: &str) -> Option<&ConsoleFile> {
        let files = self.files();
        let found = files.assets.iter().find(|(known, _)| *known == name)?;
        (version == files.version).then_some(&found.1)
    }

    fn files(&self) -> &PreparedFiles {
        self.files.get_or_init(PreparedFiles::prepare)
    }
}

impl PreparedFiles {
    fn prepare() -> Self {
        let mut texts: Vec<(&str, String)> =
            PLAIN.iter().map(|(path, text)| (last_name(path), (*text).to_owned())).collect();
        texts.push((MAIN, joined(&MODULES, MAIN)));
        texts.sort_unstable();
        let version = hash(texts.iter().flat_map(|(name, text)| [*name, text.as_str()]));
        let page = PAGE.replace(&format!("console/{VERSION}/"), &format!("console/{version}/"));
        let etag =
            HeaderValue::try_from(format!("W/\"{}\"", hash([page.as_str()]))).unwrap_or(HeaderValue::from_static(""));
        let assets = texts.into_iter().map(|(name, text)| (name, ConsoleFile::of(name, text))).collect();
        Self { version, page: ConsoleFile::of("index.html", page), etag, assets }
    }
}

impl ConsoleFile {
    fn of(name: &str, text: String) -> Self {
        let content_type = match name.rsplit_once('.') {
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        Self { content_type, gzip: compressed(text.as_bytes()), text: text.into() }
    }
}

/// Compressed by gzip. Writing to memory does not fail; if it did, the file would be empty.
fn compressed(text: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(text);
    written.and_then(|()| encoder.finish()).unwrap_or_default().into()
}

fn last_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The first 16 hexadecimal digits of the SHA-256 of these texts, each with a zero byte behind it.
fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(text.as_bytes());
        context.update(&[0]);
    }
    let digest = context.finish();
    let digits = digest.as_ref().iter().take(8).flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_script_of_the_console_is_compiled_in() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/console");
        let mut found = BTreeSet::new();
        for directory in ["", "screens", "vendor"] {
            for entry in fs::read_dir(root.join(directory)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|extension| extension != "html") {
                    found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        let known: BTreeSet<String> = PLAIN.iter().chain(&MODULES).map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn all_files_together_are_smaller_than_60_000_bytes() {
        let files = PreparedFiles::prepare();
        let size: usize = files.assets.iter().map(|(_, file)| file.gzip.len()).sum::<usize>() + files.page.gzip.len();
        assert!(size < 60_000, "{size}");
    }

    #[test]
    fn the_page_names_only_assets_that_there_are() {
        let console = ConsoleFiles::default();
        let (page, _) = console.page();
        let text = std::str::from_utf8(&page.text).unwrap();
        let names: Vec<&str> = text.split('"').filter_map(|part| part.strip_prefix("console/")).collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            let (version, name) = name.split_once('/').unwrap();
            assert!(console.asset(version, name).is_some(), "{name}");
        }
        assert!(console.asset("0123456789abcdef", "main.js").is_none());
    }
}
