//! Breakdowns: their numbers always add up to the hits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use proptest::prelude::*;
use signpost::domain::breakdown::{
    Breakdown, BreakdownAnswer, Dimension, MAX_SHEET_TEXTS, Sheet, SheetLabel, kept_text,
};
use signpost::domain::hit::DeviceHits;
use signpost::domain::tally::{BotFilter, Tally};
use signpost::store::records::sheets;

use Dimension as D;

/// A hit, and what is known of it: empty texts are not.
#[derive(Clone, Debug)]
struct Hit {
    day: u8,
    writer: u8,
    device: u8,
    is_bot: bool,
    is_private: bool,
    labels: Vec<(D, String)>,
}

/// Few labels, that some hits share; some are long, or of no form.
fn label(dimension: D) -> BoxedStrategy<String> {
    match dimension {
        D::Country => prop_oneof![Just(""), Just("DE"), Just("US"), Just("usa"), Just("Ü")].prop_map_into().boxed(),
        D::Browser => prop_oneof![Just(""), Just("chrome"), Just("other"), Just("lynx")].prop_map_into().boxed(),
        D::Os => prop_oneof![Just("ios"), Just("linux")].prop_map_into().boxed(),
        D::City => prop_oneof![Just(String::new()), "[a-zü]{1,2}".prop_map(|text| text.repeat(80))].boxed(),
        D::Referrer => prop_oneof![Just("(other)".to_owned()), "[a-c]{0,2}"].boxed(),
        D::UtmSource => "[a-z]{0,2}".boxed(),
        _ => "[ab]{0,1}".boxed(),
    }
}

fn hit() -> impl Strategy<Value = Hit> {
    let labels: Vec<_> = D::ALL
        .into_iter()
        .filter(|dimension| !matches!(dimension, D::Device | D::Bot))
        .map(|dimension| label(dimension).prop_map(move |label| (dimension, label)))
        .collect();
    (0_u8..3, 0_u8..3, 0_u8..3, any::<bool>(), prop::bool::weighted(0.1), labels).prop_map(
        |(day, writer, device, is_bot, is_private, labels)| Hit { day, writer, device, is_bot, is_private, labels },
    )
}

impl Hit {
    fn label(&self, dimension: D) -> Option<&str> {
        match dimension {
            D::Device => Some(["desktop", "mobile", "tablet"][usize::from(self.device)]),
            D::Bot => self.is_bot.then_some("crawler"),
            _ => {
                self.labels.iter().find(|(of, label)| *of == dimension && !label.is_empty()).map(|(_, label)| &**label)
            }
        }
    }

    fn is_private_in(&self, dimension: D) -> bool {
        self.is_private && dimension.is_of_visitor()
    }

    fn note(&self, sheet: &mut Sheet<Arc<str>>) {
        let tally = Tally::of_hit(self.is_bot);
        if self.is_private {
            sheet.add_private(tally);
        }
        for dimension in D::ALL.into_iter().filter(|dimension| !self.is_private_in(*dimension)) {
            let label = self.label(dimension).and_then(|label| SheetLabel::of_text(dimension, Arc::<str>::from(label)));
            if let Some(label) = label {
                sheet.add(dimension, label, tally);
            }
        }
    }
}

/// What is stored of a link: by day and writer, the hits by device, and the sheet.
#[derive(Default)]
struct StoredDay {
    devices: DeviceHits,
    sheet: Vec<u8>,
}

impl StoredDay {
    fn sheet(&self) -> Sheet<&str> {
        sheets::decode(&self.sheet).unwrap()
    }

    fn count(&mut self, batch: &[&Hit]) {
        let mut added = Sheet::default();
        for hit in batch {
            self.devices.0[usize::from(hit.device)] += Tally::of_hit(hit.is_bot);
            hit.note(&mut added);
        }
        let mut sheet = self.sheet();
        sheet.add_within_bounds(&added);
        let bytes = sheets::encode(&sheet);
        self.sheet = bytes;
    }
}

fn stored(hits: &[Hit], batch: usize) -> BTreeMap<(u8, u8), StoredDay> {
    let mut days = BTreeMap::<_, StoredDay>::new();
    for batch in hits.chunks(batch) {
        let mut by_day = BTreeMap::<_, Vec<&Hit>>::new();
        for hit in batch {
            by_day.entry((hit.day, hit.writer)).or_default().push(hit);
        }
        for (day, hits) in by_day {
            days.entry(day).or_default().count(&hits);
        }
    }
    days
}

