//! The sockets that connections are accepted on, one for each worker, all at the same address.

use std::io;
use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;

/// The longest queue of connections that wait to be accepted.
const BACKLOG: u32 = 4096;
/// The send buffer of a connection: at most this much of an answer waits for the client, and as much again for the
/// kernel's own use.
const SEND_BUFFER_BYTES: u32 = 256 * 1024;

/// Binds one socket.
///
/// # Errors
/// If the address can't be had.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    listen(new_socket(address)?, address)
}

/// Binds as many sockets to one address; connections are shared among them by the kernel (`SO_REUSEPORT`).
///
/// # Errors
/// If the address can't be had. Another process that listens there is an error too, although it may allow the address to
/// be shared: else two servers that were started by mistake would each get a half of the connections.
pub fn bind_shared(address: SocketAddr, count: usize) -> io::Result<Vec<TcpListener>> {
    // Fails while anybody listens there.
    new_socket(address)?.bind(address)?;
    let mut sockets: Vec<TcpListener> = Vec::with_capacity(count);
    while sockets.len() < count {
        // With port 0 the first socket is given one, which the others take.
        let address = sockets.first().map_or(Ok(address), TcpListener::local_addr)?;
        let socket = new_socket(address)?;
        socket.set_reuseport(true)?;
        sockets.push(listen(socket, address)?);
    }
    Ok(sockets)
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // So that a restart does not wait for the connections of the previous process.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit these. The buffer bounds the kernel memory for a client that does not read its answer.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn listen(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn all_sockets_have_one_address_and_nobody_else_can_have_it() {
        let sockets = bind_shared(ANY, 3).unwrap();
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        assert!(addresses[0].port() != 0 && addresses.iter().all(|address| *address == addresses[0]), "{addresses:?}");
        let refused = bind_shared(addresses[0], 1).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(sockets);
        assert_eq!(bind_shared(addresses[0], 2).unwrap().len(), 2, "free again");
    }
}
