//! Where a report goes, and what its head says of the run: when, of what, on which machine.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{home, measure};

/// What is known before the run.
pub struct Head {
    pub out: PathBuf,
    begun: chrono::DateTime<chrono::Utc>,
    load: String,
    commit: String,
    /// Plots wait here for their report: one that is refused leaves the last one's as they are.
    plots: TempDir,
}

impl Head {
    /// Of a report that goes to `out`, or to `loadtests/results/<date>-<name>.md`. Relative paths begin at the root of the
    /// repository: cargo starts a load test in another directory than that of its caller.
    pub fn new(name: &str, out: Option<PathBuf>) -> Self {
        let begun = chrono::Utc::now();
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        let out = out.map(|out| home::repository().join(out));
        let out = out.unwrap_or_else(|| results.join(format!("{}-{name}.md", begun.format("%Y-%m-%d"))));
        Self { out, begun, load: measure::load(), commit: measure::commit(), plots: TempDir::new().unwrap() }
    }

    /// The head. `command` is what was run, but for its arguments; the data was in `home`; `tools` are those besides the
    /// compiler.
    pub fn text(&self, title: &str, command: &str, home: &Path, tools: &[String]) -> String {
        let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
        let tools: Vec<String> =
            std::iter::once(measure::output_of("rustc", &["--version"])).chain(tools.iter().cloned()).collect();
        format!(
            "# {title}\n\n- Command: `{command} {}`\n- Date: {}. Commit: {}\n- Machine: {}\n- {}\n\
             - Load average before / after: {} / {}\n\n",
            arguments.join(" "),
            self.begun.format("%Y-%m-%d %H:%M UTC"),
            self.commit,
            measure::machine(home),
            tools.join("; "),
            self.load,
            measure::load(),
        )
    }

    /// The file of a plot: how the report names it, and where it is to be drawn.
    pub fn plot(&self, name: &str) -> (String, PathBuf) {
        let file = format!("{}-{name}.svg", self.out.file_stem().unwrap().to_string_lossy());
        let path = self.plots.path().join(&file);
        (file, path)
    }

    /// Writes the whole report, and its plots beside it.
    pub fn write(&self, text: &str) {
        let results = self.out.parent().unwrap();
        fs::create_dir_all(results).unwrap();
        for plot in fs::read_dir(&self.plots).unwrap().map(Result::unwrap) {
            fs::copy(plot.path(), results.join(plot.file_name())).unwrap();
        }
        fs::write(&self.out, text).unwrap();
    }
}
