//! Asks name servers, over UDP, and over TCP what is too long for that.
//!
//! A look-up has one socket at a time, and one more while an answer comes over TCP. All of it ends with the future: there is
//! no thread and no task behind it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout_at};

use super::exchange::{Exchange, Found, Heard};

/// How long the addresses of one family are waited for when those of the other are there.
const OTHER_FAMILY_WITHIN: Duration = Duration::from_secs(1);
/// What is read of a datagram. No more than 512 bytes are asked for.
const MOST_OF_DATAGRAM: usize = 2048;
/// What an answer over TCP may have: room for some hundred addresses.
const MOST_OF_STREAM: u16 = 16 * 1024;

/// Why a name could not be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// All servers say that they can't tell.
    Refused,
    /// No server has answered.
    Silence,
}

/// The servers, and how they are asked.
#[derive(Debug)]
pub struct Servers {
    pub addresses: Vec<SocketAddr>,
    pub timeout: Duration,
    pub attempts: u32,
    /// Where look-ups begin with another server each: how many there were.
    pub turns: Option<AtomicUsize>,
}

impl Servers {
    /// Looks up the addresses of a full name, without a dot at its end.
    ///
    /// One server is asked after the other, each for both kinds of addresses, until one tells.
    pub async fn ask(&self, name: &str) -> Result<Found, ServerError> {
        let Some(mut exchange) = Exchange::new(name) else { return Ok(Found::default()) };
        let first = self.turns.as_ref().map_or(0, |turns| turns.fetch_add(1, Ordering::Relaxed));
        let mut error = ServerError::Silence;
        let mut socket: Option<(SocketAddr, UdpSocket)> = None;
        for turn in 0..self.addresses.len() * self.attempts as usize {
            let server = self.addresses[first.wrapping_add(turn) % self.addresses.len()];
            // An answer to an earlier question may still come from a server that is asked again.
            let kept = socket.take().filter(|(asked, _)| *asked == server);
            let asked = match kept {
                Some((_, socket)) => Ok(socket),
                None => connected(server).await,
            };
            let Ok(asked) = asked else { continue };
            let heard = self.ask_one(server, &asked, &mut exchange).await;
            if let Some(found) = exchange.outcome() {
                return Ok(found);
            }
            if heard.is_ok_and(|()| !exchange.has_open()) {
                error = ServerError::Refused;
            }
            exchange.fail();
            socket = Some((server, asked));
        }
        Err(error)
    }

    /// Asks one server what is open, and listens until all is told or the time is up.
    async fn ask_one(&self, server: SocketAddr, socket: &UdpSocket, exchange: &mut Exchange) -> io::Result<()> {
        for packet in exchange.ask() {
            socket.send(packet).await?;
        }
        let deadline = Instant::now() + self.timeout;
        let mut until = deadline;
        let mut buffer = vec![0; MOST_OF_DATAGRAM];
        while exchange.has_open() {
            // The time is up.
            let Ok(received) = timeout_at(until, socket.recv(&mut buffer)).await else { break };
            match exchange.hear(&buffer[..received?]) {
                Heard::Nothing => continue,
                Heard::Answer => {}
                Heard::Truncated(question) => {
                    let answer = timeout_at(deadline, ask_over_tcp(server, &question)).await??;
                    if exchange.hear(&answer) != Heard::Answer {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
            }
            if exchange.has_addresses() {
                until = until.min(Instant::now() + OTHER_FAMILY_WITHIN);
            }
        }
        Ok(())
    }
}

/// A socket with a port by chance, on which only this server is heard, and also that nobody listens there.
async fn connected(server: SocketAddr) -> io::Result<UdpSocket> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    Ok(socket)
}

/// Over TCP a message has its length in front.
async fn ask_over_tcp(server: SocketAddr, question: &[u8]) -> io::Result<Vec<u8>> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let length = u16::try_from(question.len()).map_err(|_| invalid())?;
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&[&length.to_be_bytes(), question].concat()).await?;
    let length = stream.read_u16().await?;
    if length > MOST_OF_STREAM {
        return Err(invalid());
    }
    let mut answer = vec![0; length.into()];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}
