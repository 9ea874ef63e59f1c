//! Queries name servers over UDP, and over TCP if the response is too long for UDP.
//!
//! A look-up has one UDP socket at a time, and a TCP connection while a long response is read. All of it ends with the
//! future: there is no thread and no task behind it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::exchange::{Exchange, ReceivedPacket, ResolvedAddresses};

/// How long to wait for the addresses of one family after those of the other have arrived.
const OTHER_FAMILY_TIMEOUT: Duration = Duration::from_secs(1);
/// The buffer for a datagram. The query asks for at most 512 bytes.
const DATAGRAM_BYTES: usize = 2048;
/// The largest response over TCP: enough for some hundred addresses.
const MOST_TCP_BYTES: u16 = 16 * 1024;

/// Why a name could not be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// All servers failed or refused the query.
    Refused,
    /// No server answered.
    NoAnswer,
}

/// The name servers, and how to query them.
#[derive(Debug)]
pub struct Servers {
    pub addresses: Vec<SocketAddr>,
    pub timeout: Duration,
    pub attempts: u32,
    /// With rotation, each look-up starts with the next server: the number of look-ups.
    pub rotation: Option<AtomicUsize>,
}

impl Servers {
    /// Looks up the addresses of a full name, without a trailing dot.
    ///
    /// One server is asked after the other, each for both families of addresses, until one returns a result.
    pub async fn ask(&self, name: &str) -> Result<ResolvedAddresses, ServerError> {
        let Some(mut exchange) = Exchange::new(name) else { return Ok(ResolvedAddresses::default()) };
        let first = self.rotation.as_ref().map_or(0, |rotation| rotation.fetch_add(1, Ordering::Relaxed));
        let mut error = ServerError::NoAnswer;
        let mut socket: Option<(SocketAddr, UdpSocket)> = None;
        for turn in 0..self.addresses.len() * self.attempts as usize {
            let server = self.addresses[first.wrapping_add(turn) % self.addresses.len()];
            // The response to an earlier query may still arrive from a server that is asked again.
            let kept = socket.take().filter(|(asked, _)| *asked == server);
            let asked = match kept {
                Some((_, socket)) => Ok(socket),
                None => connected(server).await,
            };
            let Ok(asked) = asked else { continue };
            let received_all = self.ask_one(server, &asked, &mut exchange).await;
            if let Some(found) = exchange.outcome() {
                return Ok(found);
            }
            if received_all.is_ok_and(|()| !exchange.has_open()) {
                error = ServerError::Refused;
            }
            exchange.fail();
            socket = Some((server, asked));
        }
        Err(error)
    }

    /// Sends the open queries to one server, and receives until all are answered or the timeout is over.
    async fn ask_one(&self, server: SocketAddr, socket: &UdpSocket, exchange: &mut Exchange) -> io::Result<()> {
        for packet in exchange.ask() {
            socket.send(packet).await?;
        }
        let deadline = Instant::now() + self.timeout;
        let mut until = deadline;
        let mut buffer = vec![0; DATAGRAM_BYTES];
        while exchange.has_open() {
            // The timeout is over.
            let Ok(received) = timeout_at(until, socket.recv(&mut buffer)).await else { break };
            match exchange.receive(&buffer[..received?]) {
                ReceivedPacket::Ignored => continue,
                ReceivedPacket::Answer => {}
                ReceivedPacket::Truncated(question) => {
                    let answer = timeout_at(deadline, ask_over_tcp(server, &question)).await??;
                    if exchange.receive(&answer) != ReceivedPacket::Answer {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
            }
            if exchange.has_addresses() {
                until = until.min(Instant::now() + OTHER_FAMILY_TIMEOUT);
            }
        }
        Ok(())
    }
}

/// A socket with a random port that receives only from this server, including the error that no process listens there.
async fn connected(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    Ok(socket)
}

/// Over TCP a message is preceded by its length.
async fn ask_over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let length = u16::try_from(question.len()).map_err(|_| invalid())?;
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let length = stream.read_u16().await?;
    if length > MOST_TCP_BYTES {
        return Err(invalid());
    }
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
