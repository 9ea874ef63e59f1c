//! What a hit costs after its answer: the journal is fed at a fixed rate; the real counter and the embedded store are
//! behind it.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loadtests::measure;
use signpost::actors::hit_counter::{CountAll, CounterWakes, CountingState, HitCounter};
use signpost::actors::supervisor::{Restart, RestartHook};
use signpost::actors::wake::DispatcherWake;
use signpost::counting::aggregator::HitAggregator;
use signpost::counting::enrich::Enricher;
use signpost::domain::bots::{BotRules, SharedBotRules};
use signpost::domain::hit::{HitCursor, NodeId};
use signpost::domain::link::ShortId;
use signpost::domain::referrer::OwnHost;
use signpost::journal::notifier::Notifier;
use signpost::journal::record::HitRecord;
use signpost::journal::{self, Journal, JournalSettings, JournalWriter};
use signpost::store::Store;
use signpost::store::embedded::EmbeddedStore;

const NODE: NodeId = NodeId(uuid::Uuid::from_bytes([7; 16]));
const OWNER: [u8; 16] = [9; 16];
/// As `store.cache_bytes` is by default.
const CACHE: u64 = 64 << 20;
const DAY_MS: u64 = 86_400_000;

/// Which hits come.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many links are hit: in turn when `distinct`, else by Zipf.
    pub links: u64,
    pub distinct: bool,
    /// `distinct` hits each link once on each of so many days up to today.
    pub days: u64,
    pub rate: u64,
    pub hits: u64,
    /// Half of the hits come from one of these sites, none where it is 0.
    pub referrers: u64,
}

/// What was seen, a second.
struct Second {
    appended: u64,
    unread: u64,
    on_disk: u64,
    resident: f64,
    store: u64,
}

/// Nanoseconds that the threads of this process have run, by what they are for.
#[derive(Clone, Copy, Default)]
struct Work {
    counter: u64,
    writer: u64,
    engine: u64,
    upkeep: u64,
}

impl Work {
    fn now() -> Self {
        let mut work = Self::default();
        for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let read = |name| std::fs::read_to_string(task.path().join(name));
            // A thread may end meanwhile.
            let (Ok(name), Ok(stat)) = (read("comm"), read("schedstat")) else { continue };
            let nanos = nanos_run(&stat);
            *match name.trim() {
                "store-writer" => &mut work.writer,
                "journal-upkeep" => &mut work.upkeep,
                name if name.starts_with("fjall") => &mut work.engine,
                name if name.starts_with("actix") => &mut work.counter,
                _ => continue,
            } += nanos;
        }
        work
    }
}

/// Nanoseconds that a thread has run, by its `schedstat`.
fn nanos_run(stat: &str) -> u64 {
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

pub fn run(home: &Path, name: &str, load: Load) -> String {
    let system = actix::System::new();
    system.block_on(measured(home, name, load))
}

async fn measured(home: &Path, name: &str, load: Load) -> String {
    let directory = home.join(name);
    let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&directory.join("store"), CACHE).unwrap());
    let settings = JournalSettings::default();
    let opened = journal::open(&directory.join("journal"), &settings, NODE, HitCursor::default()).unwrap();
    let Journal { writer, reader, upkeep } = opened;
    let upkeep = upkeep.start().unwrap();
    let rules = SharedBotRules::new(BotRules::built_in());
    let tally = HitAggregator::new(NODE, Enricher::new(OwnHost::of_base_url("https://sho.rt"), None, rules));
    let wakes = CounterWakes { notifier: Notifier::default(), dispatcher: DispatcherWake::default() };
    let counting = CountingState::new(store.clone(), reader, tally, HitCursor::default(), wakes);
    let arbiter = actix::Arbiter::new();
    let on_restart: RestartHook = Arc::new(no_restart);
    let counter = HitCounter::start(&arbiter.handle(), counting, &on_restart);

    let before = Work::now();
    let feeding = Arc::new(AtomicBool::new(true));
    let feeder = {
        let (writer, feeding) = (writer.clone(), Arc::clone(&feeding));
        std::thread::Builder::new().name("feeder".into()).spawn(move || {
            let late = feed(&writer, load);
            feeding.store(false, Ordering::Release);
            (late, nanos_run(&std::fs::read_to_string("/proc/thread-self/schedstat").unwrap()))
        })
    };
    let feeder = feeder.unwrap();
    let mut seconds = Vec::new();
    let began = Instant::now();
    let mut fed_after = None;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stats = writer.stats();
        seconds.push(Second {
            appended: stats.appended,
            unread: stats.unread_bytes,
            on_disk: stats.bytes_on_disk,
            resident: measure::resident_mib(std::process::id(), "VmRSS"),
            store: measure::disk_bytes(&directory.join("store")),
        });
        if !feeding.load(Ordering::Acquire) {
            fed_after.get_or_insert(began.elapsed());
            if store.hit_cursor(NODE).await.unwrap().counted.0 > 0 && stats.unread_bytes == 0 {
                break;
            }
        }
    }
    assert!(counter.handle().ask_once(CountAll).await.unwrap_or(false), "all is counted");
    let counted_after = began.elapsed();
    let (late, fed_with) = feeder.join().unwrap();
    // What the engine puts off is counted to what caused it.
    let mut last = Work::now().engine;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = Work::now().engine;
        if now - last < 5_000_000 {
            break;
        }
        last = now;
    }
    let after = Work::now();
    check(&*store, &writer, load).await;
    let times = (fed_after.unwrap(), counted_after, late);
    let on_disk = measure::disk_bytes(&directory.join("store"));
    let text = report(load, (before, after, fed_with), &seconds, times, on_disk);
    counter.stop().await;
    arbiter.stop();
    upkeep.stop();
    store.close().await;
    text
}

