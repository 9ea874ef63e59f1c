//! Looks up the addresses of host names: in a hosts file, in what was answered lately, and by asking name servers.
//!
//! The system's `getaddrinfo` can't be cancelled: a name server that does not answer would hold a thread for each name. Here a
//! look-up is a future that ends when it is dropped, and has no more than two sockets.

mod exchange;
mod files;
mod hosts;
mod resolv_conf;
mod servers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use moka::Expiry;
use moka::future::Cache;
use thiserror::Error;

use self::exchange::Found;
use self::files::{FileStamp, Files};
use self::hosts::Hosts;
use self::resolv_conf::ResolvConf;
use self::servers::{ServerError, Servers};

/// Addresses of a name at the most, half of them for each family.
const MOST_ADDRESSES: usize = 16;
/// Names whose answers are kept, at the most.
const MOST_KEPT: u64 = 4096;
/// How long an answer is kept at the most, also where those who gave it would have it kept for longer.
const KEPT_FOR: Duration = Duration::from_mins(1);
/// The same for an answer that there is no address.
const NOTHING_KEPT_FOR: Duration = Duration::from_secs(10);
/// How often at the most it is looked whether the files have changed.
const LOOK_AT_FILES_EVERY: Duration = Duration::from_secs(5);

/// Why a name could not be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookUpError {
    #[error("the name servers could not look the name up")]
    Refused,
    #[error("no name server answered")]
    Silence,
}

impl From<ServerError> for LookUpError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Refused => Self::Refused,
            ServerError::Silence => Self::Silence,
        }
    }
}

/// Where it is written how names are looked up.
#[derive(Clone, Debug)]
pub struct Settings {
    pub resolv_conf: PathBuf,
    pub hosts: PathBuf,
    /// How often at the most it is looked whether the files have changed.
    pub look_at_files_every: Duration,
}

impl Settings {
    /// The system's `hosts`, and this `resolv.conf`.
    pub fn new(resolv_conf: impl Into<PathBuf>) -> Self {
        Self { resolv_conf: resolv_conf.into(), hosts: "/etc/hosts".into(), look_at_files_every: LOOK_AT_FILES_EVERY }
    }
}

/// Looks names up. Cheap to clone; clones share what they know.
#[derive(Clone)]
pub struct Resolver(Arc<SharedResolver>);

struct SharedResolver {
    files: Files,
    look_at_files_every: Duration,
    view: ArcSwap<View>,
    looked_at_files: Mutex<Instant>,
    is_looking_at_files: AtomicBool,
}

/// All that holds as long as the files are the same.
struct View {
    stamps: [FileStamp; 2],
    resolv_conf: ResolvConf,
    hosts: Hosts,
    servers: Servers,
    answers: Cache<String, Found>,
}

impl Resolver {
    /// Reads the files. One that is not there is as an empty one: then the server of this machine is asked.
    pub fn new(settings: Settings) -> Self {
        let files = Files { resolv_conf: settings.resolv_conf, hosts: settings.hosts };
        let view = ArcSwap::from_pointee(View::read(&files));
        Self(Arc::new(SharedResolver {
            files,
            look_at_files_every: settings.look_at_files_every,
            view,
            looked_at_files: Mutex::new(Instant::now()),
            is_looking_at_files: AtomicBool::new(false),
        }))
    }

    /// The addresses of a host name, IPv6 first; none where the name has none.
    ///
    /// A look-up takes no longer than its servers are to be waited for, and ends when this is dropped.
    ///
    /// # Errors
    /// Where nobody could tell.
    pub async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
        self.follow_files().await;
        let view = self.0.view.load_full();
        view.look_up(&host.to_ascii_lowercase()).await
    }

    /// Reads files that have changed, on the blocking pool and in one thread at a time.
    async fn follow_files(&self) {
        if !self.0.begins_to_look(Instant::now()) {
            return;
        }
        let looking = Looking(Arc::clone(&self.0));
        // It goes on where nobody waits for it any more. Where it panics, all stays as it was.
        drop(tokio::task::spawn_blocking(move || looking.look()).await);
    }
}

