//! The files that configure name look-ups, and whether they have changed.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::hosts::Hosts;
use super::resolv_conf::{NameServer, ResolvConf};

/// How much of a `resolv.conf` is read, in bytes.
const MOST_OF_RESOLV_CONF: u64 = 64 * 1024;
/// How much of a `hosts` file is read, in bytes: blocklists have up to some 6 MiB.
const MOST_OF_HOSTS: u64 = 8 * 1024 * 1024;

/// The paths of the files.
#[derive(Clone, Debug)]
pub struct ResolverFiles {
    pub resolv_conf: PathBuf,
    pub hosts: PathBuf,
}

/// Changes when a file is written or replaced. `None` if there is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(Option<[i64; 5]>);

impl FileStamp {
    fn of(path: &Path) -> Self {
        let changes = |file: Metadata| {
            let [inode, length] = [file.ino(), file.size()].map(u64::cast_signed);
            [inode, length, file.mtime(), file.mtime_nsec(), file.ctime_nsec()]
        };
        Self(path.metadata().ok().map(changes))
    }
}

impl ResolverFiles {
    pub fn stamps(&self) -> [FileStamp; 2] {
        [FileStamp::of(&self.resolv_conf), FileStamp::of(&self.hosts)]
    }

    /// Reads both. A missing or unreadable file counts as empty.
    pub fn read(&self) -> (ResolvConf, Hosts) {
        let resolv_conf = ResolvConf::parse(&read_text(&self.resolv_conf, MOST_OF_RESOLV_CONF));
        (resolv_conf, Hosts::parse(&read_text(&self.hosts, MOST_OF_HOSTS)))
    }
}

fn read_text(path: &Path, most: u64) -> String {
    match read_bytes(path, most) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => {
            // Logged when the file has changed, not at each look-up.
            tracing::warn!(path = %path.display(), %error, "can't read this file: webhook hosts are looked up without it");
            String::new()
        }
    }
}

fn read_bytes(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Opening a named pipe would block until another process writes to it.
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    let length = File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if length as u64 > most {
        bytes.pop();
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or_default());
        tracing::warn!(path = %path.display(), bytes = most, "this file is too large: only its beginning is read");
    }
    Ok(bytes)
}

/// The address of a server; `None` if its network interface does not exist.
pub fn socket_address(server: &NameServer) -> Option<SocketAddr> {
    match (server.address, &server.zone) {
        (IpAddr::V6(address), Some(zone)) => {
            Some(SocketAddrV6::new(address, server.port, 0, interface_number(zone)?).into())
        }
        (address, _) => Some(SocketAddr::new(address, server.port)),
    }
}

fn interface_number(zone: &str) -> Option<u32> {
    if let Ok(number) = zone.parse() {
        return Some(number);
    }
    let is_name = !zone.is_empty() && !zone.contains('/') && !zone.starts_with('.');
    let path = is_name.then(|| Path::new("/sys/class/net").join(zone).join("ifindex"))?;
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(address: &str, zone: Option<&str>) -> NameServer {
        NameServer { address: address.parse().unwrap(), zone: zone.map(str::to_owned), port: 53 }
    }

    #[test]
    fn a_server_on_a_link_is_asked_on_its_interface() {
        let ask = |address, zone| socket_address(&server(address, zone)).map(|address| address.to_string());
        assert_eq!(ask("192.0.2.1", None).unwrap(), "192.0.2.1:53");
        assert_eq!(ask("fe80::1", Some("7")).unwrap(), "[fe80::1%7]:53");
        // The loopback interface is the first one on Linux.
        assert_eq!(ask("fe80::1", Some("lo")).unwrap(), "[fe80::1%1]:53");
        for zone in ["", "no-such-interface", "../../../etc", ".."] {
            assert_eq!(ask("fe80::1", Some(zone)), None, "{zone}");
        }
    }

    #[test]
    fn of_a_long_file_whole_lines_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first\nsecond\nthird\n").unwrap();
        assert_eq!(read_text(file.path(), 1000), "first\nsecond\nthird\n");
        assert_eq!(read_text(file.path(), 15), "first\nsecond");
        assert_eq!(read_text(file.path(), 3), "");
    }

    #[test]
    fn what_is_no_file_is_as_an_empty_one() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_text(directory.path(), 100), "");
        assert_eq!(read_text(&directory.path().join("absent"), 100), "");
    }
}
