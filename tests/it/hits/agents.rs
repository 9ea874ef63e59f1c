//! Browsers and systems of user agents, compared with what npm `ua-parser-js` reads from its own test data and from real
//! agents. `docs/design/agents.md` has the shares that agree, and why the others do not.

use signpost::domain::agent::{Browser, OperatingSystem, software};

/// `browser<TAB>system<TAB>user agent`, and the same two columns for the lines of `REAL`; see the folder's README.
const TEST_DATA: &str = include_str!("../../data/ua-parser-js/agents.tsv");
const OF_REAL: &str = include_str!("../../data/ua-parser-js/real.tsv");
const REAL: &str = include_str!("../../data/user-agents/agents.tsv");
/// `browser<TAB>system<TAB>reason<TAB>user agent`: ours, where it is another one.
const DIFFERENT: &str = include_str!("agents_different.tsv");

/// Our label for a browser of `ua-parser-js`.
fn browser_of(name: &str) -> Browser {
    match name {
        "Chrome" | "chrome" | "Chromium" | "Chrome Headless" => Browser::Chrome,
        "Safari" | "Mobile Safari" => Browser::Safari,
        "Firefox" | "Firefox Focus" | "Firefox Reality" | "Fennec" | "Klar" => Browser::Firefox,
        "Edge" => Browser::Edge,
        "Samsung Internet" => Browser::Samsung,
        _ if name.starts_with("Opera") => Browser::Opera,
        _ => Browser::Other,
    }
}

/// Our label for an operating system of `ua-parser-js`.
fn system_of(name: &str) -> OperatingSystem {
    match name {
        "iOS" => OperatingSystem::Ios,
        "Android" | "android" | "Android-x86" => OperatingSystem::Android,
        "Windows" | "Windows IoT" => OperatingSystem::Windows,
        "Mac OS" => OperatingSystem::MacOs,
        "Chromium OS" => OperatingSystem::ChromeOs,
        "Linux" | "Ubuntu" | "Ubuntu Touch" | "Kubuntu" | "Debian" | "debian" | "SUSE" | "Gentoo" | "gentoo"
        | "Arch" | "Slackware" | "Fedora" | "Mandriva" | "Mint" | "Joli" | "CentOS" | "PCLinuxOS" | "Red Hat"
        | "redhat" | "Zenwalk" | "Linpus" | "Raspbian" | "Deepin" | "Manjaro" | "elementary OS" | "Sabayon"
        | "Linspire" => OperatingSystem::Linux,
        _ => OperatingSystem::Other,
    }
}

struct Compared {
    browsers: usize,
    systems: usize,
    all: usize,
    /// Lines as [`DIFFERENT`] has them, without the reason.
    different: Vec<String>,
}

fn compare<'a>(rows: impl Iterator<Item = [&'a str; 3]>) -> Compared {
    let mut compared = Compared { browsers: 0, systems: 0, all: 0, different: Vec::new() };
    for [browser, system, agent] in rows {
        let ours = software(agent.as_bytes());
        let same = (ours.0 == browser_of(browser), ours.1 == system_of(system));
        compared.browsers += usize::from(same.0);
        compared.systems += usize::from(same.1);
        compared.all += 1;
        if same != (true, true) {
            compared.different.push(format!("{}\t{}\t{agent}", ours.0.label(), ours.1.label()));
        }
    }
    compared
}

fn columns<const N: usize>(line: &str) -> [&str; N] {
    line.split('\t').collect::<Vec<_>>().try_into().expect("the columns of that file")
}

fn of_test_data() -> Compared {
    compare(TEST_DATA.lines().map(columns))
}

fn of_real_agents() -> Compared {
    compare(OF_REAL.lines().zip(REAL.lines()).map(|(names, line)| {
        let [browser, system] = columns(names);
        let [_, agent] = columns(line);
        [browser, system, agent]
    }))
}

#[test]
fn differences_from_another_parser_are_those_with_a_reason() {
    assert_eq!(OF_REAL.lines().count(), REAL.lines().count());
    let mut expected: Vec<String> = DIFFERENT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let [browser, system, reason, agent] = columns(line);
            assert!(!reason.is_empty(), "{line}");
            format!("{browser}\t{system}\t{agent}")
        })
        .collect();
    let mut found = [of_test_data().different, of_real_agents().different].concat();
    expected.sort();
    found.sort();
    let unexpected: Vec<_> = found.iter().filter(|line| !expected.contains(line)).collect();
    assert!(unexpected.is_empty(), "without a reason: {unexpected:#?}");
    let gone: Vec<_> = expected.iter().filter(|line| !found.contains(line)).collect();
    assert!(gone.is_empty(), "no longer different: {gone:#?}");
}

#[test]
fn the_shares_that_agree_are_those_that_are_documented() {
    let document = include_str!("../../../docs/design/agents.md");
    for (name, compared) in [("its own test data", of_test_data()), ("real agents", of_real_agents())] {
        let tenths = |count: usize| count * 1_000 / compared.all;
        let share = |count| format!("{}.{} %", tenths(count) / 10, tenths(count) % 10);
        let row = format!("| {name} | {} | {} | {} |", compared.all, share(compared.browsers), share(compared.systems));
        assert!(document.contains(&row), "{row}");
    }
}
