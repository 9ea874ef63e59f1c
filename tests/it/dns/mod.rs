//! Look-ups of names at a real name server on the loopback network.

mod answers;
mod files;
mod servers;

use std::net::IpAddr;

use signpost::dns::{LookUpError, Resolver, ResolverSettings};
use tempfile::TempDir;

use crate::support::SOON;

/// The configuration files of a test.
struct Ground {
    directory: TempDir,
}

impl Ground {
    /// With this `resolv.conf`, and an empty `hosts`.
    fn new(resolv_conf: &str) -> Self {
        let ground = Self { directory: tempfile::tempdir().unwrap() };
        ground.write("resolv.conf", resolv_conf);
        ground.write("hosts", "");
        ground
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.directory.path().join(file), text).unwrap();
    }

    fn settings(&self) -> ResolverSettings {
        let hosts = self.directory.path().join("hosts");
        ResolverSettings { hosts, ..ResolverSettings::new(self.directory.path().join("resolv.conf")) }
    }

    fn resolver(&self) -> Resolver {
        Resolver::new(self.settings())
    }
}

async fn look_up(resolver: &Resolver, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
    tokio::time::timeout(SOON, resolver.look_up(host)).await.expect("the look-up does not end")
}

/// The addresses as text, in order.
async fn addresses(resolver: &Resolver, host: &str) -> Vec<String> {
    let found = look_up(resolver, host).await.unwrap_or_else(|error| panic!("{host}: {error}"));
    found.iter().map(IpAddr::to_string).collect()
}
