//! What the run is to show, and the file that tells it.

use std::{fmt::Write, path::PathBuf};

use loadtests::{
    head::Head,
    home, http,
    measure::{self, Figures},
    plot::{self, Bar},
    requests::Load,
    server::Server,
};

use super::block::three;

/// Something that the product is to reach.
struct Bound {
    what: &'static str,
    wanted: String,
    /// What was measured; `None` where the rounds lie too far apart to tell.
    told: Option<Told>,
}

struct Told {
    median: f64,
    is_reached: bool,
    /// In how many rounds, of how many; none where there was one.
    rounds: Option<(usize, usize)>,
}

/// The report as it grows.
pub struct Report {
    head: Head,
    text: String,
    bounds: Vec<Bound>,
    /// Why figures are to be doubted, where the run was told to go on all the same.
    pub doubts: Vec<String>,
}

impl Report {
    pub fn new(out: Option<PathBuf>) -> Self {
        Self { head: Head::new("contest", out), text: String::new(), bounds: Vec::new(), doubts: Vec::new() }
    }

    pub fn add(&mut self, text: &str) {
        self.text += text;
    }

    /// Notes figures of the rounds, whose median is to be at most `bound`.
    pub fn at_most(&mut self, what: &'static str, bound: f64, figures: &Figures) {
        self.note(what, format!("at most {bound}"), figures, |figure| figure <= bound);
    }

    /// Notes figures of the rounds, of which so many among so many are to be at most `bound`.
    pub fn at_most_in(&mut self, what: &'static str, bound: f64, figures: &Figures, (most, all): (usize, usize)) {
        self.note(what, format!("at most {bound} in {most} of {all} rounds"), figures, |figure| figure <= bound);
        if let Some(Bound { told: Some(Told { is_reached, rounds: Some((reached, rounds)), .. }), .. }) =
            self.bounds.last_mut()
        {
            *is_reached = *reached * all >= *rounds * most;
        }
    }

    /// Notes figures of the rounds, whose median is to be at least `bound`.
    pub fn at_least(&mut self, what: &'static str, bound: f64, figures: &Figures) {
        self.note(what, format!("at least {bound}"), figures, |figure| figure >= bound);
    }

    /// Notes that a figure that is to be at most `bound` can't be told from this run.
    pub fn withheld(&mut self, what: &'static str, bound: f64) {
        self.bounds.push(Bound { what, wanted: format!("at most {bound}"), told: None });
    }

    fn note(&mut self, what: &'static str, wanted: String, figures: &Figures, is_reached: impl Fn(f64) -> bool) {
        let reached = figures.0.iter().filter(|figure| is_reached(**figure)).count();
        let rounds = (figures.0.len() > 1).then_some((reached, figures.0.len()));
        let told = Told { median: figures.median(), is_reached: is_reached(figures.median()), rounds };
        self.bounds.push(Bound { what, wanted, told: Some(told) });
    }

    /// Draws bars of figures over rounds into a file beside the report, and shows it there.
    pub fn plot<'a>(
        &mut self,
        name: &str,
        title: &str,
        unit: &str,
        figures: impl Iterator<Item = (&'a str, Figures)>,
        marked: Option<f64>,
    ) {
        let bars: Vec<Bar> = figures
            .map(|(label, Figures(values))| Bar {
                label: label.to_owned(),
                min: values.iter().copied().fold(f64::INFINITY, f64::min),
                max: values.iter().copied().fold(0.0, f64::max),
                median: Figures(values).median(),
            })
            .collect();
        let (file, path) = self.head.plot(name);
        plot::bars(&path, title, unit, &bars, marked);
        writeln!(self.text, "![{title}]({file})\n").unwrap();
    }

    fn head(&self) -> String {
        let tools = ["nginx -v 2>&1", "wrk -v 2>&1 | head -n 1 | cut -d ' ' -f 1-2"];
        let tools = tools.map(|command| measure::output_of("sh", &["-c", command]));
        let title = "The contest: redirects beside nginx";
        self.head.text(title, "loadtests/run", &home::scratch(), &tools)
    }

    fn bounds(&self) -> String {
        let mut text = "## What is to be reached\n\nFigures are medians over the rounds, ratios medians of the ratios within each \
                        round.\n\n| | wanted | figure | | in rounds |\n|---|---|---|---|---|\n"
            .to_owned();
        for Bound { what, wanted, told } in &self.bounds {
            let told = told.as_ref().map_or("| not reported | ".to_owned(), |told| {
                let decimals = if told.median.abs() < 100.0 { 2 } else { 0 };
                let rounds = told.rounds.map_or(String::new(), |(reached, all)| format!("{reached} of {all}"));
                let is_reached = if told.is_reached { "reached" } else { "**missed**" };
                format!("{:.decimals$} | {is_reached} | {rounds}", told.median)
            });
            writeln!(text, "| {what} | {wanted} | {told} |").unwrap();
        }
        text + "\n"
    }

    /// Writes it, and answers where it is.
    pub fn write(&self) -> PathBuf {
        let doubts =
            self.doubts.iter().fold(String::new(), |text, doubt| text + "**Not to be trusted:** " + doubt + "\n\n");
        let report = self.head() + &doubts + &self.bounds() + self.text.trim_end() + "\n";
        self.head.write(&report);
        println!("{report}");
        self.head.out.clone()
    }
}

/// The answers of the servers to the same request: what each carries, and how long it is.
pub fn answers(servers: &[&Server], load: &Load) -> String {
    let mut text = format!(
        "The request, as one of many, and what each answers to it:\n\n```text\n{}\n```\n\n\
         | | status | headers | bytes: head + body |\n|---|---|---|---|\n",
        load.sample.replace("\r\n", "\n").trim_end()
    );
    for server in servers {
        let answer = http::exchange(server.address, &load.sample).unwrap();
        let names: Vec<&str> = answer.fields().map(|(name, _)| name).collect();
        writeln!(
            text,
            "| {} | {} | {} | {} + {} |",
            server.name,
            answer.status,
            names.join(", "),
            answer.head.len(),
            answer.body.len()
        )
        .unwrap();
    }
    text + "\n"
}

/// A row of a table: a name and figures, each as min / median / max.
pub fn row(name: &str, figures: &[(Figures, usize)]) -> String {
    let cells: Vec<String> = figures.iter().map(|(figures, decimals)| three(figures, *decimals)).collect();
    format!("| {name} | {} |\n", cells.join(" | "))
}
