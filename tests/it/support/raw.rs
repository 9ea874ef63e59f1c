//! Bytes on a connection: for what no HTTP client would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::SOON;
use super::client::Answer;
use super::picture::read_back;

/// A connection to a server.
pub struct Raw {
    pub stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), received: Vec::new() }
    }

    /// Sends bytes and, by and by, reads all answers to them, until the server closes.
    pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<Answer> {
        let mut raw = Self::connect(address).await;
        raw.send(bytes).await;
        raw.answers().await
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Sends no more; goes on reading.
    pub async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The next answer to a request that is no `HEAD`; `None` at the end. A stream of events goes on, and is not read.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.answer_to(false).await
    }

    pub async fn answer_to(&mut self, is_head: bool) -> Option<Answer> {
        timeout(SOON, self.read_answer(is_head)).await.expect("no answer")
    }

    /// All answers until the server closes.
    pub async fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.answer().await {
            answers.push(answer);
        }
        answers
    }

    async fn read_answer(&mut self, is_head: bool) -> Option<Answer> {
        loop {
            let end = loop {
                if let Some(at) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                    break at + 4;
                }
                if self.stream.read_buf(&mut self.received).await.unwrap() == 0 {
                    assert!(self.received.is_empty(), "half an answer: {:?}", String::from_utf8_lossy(&self.received));
                    return None;
                }
            };
            let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
            let mut lines = head.trim_end().split("\r\n");
            let status_line = lines.next().unwrap();
            assert!(status_line.starts_with("HTTP/1."), "{head}");
            let status: u16 = status_line.split(' ').nth(1).unwrap().parse().unwrap();
            if status == 100 {
                continue;
            }
            let headers = lines
                .map(|line| {
                    let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
                    (name.parse().unwrap(), value.parse().unwrap())
                })
                .collect();
            let mut answer = Answer { status, headers, body: Vec::new(), code: None };
            if !is_head && !matches!(status, 204 | 304) && !answer.is_event_stream() {
                answer.body = if answer.header("transfer-encoding") == "chunked" {
                    self.chunks(&head).await
                } else {
                    let length = answer.header("content-length").parse();
                    self.bytes(length.unwrap_or_else(|_| panic!("no length: {head}")), &head).await
                };
            }
            if !is_head {
                answer.code = read_back(answer.header("content-type"), &answer.body);
            }
            return Some(answer);
        }
    }

    async fn bytes(&mut self, length: usize, head: &str) -> Vec<u8> {
        while self.received.len() < length {
            assert_ne!(self.stream.read_buf(&mut self.received).await.unwrap(), 0, "half a body: {head}");
        }
        self.received.drain(..length).collect()
    }

    /// A body in chunks, without trailers.
    async fn chunks(&mut self, head: &str) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = self.received.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                assert_ne!(self.stream.read_buf(&mut self.received).await.unwrap(), 0, "half a body: {head}");
            };
            let line = self.bytes(end + 2, head).await;
            let length = usize::from_str_radix(std::str::from_utf8(&line[..end]).unwrap(), 16).unwrap();
            let chunk = self.bytes(length + 2, head).await;
            assert!(chunk.ends_with(b"\r\n"), "{head}");
            if length == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..length]);
        }
    }
}
