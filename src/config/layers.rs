//! Layers of settings. Each value has an origin.
//!
//! The built-in defaults name all settings, so they are also the schema: a later layer can override a value, but not
//! add a name.
//!
//! This is not done by a library: `figment` 0.10 and `config` 0.15 keep the source of a value, but not its line in
//! the file. The messages that stop a start contain the line, and the setting that was probably meant
//! (`tests/it/config`).

use std::{
    ffi::OsString,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::{
    error::{ConfigError, Origin, SettingError},
    renamed::{RENAMED, RenamedSetting, Renaming, old_and_new},
    suggest::nearest,
};

/// The built-in settings, with the documentation of each.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// The prefix of this program's environment variables.
const PREFIX: &str = "SIGNPOST_";

/// The prefix of variables for the tests, which the program ignores.
const TEST_PREFIX: &str = "SIGNPOST_TEST_";

/// Variables of the command line client, which are no settings.
const CLIENT_VARIABLES: [&str; 2] = ["SIGNPOST_API_URL", "SIGNPOST_API_KEY"];

/// Names that are read from the environment only, by [`super::Secrets`].
pub(super) const SECRETS: [&str; 3] = ["root_key", "master_key", "scylla_password"];

/// A setting's value, before its section has checked it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    Boolean(bool),
    Integer(i64),
    /// A number with a fraction, as written.
    Fraction(String),
    Text(String),
    List(Vec<String>),
    /// Text from the environment. The section that reads it knows its type.
    Untyped(String),
    /// A value of a type that no setting has: the type's name, with its article.
    Unusable(&'static str),
}

impl SettingValue {
    fn from_toml(value: &DeValue<'_>) -> Self {
        match value {
            DeValue::Boolean(value) => Self::Boolean(*value),
            DeValue::Integer(value) => i64::from_str_radix(value.as_str(), value.radix())
                .map_or(Self::Unusable("a number beyond 64 bits"), Self::Integer),
            DeValue::String(value) => Self::Text(value.to_string()),
            DeValue::Array(items) => items
                .iter()
                .map(|item| item.get_ref().as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .map_or(Self::Unusable("a list of something other than strings"), Self::List),
            DeValue::Float(number) => Self::Fraction(number.as_str().to_owned()),
            DeValue::Datetime(_) => Self::Unusable("a date or time"),
            DeValue::Table(_) => Self::Unusable("a section"),
        }
    }

    /// The type's name, with its article, for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Boolean(_) => "a boolean",
            Self::Integer(_) => "a whole number",
            Self::Fraction(_) => "a fraction",
            Self::Text(_) | Self::Untyped(_) => "a string",
            Self::List(_) => "a list",
            Self::Unusable(name) => name,
        }
    }
}

/// A setting: its name, its effective value, and where that was set.
#[derive(Clone, Debug)]
pub struct Setting {
    pub(super) name: String,
    pub(super) value: SettingValue,
    pub(super) origin: Origin,
    /// The old name, if the value was set under it.
    pub(super) old_name: Option<&'static str>,
}

impl Setting {
    /// The dotted name, such as `tiers.free.links_per_month`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The environment variable that sets it, such as `SIGNPOST_TIERS__FREE__LINKS_PER_MONTH`.
    pub fn variable(&self) -> String {
        variable_of(&self.name)
    }

    /// The effective value.
    pub fn value(&self) -> &SettingValue {
        &self.value
    }

    /// Where the effective value was set.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn refuse(&self, message: impl Into<String>) -> SettingError {
        SettingError::new(self.written_name(), message, self.origin.clone())
    }

    /// The name that the configuration has, with the new name if it is an old one.
    fn written_name(&self) -> String {
        self.old_name.map_or_else(|| self.name.clone(), |old| old_and_new(old, &self.name))
    }
}

/// All settings, in the order of the defaults file.
#[derive(Clone)]
pub struct LayeredSettings {
    settings: Vec<Setting>,
    renamed: Vec<RenamedSetting>,
}

/// Shows no values: `Debug` of the typed sections does.
impl fmt::Debug for LayeredSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredSettings").finish_non_exhaustive()
    }
}

impl LayeredSettings {
    /// The lowest layer, which names all settings.
    pub(super) fn defaults() -> Result<Self, ConfigError> {
        let mut settings = Vec::new();
        let document = parse(Path::new("defaults.toml (built in)"), DEFAULTS)?;
        collect(&document, "", &mut settings);
        Ok(Self { settings, renamed: Vec::new() })
    }

