//! `SECURITY.md` names a test for each of its lines: they are there.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_line_of_the_security_page_has_a_test_and_a_place_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code: String = ["src", "tests/it"]
        .iter()
        .flat_map(|part| sources(&root.join(part)))
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let page = fs::read_to_string(root.join("SECURITY.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| What could"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.trim_matches(['|', ' ']).split(" | ").collect()).collect();
    assert!(rows.len() > 20, "{} lines", rows.len());
    for row in rows {
        let &[what, _, places, tests] = &row[..] else { panic!("{row:?}") };
        let named = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let (places, tests) = (named(places), named(tests));
        assert!(!places.is_empty() && !tests.is_empty(), "{what}");
        for place in places {
            assert!(root.join(&place).exists(), "{what}: {place} is not there");
        }
        for test in tests {
            assert!(code.contains(&format!("fn {test}(")), "{what}: there is no test {test}");
        }
    }
}
