//! Device labels of real user agents and of harder ones.

use signpost::domain::device::{Device, classify};

/// `category<TAB>user agent` lines of the npm package `user-agents`; see the folder's README.
const REAL: &str = include_str!("../../data/user-agents/agents.tsv");
/// `label<TAB>hint<TAB>reason<TAB>user agent` lines.
const HARD: &str = include_str!("devices_hard.tsv");

#[test]
fn labels_agree_with_every_real_user_agent() {
    let wrong: Vec<String> = REAL
        .lines()
        .filter_map(|line| {
            let (category, user_agent) = line.split_once('\t').expect("two columns");
            let label = classify(user_agent, None).label();
            (label != category).then(|| format!("{label} for {line}"))
        })
        .collect();

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The number of lines in that version of the package: an empty or truncated file must not pass.
    assert_eq!(REAL.lines().count(), 952);
}

#[test]
fn the_hints_that_those_browsers_send_change_no_label() {
    for line in REAL.lines() {
        let (category, user_agent) = line.split_once('\t').expect("two columns");
        assert_eq!(classify(user_agent, Some(category == "mobile")).label(), category, "{user_agent}");
    }
}

#[test]
fn harder_user_agents_have_the_label_that_their_reason_gives() {
    let rows = HARD.lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in rows {
        let [label, hint, reason, user_agent] = row.split('\t').collect::<Vec<_>>().try_into().expect("four columns");
        let hint = match hint {
            "?1" => Some(true),
            "?0" => Some(false),
            "-" => None,
            other => panic!("no hint: {other}"),
        };
        assert!(!reason.is_empty(), "no reason: {row}");
        let user_agent = if user_agent == "(none)" { "" } else { user_agent };
        let told = classify(user_agent, hint).label();
        if told != label {
            wrong.push(format!("{told}, not {label} ({reason}): {user_agent}"));
        }
        count += 1;
    }

    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 60, "{count} rows");
}

#[test]
fn every_label_is_one_of_the_three() {
    assert_eq!(Device::ALL.map(Device::label), ["desktop", "mobile", "tablet"]);
}
