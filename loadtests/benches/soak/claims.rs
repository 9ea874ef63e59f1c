//! What the soak is to show, and whether the figures say so.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    beside::{self, Bulk, Counts, Edits, Replays, Seen, Stream},
    faults::{Fault, Past},
    hooks::Deliveries,
    ledger::{Asked, Creation, Ledger},
    mix::made_number,
    scene::{PLAIN, QUOTAS, Quota, REPLAYED, ROOT, Scene},
    told::Told,
};

/// As `limits.redirect_per_minute` and `tiers.pro.shorten_per_minute` are by default.
const CLIENT_LIMIT: usize = 100;
const KEY_LIMIT: usize = 60;
const MINUTE: Duration = Duration::from_mins(1);
/// The server's clock tells milliseconds.
const TICK: Duration = Duration::from_millis(2);
/// As `webhooks.buffer` is by default: what may be accepted by a receiver and not be written down when a process is killed.
const UNSETTLED: u64 = 1_024;
/// Violations that are told one by one.
const TOLD: usize = 3;

/// A claim, and what was found.
pub struct Claim {
    pub what: &'static str,
    /// `None` where the run was too short to tell.
    pub held: Option<bool>,
    pub figures: String,
}

/// Everything that claims are about.
pub struct Evidence<'a> {
    pub scene: &'a Scene,
    pub quota: Quota,
    pub ledger: &'a Ledger,
    pub deliveries: &'a Deliveries,
    pub told: &'a Told,
    /// When the process was started anew or the clock was moved, since the traffic began.
    pub breaks: &'a [Duration],
    pub seen: &'a Seen,
    pub faults: &'a [Past],
    /// How often the process has ended.
    pub ends: u64,
}

/// The first few of what speaks against a claim.
fn against(all: &[String]) -> String {
    let more = all.len().saturating_sub(TOLD);
    let first = all.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
    match (all.len(), more) {
        (0, _) => String::new(),
        (_, 0) => format!(". **Against it:** {first}"),
        _ => format!(". **Against it:** {first}; and {more} more"),
    }
}