fn no_restart(restart: Restart) {
    panic!("the counter restarted: {restart:?}");
}

/// Every hit is counted once.
async fn check(store: &dyn Store, writer: &JournalWriter, load: Load) {
    assert_eq!(writer.stats().not_recorded, 0, "the journal had no room");
    let now = signpost::clock::Clock::system().now();
    let first = signpost::domain::calendar::Timestamp(now.0 - (load.days - 1) * DAY_MS);
    let owner = signpost::domain::key::KeyId(uuid::Uuid::from_bytes(OWNER));
    let mut served = 0;
    // No more days than two months have.
    for month in [first.month(), now.month()] {
        served += store.monthly_counts(owner, month).await.unwrap().hits_served;
        if first.month() == now.month() {
            break;
        }
    }
    assert_eq!(served, load.hits, "each hit is counted once");
}

/// Appends hits by schedule; answers by how much it was late at the worst.
fn feed(writer: &JournalWriter, load: Load) -> Duration {
    const TICK: Duration = Duration::from_millis(2);
    let (agents, sites) = (agents(), sites(load.referrers));
    let zipf = Zipf::new(if load.distinct { 1 } else { load.links });
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let began = Instant::now();
    let mut sent = 0;
    let mut late = Duration::ZERO;
    while sent < load.hits {
        let due = began.elapsed().as_micros() as u64 * load.rate / 1_000_000;
        late = late.max(Duration::from_micros(due.saturating_sub(sent) * 1_000_000 / load.rate));
        let now_ms = measure::unix_micros() / 1_000;
        while sent < due.min(load.hits) {
            let drawn = next();
            let link = if load.distinct { sent % load.links } else { zipf.draw(drawn) };
            let has_site = load.referrers > 0 && drawn & 1 == 0;
            let at_ms = now_ms - (load.days - 1).saturating_sub(sent / load.links) * DAY_MS;
            let hit = HitRecord {
                at_ms,
                short_id: short_id(link).0,
                owner: OWNER,
                address: IpAddr::V4(Ipv4Addr::from((drawn >> 16) as u32)),
                user_agent: agents[(drawn >> 8) as usize % agents.len()].as_bytes(),
                referer: if has_site { sites[(drawn >> 40) as usize % sites.len()].as_bytes() } else { b"" },
                language: [&b"en-us"[..], b"de", b"pt-br", b"fr"][(drawn >> 48) as usize % 4],
                ..HitRecord::EMPTY
            };
            // The end of the run tells of those that had no room.
            let _ = writer.append(&hit);
            sent += 1;
        }
        std::thread::sleep(TICK);
    }
    late
}

/// A short id for a number; neighbours are far apart, as drawn ones are.
pub fn short_id(number: u64) -> ShortId {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    const ALL: u64 = 62_u64.pow(7);
    // Has no common factor with 62, so that no two numbers meet.
    let mut left = u64::try_from(u128::from(number) * 1_180_591_620_717 % u128::from(ALL)).unwrap();
    let mut id = [0; 7];
    for digit in id.iter_mut().rev() {
        *digit = DIGITS[(left % 62) as usize];
        left /= 62;
    }
    ShortId(id)
}

