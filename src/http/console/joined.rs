//! Modules of JavaScript as one module: each becomes a function that returns what the module exports. Comments and indentation are
//! left out.
//!
//! It reads lines, not JavaScript, so the modules keep to a form that their tests in a browser check: each import and each list of
//! exports is one line, an exported declaration begins its line, and no template has a line that begins like a comment.

use std::fmt::Write;

use super::last_name;

/// The directory of modules of others, which stay modules of their own.
const VENDOR: &str = "vendor/";

/// The module at `main`, with all that it imports.
pub fn joined(modules: &[(&str, &str)], main: &str) -> String {
    let mut joined = Joined { modules, imports: Vec::new(), bodies: String::new(), done: Vec::new() };
    joined.add(main);
    let mut text = String::new();
    for line in &joined.imports {
        push(&mut text, line);
    }
    text + &joined.bodies
}

struct Joined<'a> {
    modules: &'a [(&'a str, &'a str)],
    /// Imports of modules of others.
    imports: Vec<String>,
    bodies: String,
    /// The paths of the modules in `bodies`, in order. The place of a path is the module's number.
    done: Vec<String>,
}

impl Joined<'_> {
    /// Adds a module behind those that it imports. Returns its number.
    fn add(&mut self, path: &str) -> usize {
        if let Some(number) = self.done.iter().position(|known| known == path) {
            return number;
        }
        let modules = self.modules;
        let source = modules.iter().find(|(known, _)| *known == path).map_or("", |(_, source)| *source);
        let mut body = String::new();
        let mut exports: Vec<&str> = Vec::new();
        for line in lean(source) {
            if let Some((names, from)) = import(line) {
                let target = resolve(path, from);
                if target.starts_with(VENDOR) {
                    self.import(format!("import {names} from './{}';", last_name(&target)));
                } else {
                    let number = self.add(&target);
                    push(&mut body, &format!("const {names} = m{number};"));
                }
            } else if let Some(list) = line.strip_prefix("export {").and_then(|rest| rest.strip_suffix("};")) {
                exports.push(list.trim());
            } else if let Some(declaration) = line.strip_prefix("export ") {
                exports.push(declared(declaration));
                push(&mut body, declaration);
            } else {
                push(&mut body, line);
            }
        }
        let number = self.done.len();
        self.done.push(path.to_owned());
        let exports = exports.join(", ");
        let written = write!(self.bodies, "const m{number} = (() => {{\n{body}return {{ {exports} }};\n}})();\n");
        debug_assert!(written.is_ok(), "a string takes any text");
        number
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

/// The lines without comments that begin a line, indentation and empty lines.
fn lean(source: &str) -> impl Iterator<Item = &str> {
    let mut in_comment = false;
    source.lines().filter_map(move |line| {
        let mut line = line.trim();
        if in_comment || line.starts_with("/**") {
            let end = line.find("*/");
            in_comment = end.is_none();
            line = line[end? + 2..].trim();
        }
        (!line.is_empty() && !line.starts_with("//")).then_some(line)
    })
}

/// What a line imports, and from where.
fn import(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("import ")?.strip_suffix("';")?.rsplit_once(" from '")
}

/// The name that a declaration declares.
fn declared(declaration: &str) -> &str {
    let keywords = ["async function ", "function ", "class ", "const ", "let "];
    let rest = keywords.iter().find_map(|keyword| declaration.strip_prefix(keyword)).unwrap_or(declaration);
    let end = rest.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(rest.len());
    &rest[..end]
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
            ("main.js", "// Starts.\nimport { a } from './a.js';\nimport { b } from './deep/b.js';\n\na(b);\n"),
            (
                "a.js",
                "import { h } from './vendor/x.js';\n/** Does. */\nexport const a = (it) => {\n  // So.\n  h(it);\n};\n",
            ),
            (
                "deep/b.js",
                "import { h } from '../vendor/x.js';\nimport { a } from '../a.js';\n/**\n * Text\n */\nexport class B {}\n\
                 const b = a;\nexport { b, h };\n/** @type {X} */ let c;\n",
            ),
        ];
        let expected = "\
import { h } from './x.js';
const m0 = (() => {
const a = (it) => {
h(it);
};
return { a };
})();
const m1 = (() => {
const { a } = m0;
class B {}
const b = a;
let c;
return { B, b, h };
})();
const m2 = (() => {
const { a } = m0;
const { b } = m1;
a(b);
return {  };
})();
";
        assert_eq!(joined(&modules, "main.js"), expected);
    }
}
