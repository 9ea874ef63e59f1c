//! Looks up the addresses of host names: in a hosts file, in a cache, and from name servers.
//!
//! The system's `getaddrinfo` can't be cancelled: a name server that does not answer would block a thread for each
//! name. Here a look-up is a future that ends when it is dropped, and has at most two sockets.

mod exchange;
mod files;
mod hosts;
mod resolv_conf;
mod servers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use moka::Expiry;
use moka::future::Cache;
use thiserror::Error;

use self::exchange::ResolvedAddresses;
use self::files::{FileStamp, ResolverFiles};
use self::hosts::Hosts;
use self::resolv_conf::ResolvConf;
use self::servers::{ServerError, Servers};
use crate::locks::lock;

/// The largest number of addresses of a name, half of them for each family.
const MOST_ADDRESSES: usize = 16;
/// The largest number of cached answers.
const MOST_CACHED: u64 = 4096;
/// The longest time for which an answer is cached, even if its TTL is longer.
const CACHED_FOR: Duration = Duration::from_mins(1);
/// The same for an answer without addresses.
const NEGATIVE_CACHED_FOR: Duration = Duration::from_secs(10);
/// The interval at which to check whether the files have changed.
const CHECK_FILES_EVERY: Duration = Duration::from_secs(5);

/// Why a name could not be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LookUpError {
    #[error("the name servers could not look the name up")]
    Refused,
    #[error("no name server answered")]
    NoAnswer,
}

impl From<ServerError> for LookUpError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Refused => Self::Refused,
            ServerError::NoAnswer => Self::NoAnswer,
        }
    }
}

/// The settings of a resolver.
#[derive(Clone, Debug)]
pub struct ResolverSettings {
    pub resolv_conf: PathBuf,
    pub hosts: PathBuf,
    /// The interval at which to check whether the files have changed.
    pub check_files_every: Duration,
}

impl ResolverSettings {
    /// The system's `hosts`, and this `resolv.conf`.
    pub fn new(resolv_conf: impl Into<PathBuf>) -> Self {
        Self { resolv_conf: resolv_conf.into(), hosts: "/etc/hosts".into(), check_files_every: CHECK_FILES_EVERY }
    }
}

/// Looks up names. Cheap to clone; clones share their cache.
#[derive(Clone)]
pub struct Resolver(Arc<SharedResolver>);

struct SharedResolver {
    files: ResolverFiles,
    check_files_every: Duration,
    view: ArcSwap<View>,
    files_checked_at: Mutex<Instant>,
    is_checking_files: AtomicBool,
}

/// The state that is valid while the files do not change.
struct View {
    stamps: [FileStamp; 2],
    resolv_conf: ResolvConf,
    hosts: Hosts,
    servers: Servers,
    answers: Cache<String, ResolvedAddresses>,
}

impl Resolver {
    /// Reads the files. A missing file counts as empty: then the name server on this machine is asked.
    pub fn new(settings: ResolverSettings) -> Self {
        let files = ResolverFiles { resolv_conf: settings.resolv_conf, hosts: settings.hosts };
        let view = ArcSwap::from_pointee(View::read(&files));
        Self(Arc::new(SharedResolver {
            files,
            check_files_every: settings.check_files_every,
            view,
            files_checked_at: Mutex::new(Instant::now()),
            is_checking_files: AtomicBool::new(false),
        }))
    }

    /// The addresses of a host name, IPv6 first; empty if the name has none.
    ///
    /// A look-up takes no longer than the timeouts of its servers, and ends when the future is dropped.
    ///
    /// # Errors
    /// If no name server returned a result.
    pub async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
        self.follow_files().await;
        let view = self.0.view.load_full();
        view.look_up(&host.to_ascii_lowercase()).await
    }

    /// Reads files that have changed, on the blocking pool and in one thread at a time.
    async fn follow_files(&self) {
        if !self.0.begin_check(Instant::now()) {
            return;
        }
        let check = FileCheck(Arc::clone(&self.0));
        // The check goes on if this future is dropped. If it panics, the state stays as it was.
        drop(tokio::task::spawn_blocking(move || check.run()).await);
    }
}

impl SharedResolver {
    /// Whether a check is due and none is in progress.
    fn begin_check(&self, now: Instant) -> bool {
        // No code panics while it holds this lock.
        let mut last = lock(&self.files_checked_at);
        let is_time = now.saturating_duration_since(*last) >= self.check_files_every;
        if !is_time || self.is_checking_files.swap(true, Ordering::AcqRel) {
            return false;
        }
        *last = now;
        true
    }
}