    /// Applies a configuration file over the lower layers. `path` is for messages.
    pub(super) fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let document = parse(path, text)?;
        let file = File { path, text };
        self.apply_table(&file, &document, "")?;
        Ok(())
    }

    fn apply_table(&mut self, file: &File<'_>, table: &DeTable<'_>, prefix: &str) -> Result<(), SettingError> {
        for (key, span, value) in in_file_order(table) {
            let name = format!("{prefix}{}", printable_key(key));
            let origin = file.origin(&span);
            let is_section = self.sections().any(|section| section == name);
            match (self.find_mut(&name), value) {
                (Some(_), value) => self.set(&name, SettingValue::from_toml(value), origin)?,
                (None, DeValue::Table(inner)) if is_section => {
                    self.apply_table(file, inner, &format!("{name}."))?;
                }
                (None, _) if is_section => {
                    let message = "is a section, not a setting";
                    return Err(SettingError::new(name, message, origin));
                }
                (None, value) => match Renaming::of(&name) {
                    Some(renaming) => self.set_by_old_name(renaming, &SettingValue::from_toml(value), origin)?,
                    None => return Err(self.unknown_in_file(name, value, origin)),
                },
            }
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: SettingValue, origin: Origin) -> Result<(), SettingError> {
        let old = self.renamed.iter().find(|old| old.new == name && old.origin.layer() == origin.layer());
        if let Some(old) = old {
            let message = format!("is set twice: {} is its old name ({})", old.old, old.origin);
            return Err(SettingError::new(name, message, origin));
        }
        if let Some(setting) = self.find_mut(name) {
            setting.value = value;
            setting.origin = origin;
            setting.old_name = None;
        }
        Ok(())
    }

    /// Sets a setting that was renamed, under its old name.
    fn set_by_old_name(
        &mut self,
        renaming: &'static Renaming,
        value: &SettingValue,
        origin: Origin,
    ) -> Result<(), SettingError> {
        let &Renaming { old, new, convert } = renaming;
        let refuse = |message| SettingError::new(old_and_new(old, new), message, origin.clone());
        if self.find(new).is_some_and(|setting| setting.origin.layer() == origin.layer()) {
            let message = format!("is the old name of {new}, which is set too");
            return Err(SettingError::new(old, message, origin));
        }
        let value = convert(value).map_err(refuse)?;
        self.set(new, value, origin.clone())?;
        if let Some(setting) = self.find_mut(new) {
            setting.old_name = Some(old);
        }
        self.renamed.push(RenamedSetting { old, new, origin });
        Ok(())
    }

    fn unknown_in_file(&self, name: String, value: &DeValue<'_>, origin: Origin) -> SettingError {
        // Also matches `password` in the section `[scylla]`.
        if let Some(secret) = SECRETS.iter().find(|secret| **secret == name.replace('.', "_")) {
            let variable = variable_of(secret);
            let message = format!("is a secret, taken from the environment only ({variable})");
            return SettingError::new(name, message, origin);
        }
        if value.is_table() {
            let meant = nearest(&name, self.sections().map(str::to_owned));
            SettingError::new(name, "unknown section", origin).suggesting(meant)
        } else {
            let meant = nearest(&name, self.iter().map(|setting| setting.name.clone()));
            SettingError::new(name, "unknown setting", origin).suggesting(meant)
        }
    }

    /// Applies environment variables over the lower layers. Variables without our prefix, those of the tests and of the client,
    /// and secrets are ignored.
    pub(super) fn apply_environment(&mut self, variables: &[(OsString, OsString)]) -> Result<(), SettingError> {
        for (variable, value) in variables {
            let variable = variable.to_string_lossy();
            let Some(rest) = variable.strip_prefix(PREFIX) else {
                continue;
            };
            let is_secret = SECRETS.iter().any(|secret| variable == variable_of(secret));
            if is_secret || CLIENT_VARIABLES.contains(&&*variable) || variable.starts_with(TEST_PREFIX) {
                continue;
            }
            let origin = Origin::Environment { variable: variable.escape_debug().to_string() };
            let found = self.settings.iter().find(|setting| setting.variable() == variable);
            let found = found.map(|setting| setting.name.clone());
            let renaming = RENAMED.iter().find(|renaming| variable_of(renaming.old) == variable);
            let Some(name) = found.as_deref().or(renaming.map(|renaming| renaming.old)) else {
                let name = rest.replace("__", ".").to_lowercase();
                let meant = nearest(&variable, self.iter().map(Setting::variable).chain(SECRETS.map(variable_of)));
                let name = name.escape_debug().to_string();
                return Err(SettingError::new(name, "unknown setting", origin).suggesting(meant));
            };
            let Some(text) = value.to_str() else {
                return Err(SettingError::new(name, "is not valid UTF-8", origin));
            };
            let value = SettingValue::Untyped(text.to_owned());
            match renaming {
                Some(renaming) => self.set_by_old_name(renaming, &value, origin)?,
                None => self.set(name, value, origin)?,
            }
        }
        Ok(())
    }

    /// All settings, in the order of the defaults file.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// Settings that were set under their old names.
    pub(super) fn renamed(&self) -> &[RenamedSetting] {
        &self.renamed
    }

    pub(super) fn find(&self, name: &str) -> Option<&Setting> {
        self.iter().find(|setting| setting.name == name)
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut Setting> {
        self.settings.iter_mut().find(|setting| setting.name == name)
    }

    /// The dotted names of all sections; a name occurs once for each setting below it.
    fn sections(&self) -> impl Iterator<Item = &str> {
        self.iter().flat_map(|setting| {
            let name = setting.name.as_str();
            name.match_indices('.').map(move |(end, _)| &name[..end])
        })
    }
}

/// A string that a file sets in a section, even if the rest of the file is invalid. `None` if the file is not TOML.
pub(super) fn text_in_file(text: &str, section: &str, key: &str) -> Option<String> {
    let document = parse(Path::new(""), text).ok()?;
    let DeValue::Table(section) = document.get(section)?.get_ref() else { return None };
    section.get(key)?.get_ref().as_str().map(str::to_owned)
}

/// The environment variable for a dotted name.
pub(super) fn variable_of(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('.', "__").to_uppercase())
}

