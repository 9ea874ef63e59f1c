//! A connection that blocks and hides nothing: what was answered, what was not, and how a connection ended.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::picture::{read_back, read_back_at};

/// An answer, read whole.
#[derive(Debug)]
pub struct WireAnswer {
    pub status: u16,
    /// As sent, status line and header lines.
    pub head: String,
    pub body: Vec<u8>,
}

impl WireAnswer {
    /// A header's value; empty where it is not there.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// Whether the server said that it closes the connection.
    pub fn closes(&self) -> bool {
        self.header("connection").eq_ignore_ascii_case("close")
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }
}

/// How far an unanswered request got.
#[derive(Debug)]
pub enum Unanswered {
    /// Not a byte of an answer came: whoever sent it may send it again.
    Nothing(#[expect(dead_code, reason = "shown by Debug")] io::Error),
    /// An answer that began and did not end, and what came of it.
    Torn(
        #[expect(dead_code, reason = "shown by Debug")] io::Error,
        #[expect(dead_code, reason = "shown by Debug")] String,
    ),
}

impl Unanswered {
    pub fn is_torn(&self) -> bool {
        matches!(self, Self::Torn(..))
    }
}

/// One keep-alive connection.
pub struct Connection {
    stream: TcpStream,
    /// What requests name as their host: where they are sent.
    host: String,
    buffer: Vec<u8>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // Far above what an answer may take: a test must not hang.
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream, host: address.to_string(), buffer: Vec::with_capacity(1024) })
    }

    pub fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Result<WireAnswer, Unanswered> {
        self.request("GET", path, headers, "")
    }

    /// Sends JSON with a key.
    pub fn post(&mut self, path: &str, key: &str, body: &str) -> Result<WireAnswer, Unanswered> {
        self.request("POST", path, &[("X-API-Key", key), ("Content-Type", "application/json")], body)
    }

    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Result<WireAnswer, Unanswered> {
        let length = body.len().to_string();
        let length = [("Content-Length", &*length)];
        let length = if body.is_empty() { &[] } else { &length[..] };
        let mut text = [method, " ", path, " HTTP/1.1\r\nHost: ", &self.host, "\r\n"].concat();
        for (name, value) in headers.iter().chain(length) {
            text += &[*name, ": ", *value, "\r\n"].concat();
        }
        self.send(format!("{text}\r\n{body}").as_bytes()).map_err(Unanswered::Nothing)?;
        let answer = self.answer(method != "HEAD")?;
        if method != "HEAD" {
            read_back_at(path, answer.header("content-type"), &answer.body);
        }
        Ok(answer)
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one answer.
    pub fn answer(&mut self, with_body: bool) -> Result<WireAnswer, Unanswered> {
        let head_end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut answer = WireAnswer { status, head, body: Vec::new() };
        let length = if with_body { answer.header("content-length").parse().unwrap_or(0) } else { 0 };
        while self.buffer.len() < head_end + length {
            self.more()?;
        }
        answer.body = self.buffer[head_end..head_end + length].to_vec();
        self.buffer.drain(..head_end + length);
        if with_body {
            read_back(answer.header("content-type"), &answer.body);
        }
        Ok(answer)
    }

    fn more(&mut self) -> Result<(), Unanswered> {
        let mut chunk = [0; 4096];
        let read = self.stream.read(&mut chunk).and_then(|read| match read {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        });
        match read {
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                Ok(())
            }
            Err(error) if self.buffer.is_empty() => Err(Unanswered::Nothing(error)),
            Err(error) => Err(Unanswered::Torn(error, String::from_utf8_lossy(&self.buffer).into_owned())),
        }
    }
}
