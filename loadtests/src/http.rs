//! One request and its answer, where only one is wanted.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// An answer as it came over the wire.
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header.
    pub fn field(&self, name: &str) -> Option<&str> {
        field_of(&self.head, name)
    }

    /// Names and values of the headers.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        fields(&self.head)
    }
}

/// Lengths of the head and of the body of the answer that `bytes` begin with, once its head is there.
pub fn lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let mut lines = bytes[..head].split(|&byte| byte == b'\n');
    let body = lines.find_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then(|| std::str::from_utf8(value).unwrap().trim())
    });
    Some((head, body.map_or(0, |digits| digits.parse().unwrap())))
}

/// The value of a header of the answer that `bytes` begin with.
pub fn field<'a>(bytes: &'a [u8], name: &str) -> Option<&'a str> {
    field_of(std::str::from_utf8(&bytes[..lengths(bytes)?.0]).ok()?, name)
}

fn field_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    fields(head).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn fields(head: &str) -> impl Iterator<Item = (&str, &str)> {
    head.lines().skip(1).filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()))
}

/// The status in an answer's first line.
pub fn status(bytes: &[u8]) -> u16 {
    std::str::from_utf8(&bytes[9..12]).unwrap().parse().unwrap()
}

/// Sends `request` over a connection of its own.
pub fn exchange(address: SocketAddr, request: &str) -> std::io::Result<Answer> {
    exchange_over(TcpStream::connect(address)?, request)
}

/// Sends `request` over a connection.
pub fn exchange_over(mut stream: TcpStream, request: &str) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(request.as_bytes())?;
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let read = stream.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..read]);
        if let Some((head, body)) = lengths(&bytes).filter(|(head, body)| bytes.len() >= head + body) {
            let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
            return Ok(Answer { status: status(&bytes), head: text, body: bytes[head..head + body].to_vec() });
        }
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