impl Evidence<'_> {
    fn claim(what: &'static str, figures: String, faults: &[String]) -> Claim {
        Claim { what, held: Some(faults.is_empty()), figures: figures + &against(faults) }
    }

    pub fn claims(&self) -> Vec<Claim> {
        vec![
            self.hits(),
            self.counters(),
            self.links(),
            self.refused_creations(),
            self.link_quotas(),
            self.key_limit(),
            self.client_limit(),
            self.deliveries(),
            self.delivery_quotas(),
            self.repeats(),
            self.edits(),
            self.bulk(),
            self.replays(),
            self.streams(),
            self.answers(),
        ]
    }

    /// Counted hits of the link with this index, as the export has them.
    fn counted(&self, link: usize) -> u64 {
        self.told.exported.hits.get(&self.scene.links[link].id).copied().unwrap_or_default()
    }

    fn hits(&self) -> Claim {
        let (mut faults, mut counted) = (Vec::new(), 0);
        for (index, tally) in self.ledger.links.iter().enumerate() {
            let hits = self.counted(index);
            counted += hits;
            if !tally.allows(hits) {
                faults.push(format!("{}: {hits} counted, {tally:?}", self.scene.links[index].id));
            }
        }
        let total = self.ledger.total();
        let exact = self.ledger.links.iter().filter(|tally| tally.unanswered == 0).count();
        let figures = format!(
            "{} links: {} answered 302, {} cut before the answer, {counted} counted; {exact} links without a cut, each \
             counted exactly; not recorded for want of room: {}",
            self.ledger.links.len(),
            total.answered,
            total.unanswered,
            self.told.not_recorded
        );
        Self::claim("No hit is lost or doubled: for each link, answered ≤ counted ≤ answered + cut", figures, &faults)
    }

    fn counters(&self) -> Claim {
        let mut faults = Vec::new();
        let mut by_owner: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, link) in self.scene.links.iter().enumerate() {
            let (hits, analytics) = (self.counted(index), self.told.analytics[index]);
            *by_owner.entry(&self.scene.keys[link.owner].id).or_default() += hits;
            if analytics != [hits; 3] {
                faults.push(format!("{}: {hits} exported, total, days and devices {analytics:?}", link.id));
            }
        }
        for (owner, hits) in by_owner {
            let served = self.told.exported.used("hits_served", owner);
            if served != hits {
                faults.push(format!("key {owner}: {served} served, {hits} counted"));
            }
        }
        let figures = format!("{} links by API and by export, {} keys", self.scene.links.len(), self.scene.keys.len());
        let what = "What is counted in one place is counted in all: total = days = devices = export; keys' served hits";
        Self::claim(what, figures, &faults)
    }

    /// Numbers of the creations whose links are there.
    fn made(&self) -> HashMap<u64, Vec<&str>> {
        let mut made: HashMap<u64, Vec<&str>> = HashMap::new();
        for link in &self.told.exported.links {
            if let Some(number) = made_number(&link.target) {
                made.entry(number).or_default().push(&link.id);
            }
        }
        made
    }

    fn links(&self) -> Claim {
        let (made, mut faults) = (self.made(), Vec::new());
        let (mut answered, mut cut, mut cut_and_made) = (0, 0, 0);
        for (number, (_, creation)) in self.ledger.creations.iter().enumerate() {
            let found: &[&str] = made.get(&(number as u64)).map_or(&[], |ids| ids);
            match creation {
                Creation::Made(id) => {
                    answered += 1;
                    if found != [std::str::from_utf8(id).unwrap_or_default()] {
                        faults.push(format!(
                            "creation {number} was answered {:?}, there is {found:?}",
                            id.escape_ascii().to_string()
                        ));
                    }
                }
                Creation::Unanswered => {
                    cut += 1;
                    cut_and_made += u64::from(found.len() == 1);
                    if found.len() > 1 {
                        faults.push(format!("creation {number} made {found:?}"));
                    }
                }
                Creation::Refused(_) => {}
            }
        }
        let figures = format!(
            "{answered} answered, each looked for under its id; {cut} cut before the answer or answered 503 when their time was up, of which {cut_and_made} are there"
        );
        Self::claim("No link is lost or doubled", figures, &faults)
    }

    fn refused_creations(&self) -> Claim {
        let (made, mut faults) = (self.made(), Vec::new());
        let mut refused: BTreeMap<u16, u64> = BTreeMap::new();
        for (number, (_, creation)) in self.ledger.creations.iter().enumerate() {
            if let Creation::Refused(status) = creation {
                *refused.entry(*status).or_default() += 1;
                if made.contains_key(&(number as u64)) {
                    faults.push(format!("creation {number} was answered {status}, and its link is there"));
                }
            }
        }
        let count = |status| refused.get(&status).copied().unwrap_or_default();
        let figures = format!("{} answered 403, {} 429, {} 503", count(403), count(429), count(503));
        Self::claim("Of a creation that was refused nothing is there", figures, &faults)
    }

    fn link_quotas(&self) -> Claim {
        let (mut faults, mut used_up) = (Vec::new(), 0);
        for (index, key) in self.scene.keys.iter().enumerate() {
            let of_key = self.ledger.creations.iter().filter(|(owner, _)| usize::from(*owner) == index);
            let refused = of_key.filter(|(_, creation)| *creation == Creation::Refused(403)).count();
            let there = self.told.exported.links.iter().filter(|link| link.owner == key.id).count();
            // Imported links are in no month.
            let there = there - if index == ROOT { PLAIN } else { 0 };
            let deleted = if index == ROOT { self.seen.bulk.deleted.len() } else { 0 };
            let there = (there + deleted) as u64;
            let used = self.told.exported.used("links_created", &key.id);
            let (limit, told) = (self.quota.links, self.told.usage[index].0);
            if used != there || told != used || (index < QUOTAS && used > limit) {
                faults.push(format!("key {index}: {used} used, {told} told, {there} there, limit {limit}"));
            }
            if refused > 0 && (index >= QUOTAS || used != limit) {
                faults.push(format!("key {index} was refused {refused} times, with {used} of {limit} used"));
            }
            used_up += usize::from(index < QUOTAS && used == limit);
        }
        let figures = format!(
            "{} links a month; {used_up} of {QUOTAS} keys have used them up; counted is compared with what is there",
            self.quota.links
        );
        faults.extend(nothing(used_up as u64, "keys that have used up their links"));
        Self::claim("Quotas of links are exact", figures, &faults)
    }

    fn key_limit(&self) -> Claim {
        let asked = &self.ledger.limited_key;
        let mut faults = over(asked, self.breaks, KEY_LIMIT);
        faults.extend(refused_too_soon(asked, self.breaks, KEY_LIMIT));
        let figures = format!("{}, limit {KEY_LIMIT}", let_in(asked));
        Self::claim("A key's limit per minute is exact, between restarts and moves of the clock", figures, &faults)
    }

    fn client_limit(&self) -> Claim {
        let asked = &self.ledger.limited_client;
        let figures = format!("{}, limit {CLIENT_LIMIT}", let_in(asked));
        let what = "A client is never let in more often than twice its limit in a minute, as it is promised";
        let mut faults = over(asked, self.breaks, 2 * CLIENT_LIMIT);
        for (is_let_in, which) in
            [(true, "requests of it that were let in"), (false, "requests of it that were refused")]
        {
            let count = asked.iter().filter(|one| one.let_in == Some(is_let_in)).count();
            faults.extend(nothing(count as u64, which));
        }
        Self::claim(what, figures, &faults)
    }

    fn deliveries(&self) -> Claim {
        let (mut faults, mut due, mut urls) = (Vec::new(), 0, 0);
        let hooked = self.scene.links.iter().enumerate().filter(|(_, link)| link.hooks > 0 && link.owner == ROOT);
        for (index, link) in hooked.filter(|(index, _)| *index != REPLAYED) {
            let hits = self.counted(index);
            for url in 0..link.hooks {
                let came = self.deliveries.by_url.get(&(index, url)).copied().unwrap_or_default();
                (due, urls) = (due + hits, urls + 1);
                let status = self.told.webhooks[&index][url as usize];
                if came != hits || status != [0, hits, 0] {
                    faults.push(format!(
                        "{} {url}: {hits} hits, {came} different deliveries came, pending, delivered, failed {status:?}",
                        link.id
                    ));
                }
            }
        }
        if self.deliveries.misplaced > 0 {
            faults.push(format!("{} came to another URL than theirs", self.deliveries.misplaced));
        }
        let figures = format!("{due} due to {urls} URLs, each came, none besides; nothing is pending, none failed");
        let figures = if faults.is_empty() { figures } else { format!("{due} due to {urls} URLs") };
        Self::claim("No delivery is lost or made up: different webhook-ids = counted hits × webhooks", figures, &faults)
    }

    fn delivery_quotas(&self) -> Claim {
        let (mut faults, mut used_up) = (Vec::new(), 0);
        for (index, link) in
            self.scene.links.iter().enumerate().filter(|(_, link)| link.owner < QUOTAS && link.hooks > 0)
        {
            let hits = self.counted(index);
            let (limit, told) = (self.quota.deliveries, self.told.usage[link.owner].1);
            let came = self.deliveries.by_url.get(&(index, 0)).copied().unwrap_or_default();
            let (due, status) = (hits.min(limit), self.told.webhooks[&index][0]);
            if came != due || told != due || status != [0, due, hits - due] {
                faults.push(format!(
                    "key {}: {hits} hits, limit {limit}, {told} used, {came} came, pending, delivered, failed {status:?}",
                    link.owner
                ));
            }
            used_up += u64::from(hits > limit);
        }
        let figures = format!(
            "{} deliveries a month; {used_up} of {QUOTAS} keys have used them up, and exactly so many came",
            self.quota.deliveries
        );
        faults.extend(nothing(used_up, "keys that have used up their deliveries"));
        Self::claim("Quotas of deliveries are exact", figures, &faults)
    }

    fn repeats(&self) -> Claim {
        let Deliveries { requests, distinct, repeats_within, repeats_after, .. } = self.deliveries;
        let mut faults = Vec::new();
        if *repeats_within > 0 {
            faults.push(format!("{repeats_within} came again though accepted, and the process had not ended"));
        }
        if let Some(most) = repeats_after.iter().max().filter(|most| **most > UNSETTLED) {
            faults.push(format!("{most} came again after one end of the process"));
        }
        let figures = format!(
            "{requests} accepted, {distinct} different; come again after an end of the process: {repeats_after:?}, at most \
             {UNSETTLED} allowed"
        );
        Self::claim(
            "A delivery that was accepted comes again only if the process ended before it was written down",
            figures,
            &faults,
        )
    }

    fn edits(&self) -> Claim {
        let Edits { links, counts: Counts { answered, open, followed, odd } } = &self.seen.edits;
        let mut faults = odd.0.clone();
        for (index, link) in links.iter().enumerate() {
            let there = self.told.exported.target(&link.id);
            let is_allowed =
                |target: &str| link.latest.clone().any(|number| beside::edited_target(index, number) == target);
            if !there.is_some_and(is_allowed) {
                faults
                    .push(format!("{} leads to {there:?} in the end, the latest edits are {:?}", link.id, link.latest));
            }
        }
        let figures = format!(
            "{answered} edits of {} links answered, {open} cut or answered 503; {followed} redirects of these links",
            links.len()
        );
        faults.extend(nothing(*answered, "edits"));
        faults.extend(nothing(*followed, "redirects of edited links"));
        let what = "No redirect leads to an older target than one that was answered or seen before, through all lives";
        Self::claim(what, figures, &faults)
    }

    fn bulk(&self) -> Claim {
        let Bulk { made, deleted, calls, again, replayed, odd } = &self.seen.bulk;
        let mut there: HashMap<&str, Vec<&str>> = HashMap::new();
        for link in &self.told.exported.links {
            there.entry(&link.target).or_default().push(&link.id);
        }
        let mut faults = odd.0.clone();
        for (target, id) in made {
            let found: &[&str] = there.get(&**target).map_or(&[], |ids| ids);
            let expected: &[&str] = if deleted.contains(id) { &[] } else { &[id] };
            if found != expected {
                faults.push(format!("{target} was answered {id}, there is {found:?}, expected {expected:?}"));
            }
        }
        let figures = format!(
            "{calls} calls, {again} of them sent again until they were answered, {replayed} asked for again after that; {} links, \
             {} of them deleted",
            made.len(),
            deleted.len()
        );
        faults.extend(nothing(deleted.len() as u64, "deletions"));
        faults.extend(nothing(*replayed, "repeated calls"));
        let what = "Of a bulk creation each link is there once, however often it was sent; a deleted one is not, and is not found";
        Self::claim(what, figures, &faults)
    }

    fn replays(&self) -> Claim {
        let Replays { answered, open, whole, odd } = &self.seen.replays;
        let Deliveries { replayed, replays: [least, most], .. } = self.deliveries;
        let mut faults = odd.0.clone();
        // An end of the process may have it repeat what was under way.
        let allowed = 1 + whole..=1 + answered + open + self.ends;
        let [pending, settled, failed] = self.told.webhooks[&REPLAYED][0];
        let all_are_settled = pending == 0 && settled + failed == beside::HITS;
        if !(allowed.contains(least) && allowed.contains(most)) || *replayed != beside::HITS || !all_are_settled {
            faults.push(format!("{replayed} hits; pending, delivered, failed {pending}, {settled}, {failed}"));
        }
        faults.extend(nothing(*whole, "replays"));
        let figures = format!(
            "{answered} replays of {} deliveries answered, {open} cut or answered 503; after {whole} all had been accepted; each \
             came {least} to {most} times, {} to {} allowed",
            beside::HITS,
            allowed.start(),
            allowed.end()
        );
        Self::claim("Each delivery that is replayed comes once more", figures, &faults)
    }

    fn streams(&self) -> Claim {
        let counted = [self.counted(PLAIN), self.told.exported.used("hits_served", &self.scene.keys[ROOT].id)];
        // What a full disk has no room for can't be noted.
        let gaps = self.faults.iter().filter(|past| past.fault == Fault::DiskFull).count() as u64;
        let (mut faults, mut figures) = (Vec::new(), Vec::new());
        for (stream, counted) in self.seen.streams.iter().zip(counted) {
            let Stream { path, skipped, unknown, connections, odd, .. } = stream;
            let told = stream.told();
            faults.extend(odd.0.iter().cloned());
            let is_short = *unknown == 0 && told + skipped < counted;
            if told + skipped > counted || is_short || *unknown > gaps {
                faults
                    .push(format!("{path}: {told} told, {skipped} skipped, {unknown} unknown gaps, {counted} counted"));
            }
            faults.extend(nothing(told, path));
            faults.extend(nothing(connections - 1, "a listener that came back").filter(|_| self.ends > 1));
            figures.push(format!(
                "{path}: {told} told, {skipped} skipped, {unknown} gaps of unknown length, over {connections} connections; {counted} \
                 counted"
            ));
        }
        let what = "A live stream tells each hit once, or that it left it out, through all lives";
        Self::claim(what, figures.join("; "), &faults)
    }

    fn answers(&self) -> Claim {
        let faults = &self.ledger.odd_samples;
        Self::claim("Every answer is one that the request can have", format!("{} others", self.ledger.odd), faults)
    }
}

