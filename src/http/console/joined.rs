//! Modules of JavaScript as one module: all that they declare stands in one scope, each module behind those that it imports.
//! Comments and indentation are left out.
//!
//! It reads lines, not JavaScript, so the modules keep to a form that their tests in a browser check: each import and each list of
//! exports is one line, an exported declaration begins its line, no template has a line that begins like a comment or holds a
//! comment of types, and no two modules declare the same name.

use std::borrow::Cow;

use super::last_name;

/// The directory of modules of others, which stay modules of their own.
const VENDOR: &str = "vendor/";

/// The module at `main`, with all that it imports.
pub fn joined(modules: &[(&str, &str)], main: &str) -> String {
    let mut joined = Joined { modules, imports: Vec::new(), body: String::new(), done: Vec::new() };
    joined.add(main);
    let mut text = String::new();
    for line in &joined.imports {
        push(&mut text, line);
    }
    text + &joined.body
}

struct Joined<'a> {
    modules: &'a [(&'a str, &'a str)],
    /// Imports of modules of others.
    imports: Vec<String>,
    body: String,
    /// The paths of the modules that are in `body`, or on the way to it.
    done: Vec<String>,
}

impl Joined<'_> {
    /// Adds a module behind those that it imports.
    fn add(&mut self, path: &str) {
        if self.done.iter().any(|known| known == path) {
            return;
        }
        self.done.push(path.to_owned());
        let modules = self.modules;
        let source = modules.iter().find(|(known, _)| *known == path).map_or("", |(_, source)| *source);
        let mut body = String::new();
        for line in lean(source) {
            if let Some((names, from)) = import(&line) {
                let target = resolve(path, from);
                if target.starts_with(VENDOR) {
                    self.import(format!("import {names} from './{}';", last_name(&target)));
                } else {
                    self.add(&target);
                }
            } else if !line.starts_with("export {") {
                push(&mut body, line.strip_prefix("export ").unwrap_or(&line));
            }
        }
        self.body.push_str(&body);
    }

    fn import(&mut self, line: String) {
        if !self.imports.contains(&line) {
            self.imports.push(line);
        }
    }
}

fn push(body: &mut String, line: &str) {
    body.push_str(line);
    body.push('\n');
}

/// The lines without indentation, comments that begin a line, types and empty lines.
fn lean(source: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut in_comment = false;
    source.lines().filter_map(move |line| {
        let mut line = line.trim();
        if in_comment || line.starts_with("/**") {
            let end = line.find("*/");
            in_comment = end.is_none();
            line = line[end? + 2..].trim();
        }
        (!line.is_empty() && !line.starts_with("//")).then(|| without_types(line))
    })
}

/// Without the comments that tell the type of an expression.
fn without_types(line: &str) -> Cow<'_, str> {
    let Some((before, rest)) = line.split_once("/** @type ") else {
        return line.into();
    };
    let after = rest.split_once("*/").map_or("", |(_, after)| after.trim_start());
    format!("{before}{}", without_types(after)).into()
}

/// What a line imports, and from where.
fn import(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("import ")?.strip_suffix("';")?.rsplit_once(" from '")
}

/// The path of what the module at `path` imports from `from`.
fn resolve(path: &str, from: &str) -> String {
    let mut segments: Vec<&str> = path.split('/').collect();
    segments.pop();
    for segment in from.split('/') {
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_joined_behind_those_that_they_import() {
        let modules = [
            ("main.js", "// Starts.\nimport { a } from './a.js';\nimport { B } from './deep/b.js';\n\na(new B());\n"),
            (
                "a.js",
                "import { h } from './vendor/x.js';\n/** Does. */\nexport const a = (it) => {\n  // So.\n  h(it);\n};\n",
            ),
            (
                "deep/b.js",
                "import { h } from '../vendor/x.js';\nimport { a } from '../a.js';\n/**\n * Text\n */\nexport class B {}\n\
                 const b = a;\nexport { b, h };\n/** @type {X} */ let c = /** @type {any} */ (/** @type {Y} */ (b));\n",
            ),
        ];
        let expected = "\
import { h } from './x.js';
const a = (it) => {
h(it);
};
class B {}
const b = a;
let c = ((b));
a(new B());
";
        assert_eq!(joined(&modules, "main.js"), expected);
    }
}