/// A check of the files; only one is in progress at a time.
struct FileCheck(Arc<SharedResolver>);

impl FileCheck {
    fn run(&self) {
        let Self(shared) = self;
        if shared.files.stamps() != shared.view.load().stamps {
            shared.view.store(Arc::new(View::read(&shared.files)));
            tracing::info!("reloaded resolv.conf and hosts after a change");
        }
    }
}

impl Drop for FileCheck {
    fn drop(&mut self) {
        self.0.is_checking_files.store(false, Ordering::Release);
    }
}

impl View {
    fn read(files: &ResolverFiles) -> Self {
        // The stamps come first: a change during the read is noticed by the next check.
        let stamps = files.stamps();
        let (resolv_conf, hosts) = files.read();
        let servers = Servers {
            addresses: resolv_conf.servers.iter().filter_map(files::socket_address).collect(),
            timeout: resolv_conf.timeout,
            attempts: resolv_conf.attempts,
            rotation: resolv_conf.rotates.then(AtomicUsize::default),
        };
        let answers = Cache::builder().max_capacity(MOST_CACHED).expire_after(AnswerExpiry).build();
        Self { stamps, resolv_conf, hosts, servers, answers }
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
        let name = host.strip_suffix('.').unwrap_or(host);
        if let Some(addresses) = self.hosts.get(name) {
            return Ok(addresses.to_vec());
        }
        // No server is asked for these (RFC 6761).
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
        }
        // One look-up for all concurrent callers; if the caller that runs it is dropped, another one continues it.
        let found = self.answers.try_get_with_by_ref(host, self.ask(host)).await.map_err(|error| *error)?;
        Ok(found.addresses)
    }

    /// Asks for one name of the host after the other, until one has an address.
    async fn ask(&self, host: &str) -> Result<ResolvedAddresses, LookUpError> {
        let names = self.resolv_conf.names(host);
        let mut nothing = ResolvedAddresses { addresses: Vec::new(), ttl: Duration::MAX };
        let mut error = None;
        for (index, name) in names.in_order.iter().enumerate() {
            // If no server answers, no further search domain is tried.
            if error == Some(ServerError::NoAnswer) && index != names.as_given {
                continue;
            }
            match self.servers.ask(name).await {
                Ok(found) if !found.addresses.is_empty() => return Ok(found),
                Ok(found) => nothing.ttl = nothing.ttl.min(found.ttl),
                Err(failed) => error = Some(failed),
            }
        }
        error.map_or(Ok(nothing), |error| Err(error.into()))
    }
}

/// The expiry of cached answers.
struct AnswerExpiry;

impl AnswerExpiry {
    fn of(found: &ResolvedAddresses) -> Duration {
        found.ttl.min(if found.addresses.is_empty() { NEGATIVE_CACHED_FOR } else { CACHED_FOR })
    }
}

impl Expiry<String, ResolvedAddresses> for AnswerExpiry {
    fn expire_after_create(&self, _: &String, found: &ResolvedAddresses, _: Instant) -> Option<Duration> {
        Some(Self::of(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_cached_for_its_ttl_up_to_a_bound() {
        let kept = |addresses: &[IpAddr], seconds| {
            let found = ResolvedAddresses { addresses: addresses.to_vec(), ttl: Duration::from_secs(seconds) };
            AnswerExpiry.expire_after_create(&String::new(), &found, Instant::now()).unwrap().as_secs()
        };
        let address = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        assert_eq!([0, 30, 60, 86_400].map(|seconds| kept(&address, seconds)), [0, 30, 60, 60]);
        assert_eq!([0, 5, 86_400].map(|seconds| kept(&[], seconds)), [0, 5, 10]);
    }

    #[test]
    fn files_are_looked_at_by_one_at_a_time_and_seldom() {
        let resolver = Resolver::new(ResolverSettings::new("/absent"));
        let Resolver(shared) = &resolver;
        let start = *shared.files_checked_at.lock().unwrap();
        let begins = |seconds| shared.begin_check(start + Duration::from_secs(seconds));
        assert_eq!([0, 4, 5, 6, 60].map(begins), [false, false, true, false, false]);
        // The check has ended.
        drop(FileCheck(Arc::clone(shared)));
        assert_eq!([9, 10].map(begins), [false, true]);
    }
}