/// What speaks against a claim about things of which there were none.
fn nothing(number: u64, what: &str) -> Option<String> {
    (number == 0).then(|| format!("nothing to tell of: no {what}"))
}

fn let_in(asked: &[Asked]) -> String {
    let count = |what| asked.iter().filter(|one| one.let_in == what).count();
    format!("{} let in, {} refused, {} cut", count(Some(true)), count(Some(false)), count(None))
}

/// Requests of each stretch in which the process went on and the clock was not moved, in the order in which they were sent.
fn stretches(asked: &[Asked], breaks: &[Duration]) -> Vec<(Duration, Vec<Asked>)> {
    let mut ends: Vec<Duration> = breaks.to_vec();
    ends.push(Duration::MAX);
    let mut begin = Duration::ZERO;
    let mut all = Vec::new();
    for end in ends {
        let inside = asked.iter().filter(|one| one.sent >= begin && one.ended <= end).copied();
        let mut inside: Vec<_> = inside.collect();
        inside.sort_by_key(|one| one.sent);
        all.push((begin, inside));
        begin = end;
    }
    all
}

/// Where more than `limit` were let in within a minute, whenever the server looked at them.
fn over(asked: &[Asked], breaks: &[Duration], limit: usize) -> Vec<String> {
    let mut faults = Vec::new();
    for (_, mut inside) in stretches(asked, breaks) {
        inside.retain(|one| one.let_in == Some(true));
        for window in inside.windows(limit + 1) {
            let end = window.iter().map(|one| one.ended).max().unwrap_or_default();
            if end + TICK < window[0].sent + MINUTE {
                faults.push(format!("{} were let in from {:?} to {end:?}", limit + 1, window[0].sent));
            }
        }
    }
    faults
}

/// Who was refused though fewer than `limit` can have been let in within the minute before. What the server has let in before a
/// stretch counts for a minute from the first request in it: with that one it notices that its clock was set back.
fn refused_too_soon(asked: &[Asked], breaks: &[Duration], limit: usize) -> Vec<String> {
    let mut faults = Vec::new();
    for (begin, inside) in stretches(asked, breaks) {
        let noticed = inside.first().map_or(begin, |first| first.ended);
        let counts: Vec<_> = inside.iter().filter(|one| one.let_in != Some(false)).collect();
        for refused in inside.iter().filter(|one| one.let_in == Some(false) && one.sent > noticed + MINUTE) {
            let from = refused.sent.saturating_sub(MINUTE + TICK);
            let within = counts.iter().filter(|one| one.ended > from && one.sent < refused.ended).count();
            if within < limit {
                faults.push(format!("refused at {:?} with {within} in the minute before", refused.sent));
            }
        }
    }
    faults
}