/// Hits by device, and those of bots among them.
fn day(all: [u64; 3], bots: [u64; 3]) -> DeviceHits {
    DeviceHits(std::array::from_fn(|device| Tally::of_total(all[device], bots[device])))
}

fn assert_sums(answer: &BreakdownAnswer) {
    let labelled: u64 = answer.labels.iter().map(|(_, count)| count).sum();
    assert_eq!(answer.total, labelled + answer.other + answer.none + answer.private + answer.more, "{answer:?}");
    let is_in_order = |a: &(String, u64), b: &(String, u64)| a.1 > b.1 || (a.1 == b.1 && a.0 < b.0);
    assert!(answer.labels.is_sorted_by(is_in_order) && answer.labels.iter().all(|(_, count)| *count > 0), "{answer:?}");
}

/// The label as a breakdown shows it; `None` for what it calls other.
fn shown(dimension: D, label: &str) -> Option<String> {
    match SheetLabel::of_text(dimension, kept_text(label))? {
        SheetLabel::Other => None,
        label => label.text(dimension).map(str::to_owned),
    }
}

proptest! {
    #[test]
    fn each_breakdown_adds_up_to_the_hits(
        hits in prop::collection::vec(hit(), 0..60),
        batch in 1_usize..20,
        days in any::<[bool; 3]>(),
        limit in 1_usize..6,
    ) {
        let stored = stored(&hits, batch);
        let hits: Vec<_> = hits.iter().filter(|hit| days[usize::from(hit.day)]).collect();
        for dimension in D::ALL {
            let mut totals = Vec::new();
            for bots in BotFilter::ALL {
                let mut breakdown = Breakdown::of(dimension);
                for (_, row) in stored.iter().filter(|((day, _), _)| days[usize::from(*day)]) {
                    breakdown.add_day(row.devices);
                    breakdown.add_sheet(&row.sheet());
                }
                let answer = breakdown.answer(bots, limit);
                assert_sums(&answer);

                let hits = hits.iter().filter(|hit| bots.of(Tally::of_hit(hit.is_bot)) == 1);
                let (mut labels, mut other, mut none, mut private) = (HashMap::<String, u64>::new(), 0, 0, 0);
                for hit in hits {
                    match hit.label(dimension) {
                        _ if hit.is_private_in(dimension) => private += 1,
                        None => none += 1,
                        Some(label) => match shown(dimension, label) {
                            Some(label) => *labels.entry(label).or_default() += 1,
                            None => other += 1,
                        },
                    }
                }
                prop_assert_eq!((answer.other, answer.none, answer.private), (other, none, private));
                prop_assert_eq!(answer.labels.len(), labels.len().min(limit));
                for (label, count) in &answer.labels {
                    prop_assert_eq!(labels.get(label), Some(count));
                }
                let least = answer.labels.last().map_or(0, |(_, count)| *count);
                let left_out = labels.iter().filter(|(label, _)| answer.labels.iter().all(|(known, _)| known != *label));
                prop_assert!(left_out.clone().all(|(_, count)| *count <= least));
                prop_assert_eq!(answer.more, left_out.map(|(_, count)| count).sum::<u64>());
                totals.push(answer.total);
            }
            prop_assert_eq!(totals[0], totals[1] + totals[2]);
            prop_assert_eq!(totals[0], hits.len() as u64);
        }
    }

    #[test]
    fn labels_beyond_the_bound_are_other_and_nothing_is_lost(
        hits in prop::collection::vec((0_u16..600, any::<bool>()), 0..900),
        batch in 1_usize..300,
    ) {
        let hit = |(label, is_bot): &(u16, bool)| Hit {
            day: 0,
            writer: 0,
            device: 1,
            is_bot: *is_bot,
            is_private: false,
            labels: vec![(D::UtmTerm, format!("term {label}"))],
        };
        let hits: Vec<_> = hits.iter().map(hit).collect();
        for (_, row) in stored(&hits, batch) {
            let mut kept: Vec<&str> = Vec::new();
            let mut lost = Tally::default();
            for hit in &hits {
                let label = hit.label(D::UtmTerm).unwrap();
                if !kept.contains(&label) && kept.len() == MAX_SHEET_TEXTS {
                    lost += Tally::of_hit(hit.is_bot);
                } else if !kept.contains(&label) {
                    kept.push(label);
                }
            }
            for bots in BotFilter::ALL {
                let mut breakdown = Breakdown::of(D::UtmTerm);
                breakdown.add_day(row.devices);
                breakdown.add_sheet(&row.sheet());
                let answer = breakdown.answer(bots, 1_000);
                assert_sums(&answer);
                prop_assert_eq!((answer.other, answer.none), (bots.of(lost), 0));
            }
            prop_assert_eq!(row.sheet().of(D::UtmTerm).count(), kept.len() + usize::from(!lost.is_zero()));
        }
    }
}

