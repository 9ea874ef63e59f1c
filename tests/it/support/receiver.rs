//! A receiver of webhooks whose answers are set by the test.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    pub at: Instant,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub path: String,
    pub body: Vec<u8>,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What the receiver does with a request.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Status(u16),
    /// Says nothing until the sender gives up.
    Silence,
    /// Answers with this status, and announces a body that does not come.
    HeadAlone(u16),
}

type Decide = Box<dyn FnMut(&Received) -> Reply + Send>;

#[derive(Default)]
struct State {
    received: Vec<Received>,
    replies: VecDeque<Reply>,
    decide: Option<Decide>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    holds_answers: watch::Sender<bool>,
    connections: watch::Sender<usize>,
}

/// Answers 200 unless told otherwise, and keeps what it got.
pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers of the next requests, in order; after them 200 again.
    pub fn reply_with(&self, replies: impl IntoIterator<Item = Reply>) {
        self.shared.state.lock().unwrap().replies.extend(replies);
    }

    /// How requests are answered for which no reply was set.
    pub fn decide_with(&self, decide: impl FnMut(&Received) -> Reply + Send + 'static) {
        self.shared.state.lock().unwrap().decide = Some(Box::new(decide));
    }

    /// While set, requests are taken and their answers wait.
    pub fn holds_answers(&self, does: bool) {
        self.shared.holds_answers.send_replace(does);
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.state.lock().unwrap().received.clone()
    }

    /// As [`received`](Self::received), but forgets them.
    pub fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut self.shared.state.lock().unwrap().received)
    }

    /// Waits until all that a sender which has ended sent on its connections is received.
    pub async fn read_to_the_end(&self) {
        // Connections are accepted in their order: when this one is closed, all before it were accepted.
        let mut last = TcpStream::connect(self.address).await.unwrap();
        last.shutdown().await.unwrap();
        assert_eq!(last.read(&mut [0]).await.unwrap(), 0);
        // The sender lives as long as `self`.
        let mut connections = self.shared.connections.subscribe();
        drop(connections.wait_for(|open| *open == 0).await);
    }

    /// Waits until `count` requests have come.
    pub async fn wait_for(&self, count: usize, within: Duration) -> Vec<Received> {
        // Copied once: of thousands that takes long, and whoever answers wants the lock.
        let have_come = || self.shared.state.lock().unwrap().received.len() >= count;
        super::eventually("webhook requests", within, async || have_come().then_some(())).await;
        self.received()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        shared.connections.send_modify(|open| *open += 1);
        connections.spawn(async move {
            serve(stream, &shared).await;
            shared.connections.send_modify(|open| *open -= 1);
        });
    }
}

/// HTTP/1.1 with `Content-Length` bodies and keep-alive: what webhook requests are.
async fn serve(mut stream: TcpStream, shared: &Shared) {
    let mut bytes = Vec::new();
    loop {
        let head_end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, n)| n.parse().unwrap());
        while bytes.len() < head_end + length {
            if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let body = bytes[head_end..head_end + length].to_vec();
        bytes.drain(..head_end + length);
        let reply = {
            let mut state = shared.state.lock().unwrap();
            let state = &mut *state;
            let request = Received { at: Instant::now(), headers, path, body };
            let decide = || state.decide.as_mut().map_or(Reply::Status(200), |decide| decide(&request));
            let reply = state.replies.pop_front().unwrap_or_else(decide);
            state.received.push(request);
            reply
        };
        let mut holds_answers = shared.holds_answers.subscribe();
        drop(holds_answers.wait_for(|holds| !holds).await);
        match reply {
            Reply::Status(status) => {
                let answer = format!("HTTP/1.1 {status} As Told\r\ncontent-length: 0\r\n\r\n");
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Silence => std::future::pending().await,
            Reply::HeadAlone(status) => {
                let head = format!("HTTP/1.1 {status} As Told\r\ncontent-length: 1\r\n\r\n");
                drop(stream.write_all(head.as_bytes()).await);
                std::future::pending::<()>().await;
            }
        }
    }
}
