//! The file that tells of the run, and its plots.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use loadtests::{
    head::Head,
    plot::{self, Band, Line},
};

use super::{
    Run,
    beside::EDITED,
    claims::Claim,
    course::{Course, Life, Noticed, Resident},
    mix::Rates,
    scene::{HOOKED, PLAIN, QUOTAS},
};

/// Writes the report and its plots, and answers where it is.
pub fn write(head: &Head, home: &Path, run: &Run, claims: &[Claim]) -> PathBuf {
    let course = run.course();
    let text = head.text("Soak and faults", "cargo bench -p loadtests --bench soak --", home, &[])
        + &verdict(claims)
        + &traffic(run)
        + &faults(&course)
        + &memory(&course)
        + &plots(head, run);
    head.write(&text);
    println!("{text}");
    head.out.clone()
}

fn verdict(claims: &[Claim]) -> String {
    let mut text = "## Verdict\n\n| claim | | figures |\n|---|---|---|\n".to_owned();
    for Claim { what, held, figures } in claims {
        let held = match held {
            Some(true) => "held",
            Some(false) => "**FAILED**",
            None => "too short to tell",
        };
        writeln!(text, "| {what} | {held} | {} |", figures.replace('|', "\\|").replace('\n', " ")).unwrap();
    }
    text + "\n"
}

fn traffic(run: &Run) -> String {
    let Rates { redirects, api } = run.rates;
    let settings = run
        .quota
        .settings()
        .into_iter()
        .fold(String::new(), |text, (name, value)| text + &format!("- `{name}={value}`\n"));
    let sum = |of: fn(&super::traffic::Second) -> u64| run.seconds.iter().map(of).sum::<u64>();
    format!(
        "## Traffic\n\nIn a closed loop over 64 connections the same mixture came to {:.0} requests a second; the run was paced at \
         half of it by a schedule that does not wait: {redirects:.0} a second for short ids and {api:.0} to the API and for QR \
         codes. {PLAIN} links asked for by Zipf, {HOOKED} links with one webhook or two, {QUOTAS} keys with monthly quotas. Beside it \
         ten edits of {EDITED} links a second, followed by two clients; a creation of 20 links at once each second, of which four \
         are deleted; replays of one link's deliveries; two live streams. \
         Answered: {} and {}; 429: {}; 403: {}; 5xx: {}; cut before the answer: {}; due and not sent, for no connection was idle \
         within a second: {}.\n\nThe program is the release build with its embedded store, which has its data on a tmpfs of {} MiB: \
         a sync to that disk costs nothing, and the throughput is higher than on one that keeps its data. Its settings besides \
         its defaults:\n\n{settings}\n\
         A full disk loses no hit for as long as the journal's segment lasts that is made ahead: so long segments.\n\n",
        run.throughput,
        sum(|second| second.redirects),
        sum(|second| second.api),
        sum(|second| second.limited),
        sum(|second| second.refused),
        sum(|second| second.failed),
        sum(|second| second.cut),
        sum(|second| second.unsent),
        run.disk_mib,
    )
}

fn faults(course: &Course) -> String {
    let mut text = "## Faults\n\nErrors are those from the beginning of the fault until all requests were answered again for three \
                    seconds in a row; times after its end are counted from when what caused it was gone. \"Worked off\" is when the \
                    journal has at most 4 MiB that are not counted, and at most 2,000 deliveries are pending.\n\n\
                    | from, s | to, s | fault | 5xx | cut | not sent | redirects a second, least | p99 of redirects in a second, \
                    most, ms | all answered after, s | worked off after, s | |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for (index, past) in course.faults.iter().enumerate() {
        let Noticed { failed, cut, unsent, least_redirects, worst_p99, answers_after, worked_off_after } =
            course.noticed(index);
        let after = |seconds: Option<f64>| seconds.map_or("**not**".to_owned(), |seconds| format!("{seconds:.1}"));
        writeln!(
            text,
            "| {:.0} | {:.0} | {} | {failed} | {cut} | {unsent} | {least_redirects} | {worst_p99:.1} | {} | {} | {} |",
            past.from,
            past.to,
            past.fault,
            after(answers_after),
            after(worked_off_after),
            past.note
        )
        .unwrap();
    }
    text + "\n"
}

fn memory(course: &Course) -> String {
    let mut text = "## Memory\n\nOf each life of the process that lasted for ten faults or more, in its middle third and in its last; \
                    only in seconds that are not near a fault. What mapped files add is the hit journal's segments.\n\n\
                    | life, s | third | without mapped files, MiB: min | median | max | all: min | median | max |\n\
                    |---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for Life { from, to, thirds } in course.long_lives() {
        for (third, Resident { anonymous, all }) in ["middle", "last"].iter().zip(&thirds) {
            writeln!(text, "| {from:.0} to {to:.0} | {third} | {} | {} |", anonymous.cells(0), all.cells(0)).unwrap();
        }
    }
    text + "\n"
}

fn plots(head: &Head, run: &Run) -> String {
    let bands: Vec<Band> = run
        .faults
        .iter()
        .map(|past| Band { label: past.fault.to_string(), from: past.from, to: past.to.max(past.from + 1.0) })
        .collect();
    let per_second = |label: &str, of: fn(&super::traffic::Second) -> f64| Line {
        label: label.to_owned(),
        points: run.seconds.iter().map(|second| (second.at, of(second))).collect(),
    };
    let per_sample = |label: &str, of: fn(&super::sample::Sample) -> Option<f64>| Line {
        label: label.to_owned(),
        points: run.samples.iter().filter_map(|sample| Some((sample.at, of(sample)?))).collect(),
    };
    let charts = [
        (
            "throughput",
            "Requests, and those without the answer due",
            "a second",
            vec![
                per_second("short ids, answered", |second| second.redirects as f64),
                per_second("API, answered", |second| second.api as f64),
                per_second("5xx, cut or not sent", |second| second.errors() as f64),
            ],
        ),
        (
            "latency",
            "Redirects, from when they were due",
            "ms",
            vec![per_second("p99", |second| second.latency[1]), per_second("p50", |second| second.latency[0])],
        ),
        (
            "resident",
            "Resident memory",
            "MiB",
            vec![
                per_sample("with the journal's mapped segments", |one| (one.resident > 0.0).then_some(one.resident)),
                per_sample("without mapped files", |one| (one.resident > 0.0).then_some(one.anonymous)),
            ],
        ),
        ("pending", "Deliveries in the queue", "deliveries", vec![per_sample("pending", |one| one.pending)]),
        (
            "unread",
            "Journal that is not counted yet",
            "MiB",
            vec![per_sample("not read", |one| Some(one.unread? / f64::from(1 << 20)))],
        ),
        (
            "process",
            "The process",
            "",
            vec![
                per_sample("cores in use × 1,000", |one| (one.resident > 0.0).then_some(one.cpu * 1e3)),
                per_sample("open files", |one| (one.resident > 0.0).then_some(one.files as f64)),
                per_sample("threads", |one| (one.resident > 0.0).then_some(one.threads as f64)),
            ],
        ),
    ];
    let mut text = "## Course\n".to_owned();
    for (name, title, unit, lines) in charts {
        let (file, path) = head.plot(name);
        plot::over_time(&path, title, ("s", unit), &lines, &bands);
        write!(text, "\n![{title}]({file})\n").unwrap();
    }
    text
}