/// A configuration file that is being applied.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        Origin::File { path: self.path.to_owned(), line: line_at(self.text, span.start) }
    }
}

fn parse<'a>(path: &Path, text: &'a str) -> Result<DeTable<'a>, ConfigError> {
    DeTable::parse(text).map(toml::Spanned::into_inner).map_err(|error| ConfigError::Malformed {
        path: PathBuf::from(path),
        line: line_at(text, error.span().map_or(text.len(), |span| span.start)),
        message: error.message().replace('\n', " "),
    })
}

/// The line, counted from 1, of a byte of `text`.
fn line_at(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

/// Collects the settings of a table and of its sections.
fn collect(table: &DeTable<'_>, prefix: &str, settings: &mut Vec<Setting>) {
    for (key, _, value) in in_file_order(table) {
        let name = format!("{prefix}{key}");
        if let DeValue::Table(inner) = value {
            collect(inner, &format!("{name}."), settings);
        } else {
            settings.push(Setting {
                name,
                value: SettingValue::from_toml(value),
                origin: Origin::Default,
                old_name: None,
            });
        }
    }
}

/// A table's entries in the order of the file, so that the first error of the file is reported. The parser sorts them
/// by name.
fn in_file_order<'a>(table: &'a DeTable<'_>) -> Vec<(&'a str, Range<usize>, &'a DeValue<'a>)> {
    let mut entries: Vec<_> =
        table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value.get_ref())).collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

/// A key, escaped for a one-line message.
fn printable_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { format!("{key:?}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults() -> LayeredSettings {
        LayeredSettings::defaults().expect("the built-in defaults are TOML")
    }

    #[test]
    fn every_default_has_a_usable_type() {
        for setting in defaults().iter() {
            let usable = !matches!(setting.value, SettingValue::Unusable(_) | SettingValue::Untyped(_));
            assert!(usable, "{}: {:?}", setting.name, setting.value);
        }
    }

    #[test]
    fn every_setting_and_section_is_documented_above_it() {
        let lines: Vec<&str> = DEFAULTS.lines().collect();
        let mut documented = 0;
        for (above, line) in lines.iter().zip(&lines[1..]) {
            let is_header = line.starts_with('[');
            let is_setting = !line.starts_with('#') && line.contains(" = ");
            if is_header || is_setting {
                assert!(above.starts_with("# "), "undocumented: {line}");
                documented += usize::from(is_setting);
            }
        }
        assert_eq!(documented, defaults().iter().count());
    }

    #[test]
    fn no_two_settings_share_a_variable() {
        let settings = defaults();
        let mut variables: Vec<String> = settings.iter().map(Setting::variable).collect();
        variables.sort();
        variables.dedup();
        assert_eq!(variables.len(), settings.iter().count());
    }

    #[test]
    fn a_line_is_counted_from_one() {
        let text = "a\nb\nc";
        assert_eq!(line_at(text, 0), 1);
        assert_eq!(line_at(text, 1), 1);
        assert_eq!(line_at(text, 2), 2);
        assert_eq!(line_at(text, 99), 3);
    }

    #[test]
    fn the_first_fault_of_a_file_is_reported() {
        let text = "[http]\nzzz = 1\naaa = 2\n";
        let error = defaults().apply_file(Path::new("x.toml"), text).expect_err("both names are unknown");
        let line = error.to_string();
        assert_eq!(line, "http.zzz: unknown setting (in x.toml, line 2)");
    }
}
