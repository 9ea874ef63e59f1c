//! A real name server on the loopback network, over UDP and TCP, whose answers are set by the test.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};

/// A question as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Without the dot at its end.
    pub name: String,
    pub kind: RecordType,
    pub over_tcp: bool,
    pub message: Message,
}

impl Asked {
    /// An answer that so far says nothing.
    pub fn answer(&self) -> Message {
        let mut answer = Message::response(self.message.id, OpCode::Query);
        answer.metadata.recursion_available = true;
        answer.add_queries(self.message.queries.clone());
        answer
    }
}

/// What the server does with a question.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Those addresses that are of the kind that was asked for, to be kept for so many seconds.
    Addresses(Vec<IpAddr>, u32),
    /// The name leads through these others, in order, to the last one, which has the addresses.
    Aliases(Vec<&'static str>, Vec<IpAddr>, u32),
    /// There is no such name, and that may be kept for so many seconds.
    NoSuchName(u32),
    Failure(ResponseCode),
    /// Too long for a datagram.
    Truncated,
    Silence,
    /// These, one after the other.
    Packets(Vec<Vec<u8>>),
}

impl Reply {
    /// Of one address that is not to be kept.
    pub fn address(address: &str) -> Self {
        Self::Addresses(vec![address.parse().unwrap()], 0)
    }

    fn packets(&self, asked: &Asked) -> Vec<Vec<u8>> {
        let mut answer = asked.answer();
        match self {
            Self::Addresses(addresses, ttl) => add(&mut answer, asked, &asked.name, addresses, *ttl),
            Self::Aliases(aliases, addresses, ttl) => {
                let mut owner = asked.name.as_str();
                for alias in aliases {
                    answer.add_answer(Record::from_rdata(name(owner), *ttl, RData::CNAME(CNAME(name(alias)))));
                    owner = alias;
                }
                add(&mut answer, asked, owner, addresses, *ttl);
            }
            Self::NoSuchName(ttl) => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.add_authority(authority(*ttl));
            }
            Self::Failure(code) => answer.metadata.response_code = *code,
            Self::Truncated => answer.metadata.truncation = true,
            Self::Silence => return Vec::new(),
            Self::Packets(packets) => return packets.clone(),
        }
        vec![answer.to_vec().unwrap()]
    }
}

fn add(answer: &mut Message, asked: &Asked, owner: &str, addresses: &[IpAddr], ttl: u32) {
    for address in addresses {
        let data = match address {
            IpAddr::V4(address) => RData::A(A(*address)),
            IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
        };
        if data.record_type() == asked.kind {
            answer.add_answer(Record::from_rdata(name(owner), ttl, data));
        }
    }
    if answer.answers.is_empty() {
        answer.add_authority(authority(ttl));
    }
}

pub fn name(text: &str) -> Name {
    Name::from_ascii(format!("{text}.")).unwrap()
}

/// That nothing is there may be kept for so long.
fn authority(ttl: u32) -> Record {
    let zone = name("example");
    Record::from_rdata(zone.clone(), ttl, RData::SOA(SOA::new(zone.clone(), zone, 1, 2, 3, 4, ttl)))
}

type Decide = Box<dyn Fn(&Asked) -> Reply + Send + Sync>;

struct Shared {
    decide: Decide,
    asked: Mutex<Vec<Asked>>,
}

impl Shared {
    fn packets(&self, packet: &[u8], over_tcp: bool) -> Vec<Vec<u8>> {
        let message = Message::from_vec(packet).unwrap();
        let [Query { name, query_type: kind, .. }] = &*message.queries else { panic!("{message:?}") };
        let name = name.to_string().trim_end_matches('.').to_owned();
        let asked = Asked { name, kind: *kind, over_tcp, message };
        self.asked.lock().unwrap().push(asked.clone());
        (self.decide)(&asked).packets(&asked)
    }
}

/// The server. It runs on a thread of its own, also while a test blocks or has stopped its clock.
pub struct NameServer {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl NameServer {
    pub fn start(decide: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared { decide: Box::new(decide), asked: Mutex::default() });
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (datagrams, streams) = sockets();
        let address = datagrams.local_addr().unwrap();
        let entered = runtime.enter();
        let (datagrams, streams) = (UdpSocket::from_std(datagrams).unwrap(), TcpListener::from_std(streams).unwrap());
        drop(entered);
        runtime.spawn(serve_datagrams(datagrams, Arc::clone(&shared)));
        runtime.spawn(serve_streams(streams, Arc::clone(&shared)));
        Self { address, shared, runtime: Some(runtime) }
    }

    /// The line of a `resolv.conf` that names this server.
    pub fn line(&self) -> String {
        format!("nameserver [127.0.0.1]:{}\n", self.address.port())
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }

    /// The names that were asked for, each time, in order.
    pub fn names(&self) -> Vec<String> {
        let of_one_kind = self.asked().into_iter().filter(|asked| asked.kind == RecordType::A);
        of_one_kind.map(|asked| asked.name).collect()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One of each kind, on the same port.
fn sockets() -> (std::net::UdpSocket, std::net::TcpListener) {
    loop {
        let streams = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(datagrams) = std::net::UdpSocket::bind(streams.local_addr().unwrap()) {
            streams.set_nonblocking(true).unwrap();
            datagrams.set_nonblocking(true).unwrap();
            return (datagrams, streams);
        }
    }
}

async fn serve_datagrams(socket: UdpSocket, shared: Arc<Shared>) {
    let mut buffer = [0; 512];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
        for packet in shared.packets(&buffer[..length], false) {
            // The client may be gone.
            drop(socket.send_to(&packet, client).await);
        }
    }
}

async fn serve_streams(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(serve_stream(stream, Arc::clone(&shared)));
    }
}

async fn serve_stream(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut question = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut question).await?;
    for packet in shared.packets(&question, true) {
        stream.write_u16(packet.len().try_into().unwrap()).await?;
        stream.write_all(&packet).await?;
    }
    // Until the client has all of it, and closes.
    stream.read_u16().await.map(drop)
}