impl SharedResolver {
    /// Whether it is time, and nobody is at it.
    fn begins_to_look(&self, now: Instant) -> bool {
        // Nothing panics while this lock is held.
        let mut last = self.looked_at_files.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = now.saturating_duration_since(*last) >= self.look_at_files_every;
        if !is_time || self.is_looking_at_files.swap(true, Ordering::AcqRel) {
            return false;
        }
        *last = now;
        true
    }
}

/// The one look at the files that is under way.
struct Looking(Arc<SharedResolver>);

impl Looking {
    fn look(&self) {
        let Self(shared) = self;
        if shared.files.stamps() != shared.view.load().stamps {
            shared.view.store(Arc::new(View::read(&shared.files)));
            tracing::info!("reloaded resolv.conf and hosts after a change");
        }
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.is_looking_at_files.store(false, Ordering::Release);
    }
}

impl View {
    fn read(files: &Files) -> Self {
        // First: what changes while they are read is read the next time.
        let stamps = files.stamps();
        let (resolv_conf, hosts) = files.read();
        let servers = Servers {
            addresses: resolv_conf.servers.iter().filter_map(files::socket_address).collect(),
            timeout: resolv_conf.timeout,
            attempts: resolv_conf.attempts,
            turns: resolv_conf.rotates.then(AtomicUsize::default),
        };
        let answers = Cache::builder().max_capacity(MOST_KEPT).expire_after(Lifetimes).build();
        Self { stamps, resolv_conf, hosts, servers, answers }
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
        let name = host.strip_suffix('.').unwrap_or(host);
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.to_vec());
        }
        // Nobody is asked for these (RFC 6761).
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
        }
        // Once, however many ask; where the one who asks is dropped, another one goes on.
        let found = self.answers.try_get_with_by_ref(host, self.ask(host)).await.map_err(|error| *error)?;
        Ok(found.addresses)
    }

    /// Asks for one name of the host after the other, until one has an address.
    async fn ask(&self, host: &str) -> Result<Found, LookUpError> {
        let names = self.resolv_conf.names(host);
        let mut nothing = Found { addresses: Vec::new(), holds_for: Duration::MAX };
        let mut error = None;
        for (index, name) in names.in_order.iter().enumerate() {
            // Where nobody answers, no further search domain is tried.
            if error == Some(ServerError::Silence) && index != names.as_given {
                continue;
            }
            match self.servers.ask(name).await {
                Ok(found) if !found.addresses.is_empty() => return Ok(found),
                Ok(found) => nothing.holds_for = nothing.holds_for.min(found.holds_for),
                Err(failed) => error = Some(failed),
            }
        }
        error.map_or(Ok(nothing), |error| Err(error.into()))
    }
}

/// How long answers are kept.
struct Lifetimes;

impl Lifetimes {
    fn of(found: &Found) -> Duration {
        found.holds_for.min(if found.addresses.is_empty() { NOTHING_KEPT_FOR } else { KEPT_FOR })
    }
}

impl Expiry<String, Found> for Lifetimes {
    fn expire_after_create(&self, _: &String, found: &Found, _: Instant) -> Option<Duration> {
        Some(Self::of(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_kept_as_long_as_it_holds_and_no_longer_than_a_bound() {
        let kept = |addresses: &[IpAddr], seconds| {
            let found = Found { addresses: addresses.to_vec(), holds_for: Duration::from_secs(seconds) };
            Lifetimes.expire_after_create(&String::new(), &found, Instant::now()).unwrap().as_secs()
        };
        let address = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        assert_eq!([0, 30, 60, 86_400].map(|seconds| kept(&address, seconds)), [0, 30, 60, 60]);
        assert_eq!([0, 5, 86_400].map(|seconds| kept(&[], seconds)), [0, 5, 10]);
    }

    #[test]
    fn files_are_looked_at_by_one_at_a_time_and_seldom() {
        let resolver = Resolver::new(Settings::new("/absent"));
        let Resolver(shared) = &resolver;
        let start = *shared.looked_at_files.lock().unwrap();
        let begins = |seconds| shared.begins_to_look(start + Duration::from_secs(seconds));
        assert_eq!([0, 4, 5, 6, 60].map(begins), [false, false, true, false, false]);
        // Only now it is done.
        drop(Looking(Arc::clone(shared)));
        assert_eq!([9, 10].map(begins), [false, true]);
    }
}