#[test]
fn months_and_days_add_up_and_what_was_not_noted_is_none() {
    let mut breakdown = Breakdown::of(D::Language);
    // Before it was noted, a month by its list, and a day by its sheet.
    breakdown.add_day(day([5, 5, 0], [0; 3]));
    breakdown.add_day(day([20, 0, 10], [4, 0, 0]));
    breakdown.add_label("de", Tally { persons: 9, bots: 1 });
    breakdown.add_label("(other)", Tally { persons: 3, bots: 0 });
    breakdown.add_private(Tally { persons: 2, bots: 0 });
    breakdown.add_day(day([0, 4, 0], [0, 1, 0]));
    let mut sheet = Sheet::default();
    sheet.add(D::Language, SheetLabel::Text("de"), Tally { persons: 2, bots: 1 });
    sheet.add(D::Country, SheetLabel::Country(*b"DE"), Tally { persons: 3, bots: 1 });
    breakdown.add_sheet(&sheet);
    let answer = breakdown.answer(BotFilter::Include, 10);
    assert_sums(&answer);
    assert_eq!((answer.total, answer.other, answer.private, answer.none, answer.more), (44, 3, 2, 26, 0));
    assert_eq!(answer.labels, [("de".to_owned(), 13)]);
}

#[test]
fn devices_are_those_of_the_days() {
    for bots in BotFilter::ALL {
        let mut breakdown = Breakdown::of(D::Device);
        breakdown.add_day(day([5, 3, 0], [5, 1, 0]));
        breakdown.add_label("desktop", Tally { persons: 9, bots: 9 });
        let mut sheet = Sheet::<&str>::default();
        sheet.add(D::Device, SheetLabel::Code(0), Tally { persons: 9, bots: 9 });
        sheet.add_private(Tally { persons: 1, bots: 1 });
        breakdown.add_sheet(&sheet);
        let answer = breakdown.answer(bots, 10);
        assert_sums(&answer);
        let expected: &[(&str, u64)] = match bots {
            BotFilter::Include => &[("desktop", 5), ("mobile", 3)],
            BotFilter::Exclude => &[("mobile", 2)],
            BotFilter::Only => &[("desktop", 5), ("mobile", 1)],
        };
        let labels: Vec<_> = answer.labels.iter().map(|(label, count)| (&**label, *count)).collect();
        assert_eq!((labels, answer.none, answer.private), (expected.to_vec(), 0, 0));
    }
}

#[test]
fn labels_read_a_moment_after_the_hits_are_counted_as_well() {
    let mut breakdown = Breakdown::of(D::City);
    breakdown.add_day(day([1, 0, 0], [0; 3]));
    breakdown.add_label("Jena, Thuringia, DE", Tally { persons: 3, bots: 0 });
    let answer = breakdown.answer(BotFilter::Include, 10);
    assert_sums(&answer);
    assert_eq!((answer.total, answer.none), (3, 0));
}

#[test]
fn names_of_dimensions_are_those_of_the_contract() {
    let names = "referrer country region city device browser os language utm_source utm_medium utm_campaign utm_term \
                 utm_content destination bot";
    assert_eq!(D::ALL.map(D::name).join(" "), names);
    for (number, dimension) in (0..).zip(D::ALL) {
        assert_eq!((dimension as u8, D::from_number(number)), (number, Some(dimension)));
        assert_eq!(D::parse(dimension.name()), Some(dimension));
    }
    assert_eq!((D::from_number(15), D::parse("browsers")), (None, None));
}
