//! The built-in list of bots: it finds the bots of its own test data, and takes nobody else for one.

use std::collections::BTreeMap;

use serde_json::Value;
use signpost::domain::bots::{BotKind, BotList, BotReason};

/// The package from which the list is made; see the folder's README.
const PACKAGE: &str = include_str!("../../../bots/crawler-user-agents.json");
const BUILT_IN: &str = include_str!("../../../bots/built-in.tsv");
const NARROWED: &str = include_str!("../../../bots/narrowed.json");
/// `category<TAB>user agent` lines of the npm package `user-agents`: the distinct ones of 10,000.
const REAL: &str = include_str!("../../data/user-agents/agents.tsv");
/// What the tests of npm `isbot` take for people's.
const BROWSERS: &str = include_str!("../../data/isbot/browsers.txt");

/// Those of `isbot` that are bots or tools all the same, by a text that each has.
const NO_BROWSERS: [&str; 12] = [
    // A search engine, and an assistant that fetches pages.
    "Yahoo! Slurp",
    "Amzn-User",
    "TSM-turingos",
    // Services that measure and photograph pages.
    "GTmetrix",
    "YLT Chrome",
    "Miniature.io",
    // Editors whose assistants open pages.
    "Trae/",
    "Code/1.",
    // Made browsers of single sites, until 2013. The list has it among tools.
    "Fluid/",
    // Apple's library for HTTP in a messenger: it shows no pages.
    "Viber/12.8.0.1 CFNetwork",
    // Instances of the list, word for word. What is like them is a person's.
    "CPH2557 Build/AP3A.240617.008",
    "Build/CP1A.260305.018",
];

fn package() -> Vec<Value> {
    serde_json::from_str(PACKAGE).unwrap()
}

fn instances(entry: &Value) -> impl Iterator<Item = &str> {
    entry["instances"].as_array().unwrap().iter().map(|instance| instance.as_str().unwrap())
}

fn kind_of_entry(entry: &Value) -> BotKind {
    match entry["tags"][0].as_str().unwrap() {
        "social-preview" => BotKind::Preview,
        "search-engine" | "ai-crawler" | "seo" | "archiver" | "academic" | "feed-reader" | "advertising" => {
            BotKind::Crawler
        }
        "monitoring" => BotKind::Monitor,
        "scanner" => BotKind::Scanner,
        "http-library" | "browser-automation" => BotKind::Tool,
        other => panic!("an unknown tag: {other}"),
    }
}

