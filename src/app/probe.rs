//! Asks a running server whether it is ready, for the health checks of container engines.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::config::Config;

/// The time limit for connecting, and for each part of the answer. The server answers within a second.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest status line that is read. Real ones are far shorter.
const MAX_LINE: u64 = 256;

/// The readiness that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReadiness {
    pub ready: bool,
    pub status_line: String,
}

/// Asks the server that runs with this configuration, on its `admin.listen` address.
///
/// # Errors
/// If it does not answer.
pub fn readiness_of_server(config: &Config) -> io::Result<ServerReadiness> {
    let mut stream = TcpStream::connect_timeout(&reachable(config.admin.listen), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut line)?;
    Ok(ServerReadiness { ready: line.starts_with("HTTP/1.1 200 "), status_line: line.trim_end().to_owned() })
}

/// The address at which a listener on `address` can be reached.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in [("0.0.0.0:8081", "127.0.0.1:8081"), ("[::]:1", "[::1]:1"), ("10.0.0.1:2", "10.0.0.1:2")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