fn agents() -> Vec<String> {
    let chrome = |system: &str, version| {
        format!("Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{version}.0.0.0 Safari/537.36")
    };
    let firefox =
        |system: &str, version| format!("Mozilla/5.0 ({system}; rv:{version}.0) Gecko/20100101 Firefox/{version}.0");
    let safari = |version| {
        format!(
            "Mozilla/5.0 (iPhone; CPU iPhone OS {version}_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
             Version/{version}.1 Mobile/15E148 Safari/604.1"
        )
    };
    let windows = "Windows NT 10.0; Win64; x64";
    (136..142)
        .flat_map(|version| [chrome(windows, version), chrome("Linux; Android 10; K", version)])
        .chain((140..144).map(|version| firefox(windows, version)))
        .chain((15..19).map(safari))
        .collect()
}

fn sites(count: u64) -> Vec<String> {
    (0..count).map(|site| format!("https://www.site{site}.example/2026/11/an-article?from=newsletter")).collect()
}

/// Draws numbers below `count`, the `n`th of them as often as `1 / n`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(count: u64) -> Self {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        Self(sums.iter().map(|part| part / sum).collect())
    }

    fn draw(&self, random: u64) -> u64 {
        let at = (random >> 11) as f64 / (1_u64 << 53) as f64;
        self.0.partition_point(|end| *end <= at) as u64
    }
}

fn report(
    load: Load,
    (before, after, fed_with): (Work, Work, u64),
    seconds: &[Second],
    times: (Duration, Duration, Duration),
    store: u64,
) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let (fed, done, late) = times;
    let mut text = String::new();
    let each = |of: fn(&Work) -> u64| (of(&after) - of(&before)) as f64 / 1e3 / load.hits as f64;
    let kind = match load.days {
        1 if load.distinct => "each hit once".to_owned(),
        days if load.distinct => format!("each hit once a day on {days} days"),
        _ => "by Zipf".to_owned(),
    };
    let Load { links, hits, rate, referrers, .. } = load;
    writeln!(
        text,
        "{hits} hits on {links} links ({kind}), {rate} a second, {referrers} referring sites; fed in {:.1} s, at most \
         {:.0} ms late, all counted {:.1} s after that.\n",
        fed.as_secs_f64(),
        late.as_secs_f64() * 1e3,
        done.saturating_sub(fed).as_secs_f64(),
    )
    .unwrap();
    let (counter, writer, engine, upkeep) =
        (each(|w| w.counter), each(|w| w.writer), each(|w| w.engine), each(|w| w.upkeep));
    writeln!(
        text,
        "| µs of CPU a hit | |\n|---|---|\n| reading, telling, adding up | {counter:.3} |\n| writing the rows (store's \
         thread) | {writer:.3} |\n| flushing and merging tables (engine's threads) | {engine:.3} |\n| making and \
         syncing the journal's segments (its own thread) | {upkeep:.3} |\n| together | {:.3} |\n| appending, with what draws the \
         hits | {:.3} |\n",
        counter + writer + engine + upkeep,
        fed_with as f64 / 1e3 / load.hits as f64,
    )
    .unwrap();
    let highest = |of: fn(&Second) -> f64| seconds.iter().map(of).fold(0.0, f64::max);
    writeln!(
        text,
        "| at most | MiB |\n|---|---|\n| journal, not read | {:.1} |\n| journal on disk | {:.0} |\n| resident, mapped segments \
         included | {:.0} |\n| store on disk | {:.0} |\n\nIn the end the store has {:.1} bytes a hit on disk.\n",
        highest(|s| s.unread as f64) / MIB,
        highest(|s| s.on_disk as f64) / MIB,
        highest(|s| s.resident),
        highest(|s| s.store as f64) / MIB,
        store as f64 / load.hits as f64,
    )
    .unwrap();
    writeln!(
        text,
        "| second | hits so far | journal, not read, MiB | resident, MiB | store, MiB |\n|---|---|---|---|---|"
    )
    .unwrap();
    let step = (seconds.len() / 20).max(1);
    for (at, second) in seconds.iter().enumerate().filter(|(at, _)| (at + 1) % step == 0) {
        let Second { appended, unread, resident, store, .. } = second;
        let (unread, store) = (*unread as f64 / MIB, *store as f64 / MIB);
        writeln!(text, "| {} | {appended} | {unread:.1} | {resident:.0} | {store:.0} |", at + 1).unwrap();
    }
    text
}