#[test]
fn every_instance_of_the_list_is_a_bot() {
    let (list, package) = (BotList::built_in(), package());
    let agents: Vec<&str> = package.iter().flat_map(instances).collect();
    let missed: Vec<_> = agents.iter().filter(|agent| list.verdict(agent.as_bytes()).is_none()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert_eq!((package.len(), agents.len()), (1500, 2118));
}

#[test]
fn an_instance_has_the_kind_of_its_entry() {
    let (list, package) = (BotList::built_in(), package());
    let mut others = Vec::new();
    for entry in &package {
        for agent in instances(entry) {
            let verdict = list.verdict(agent.as_bytes()).unwrap();
            assert!(matches!(verdict.reason, BotReason::Pattern(_)), "{agent}: {verdict:?}");
            if verdict.kind != kind_of_entry(entry) {
                others.push(format!("{} is {}: {agent}", entry["pattern"], verdict.kind.label()));
            }
        }
    }
    // Some name two bots: VirusTotal runs on App Engine, and Siteimprove has a crawler.
    assert!(others.len() <= 3, "{others:#?}");
}

#[test]
fn the_list_has_each_pattern_of_its_package() {
    let narrowed: Vec<Value> = serde_json::from_str(NARROWED).unwrap();
    let instead: BTreeMap<_, _> =
        narrowed.iter().map(|entry| (entry["pattern"].as_str().unwrap(), entry["instead"].as_str().unwrap())).collect();
    let mut expected: Vec<String> = package()
        .iter()
        .map(|entry| {
            let pattern = entry["pattern"].as_str().unwrap();
            format!("{}\t{}", kind_of_entry(entry).label(), instead.get(pattern).unwrap_or(&pattern))
        })
        .collect();
    let mut lines: Vec<&str> = BUILT_IN.lines().skip(1).collect();
    expected.sort();
    lines.sort_unstable();
    assert_eq!(lines, expected, "run bots/update --list");
    assert_eq!(BotList::built_in().len(), lines.len());
    let [name, version, date] = BotList::built_in_version().split(' ').collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(name, "crawler-user-agents");
    let readme = include_str!("../../../bots/README.md");
    assert!(readme.contains(&format!("Version {} of {date}:", version.trim_end_matches(','))), "{version} {date}");
}

#[test]
fn no_agent_of_a_person_is_a_bot() {
    let list = BotList::built_in();
    let real = REAL.lines().map(|line| line.split_once('\t').unwrap().1);
    let browsers = BROWSERS.lines().filter(|agent| !NO_BROWSERS.iter().any(|name| agent.contains(name)));
    let mut wrong = Vec::new();
    let mut count = 0;
    for agent in real.chain(browsers) {
        count += 1;
        if let Some(verdict) = list.verdict(agent.as_bytes()) {
            wrong.push(format!("{verdict:?}: {agent}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(count, 952 + 555 - NO_BROWSERS.len());
}

#[test]
fn what_people_use_is_no_bot_where_the_package_says_so() {
    for agent in [
        "Mozilla/5.0 (Linux; Android 16; SM-S938B Build/BP2A.250605.031; wv) AppleWebKit/537.36 (KHTML, like Gecko) \
         Version/4.0 Chrome/150.0.7680.174 Mobile Safari/537.36 MetaIAB Facebook",
        "Mozilla/5.0 (Linux; Android 15; CPH2609 Build/AP3A.240617.008; wv) AppleWebKit/537.36 (KHTML, like Gecko) \
         Version/4.0 Chrome/150.0.7444.142 Mobile Safari/537.36",
        "Mozilla/5.0 (Linux; Android 10; CUBOT NOTE 7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/150.0.0.0 Mobile \
         Safari/537.36",
    ] {
        assert_eq!(BotList::built_in().verdict(agent.as_bytes()), None, "{agent}");
    }
}

fn verdict_of(list: &str, agent: &str) -> Option<(BotKind, String)> {
    let list = BotList::parse(list).unwrap();
    let verdict = list.verdict(agent.as_bytes())?;
    let BotReason::Pattern(pattern) = verdict.reason else { return Some((verdict.kind, String::new())) };
    Some((verdict.kind, pattern.to_owned()))
}

#[test]
fn an_own_list_is_tried_from_the_top_and_replaces_the_words_too() {
    let list = r#"[
        {"pattern": "^Inner", "kind": "monitor"},
        {"pattern": "inner/[0-9]+ probe", "kind": "scanner"},
        {"pattern": "(?i)inner", "kind": "tool"},
        {"pattern": "[0-9]{4}x", "kind": "crawler"},
        {"pattern": "a.b", "kind": "preview"}
    ]"#;
    for (agent, expected) in [
        ("Inner/1 probe", Some(BotKind::Monitor)),
        ("an inner/12 probe", Some(BotKind::Scanner)),
        ("an INNER thing 1234x", Some(BotKind::Tool)),
        ("thing 1234x", Some(BotKind::Crawler)),
        ("thing 123x", None),
        ("aXb", Some(BotKind::Preview)),
        ("Googlebot/2.1", None),
        ("", Some(BotKind::Tool)),
    ] {
        assert_eq!(verdict_of(list, agent).map(|(kind, _)| kind), expected, "{agent}");
    }
    assert_eq!(verdict_of("[]", "Googlebot/2.1"), None);
}

#[test]
fn a_list_that_can_not_be_used_is_refused_with_the_entry() {
    let many = |entry: &str, count: usize| format!("[{}]", vec![entry; count].join(","));
    for (text, expected) in [
        ("{", "not JSON"),
        ("{}", "not a JSON array"),
        (r#"[{"pattern": "abc", "kind": "tool"}, 7]"#, "entry 2: not an object"),
        (r#"[{"pattern": "abc"}]"#, "entry 1: `kind` is missing"),
        (r#"[{"pattern": 7, "kind": "tool"}]"#, "entry 1: `pattern` is missing, or not a text"),
        (r#"[{"pattern": "abc", "kind": "prefetch"}]"#, "entry 1: `kind` is one of"),
        (r#"[{"pattern": "abc", "kind": "tool", "url": ""}]"#, "entry 1: unknown field \"url\""),
        (r#"[{"pattern": "a(", "kind": "tool"}]"#, "entry 1: `pattern` is not a usable regular expression"),
        (r#"[{"pattern": "a(?=b)", "kind": "tool"}]"#, "look-around"),
        (r#"[{"pattern": ".*", "kind": "tool"}]"#, "matches the empty text"),
        (r#"[{"pattern": "", "kind": "tool"}]"#, "matches the empty text"),
        (r#"[{"pattern": "abc.{1000}{100}", "kind": "tool"}]"#, "entry 1: `pattern` is not a usable regular"),
        (&many(r#"{"pattern": "abc.d", "kind": "tool"}"#, 1001), "more than 1000"),
        (&many(r#"{"pattern": "[a-z]", "kind": "tool"}"#, 10_001), "more than 10000 patterns"),
        (&many(r#"{"pattern": "[a-z]x[a-z]", "kind": "tool"}"#, 101), "more than"),
        (&format!(r#"[{{"pattern": "{}", "kind": "tool"}}]"#, "a".repeat(513)), "more than 512 bytes"),
        (&" ".repeat(1024 * 1024 + 1), "longer than"),
    ] {
        let fault = BotList::parse(text).map(|list| list.len()).unwrap_err().to_string();
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn an_agent_is_read_up_to_512_bytes() {
    let list = BotList::built_in();
    let at = |place: usize| list.verdict(format!("{}Googlebot/", "x ".repeat(place / 2)).as_bytes()).is_some();
    assert!(at(502) && !at(504));
}

mod properties {
    use proptest::prelude::*;
    use regex::bytes::RegexBuilder;

    use super::*;

    /// Patterns of all ways in which they are compiled.
    fn pattern() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "abc",
            "bcd",
            "a\\.b",
            "^abc",
            "cd$",
            "(?i)abc",
            "ab[cd]",
            "ab|cd",
            "abc.*dab",
            "[a-d]b",
            "[ab]+c[^x]",
            "\\bcda",
            "(^| )ab",
            "b{3}",
            "dab\\b",
            "a",
            "d\\/",
            "[aA]bc(d|$)",
        ])
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(agent: Vec<u8>) {
            BotList::built_in().verdict(&agent);
        }

        #[test]
        fn any_text_is_a_list_or_a_fault(text in r#"[\[\]{}:,"a-z]{0,60}"#) {
            let _ = BotList::parse(&text);
        }

        #[test]
        fn any_pattern_is_usable_or_a_fault(pattern in r"[a-c(|)\[\]*+?{}\\^$.,0-9bdwsDWSB-]{0,30}", agent: Vec<u8>) {
            let entry = serde_json::json!([{"pattern": pattern, "kind": "tool"}]).to_string();
            if let Ok(list) = BotList::parse(&entry) {
                let regex = RegexBuilder::new(&pattern).unicode(false).build().unwrap();
                let expected = regex.is_match(&agent[..agent.len().min(512)]) || agent.trim_ascii().is_empty();
                prop_assert_eq!(list.verdict(&agent).is_some(), expected);
            }
        }

        #[test]
        fn the_first_pattern_that_matches_decides(
            patterns in prop::collection::vec(pattern(), 0..12),
            agent in "[a-dA-C ./]{1,20}",
        ) {
            prop_assume!(!agent.trim().is_empty());
            let entries: Vec<Value> =
                patterns.iter().map(|pattern| serde_json::json!({"pattern": pattern, "kind": "tool"})).collect();
            let list = BotList::parse(&Value::from(entries).to_string()).unwrap();
            let is_match = |pattern: &str| {
                RegexBuilder::new(pattern).unicode(false).build().unwrap().is_match(agent.as_bytes())
            };
            let expected = patterns.iter().find(|pattern| is_match(pattern)).copied();
            let told = list.verdict(agent.as_bytes()).map(|verdict| match verdict.reason {
                BotReason::Pattern(pattern) => pattern,
                other => panic!("{other:?}"),
            });
            prop_assert_eq!(told, expected);
        }
    }
}
