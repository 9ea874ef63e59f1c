//! Which servers are asked, in which order, and look-ups without an answer.

use std::time::{Duration, Instant};

use futures_util::poll;
use hickory_proto::op::ResponseCode;

use super::*;
use crate::support::eventually;
use crate::support::name_server::{NameServer, Reply};

/// No process listens there, and no other process gets the port.
fn closed_port() -> (std::net::UdpSocket, String) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Connected to another port, the socket receives nothing else, and the sender gets an error.
    socket.connect(other.local_addr().unwrap()).unwrap();
    let line = format!("nameserver [127.0.0.1]:{}\n", socket.local_addr().unwrap().port());
    (socket, line)
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_refuses_or_is_not_there() {
    let refusing = NameServer::start(|_| Reply::Failure(ResponseCode::Refused));
    let answering = NameServer::start(|_| Reply::address("192.0.2.1"));
    let (_closed, closed) = closed_port();
    // Nothing here takes as long as the timeout of a server.
    let conf = closed + &refusing.line() + &answering.line() + "options timeout:30";
    let resolver = Ground::new(&conf).resolver();
    assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.1"]);
    assert_eq!((refusing.names().len(), answering.names().len()), (1, 1));
}

#[tokio::test]
async fn the_next_server_is_asked_where_one_is_silent() {
    let silent = NameServer::start(|_| Reply::Silence);
    let answering = NameServer::start(|_| Reply::address("192.0.2.1"));
    let resolver = Ground::new(&(silent.line() + &answering.line() + "options timeout:1")).resolver();
    let began = Instant::now();
    assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.1"]);
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn what_one_server_says_is_not_asked_of_the_next() {
    let missing = NameServer::start(|_| Reply::NoSuchName(60));
    let other = NameServer::start(|_| Reply::address("192.0.2.1"));
    let resolver = Ground::new(&(missing.line() + &other.line())).resolver();
    assert!(addresses(&resolver, "a.example").await.is_empty());
    assert!(other.asked().is_empty());
}

#[tokio::test]
async fn look_ups_begin_with_one_server_after_the_other_where_the_file_says_so() {
    let servers = [(); 2].map(|()| NameServer::start(|_| Reply::address("192.0.2.1")));
    let resolver = Ground::new(&(servers[0].line() + &servers[1].line() + "options rotate")).resolver();
    for number in 0..4 {
        addresses(&resolver, &format!("{number}.example")).await;
    }
    assert_eq!(servers[0].names(), ["0.example", "2.example"]);
    assert_eq!(servers[1].names(), ["1.example", "3.example"]);
}

#[tokio::test]
async fn a_server_that_is_down_is_skipped_at_once() {
    let (_closed, closed) = closed_port();
    let resolver = Ground::new(&(closed + "options timeout:30")).resolver();
    assert_eq!(look_up(&resolver, "a.example").await, Err(LookUpError::NoAnswer));
}

/// The clock jumps whenever all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_silent_server_is_asked_as_often_as_the_file_says() {
    let server = NameServer::start(|_| Reply::Silence);
    let resolver = Ground::new(&(server.line() + "options timeout:7 attempts:3")).resolver();
    let began = tokio::time::Instant::now();
    assert_eq!(resolver.look_up("a.example").await, Err(LookUpError::NoAnswer));
    assert_eq!(began.elapsed().as_secs(), 21);
    eventually("three questions", SOON, async || (server.names().len() == 3).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_look_up_sends_no_more_queries_and_holds_no_sockets() {
    let server = NameServer::start(|asked| match &*asked.name {
        "last.example" => Reply::address("192.0.2.1"),
        _ => Reply::Silence,
    });
    let resolver = Ground::new(&(server.line() + "options timeout:30 attempts:5")).resolver();
    for _ in 0..3 {
        let mut given_up = Box::pin(resolver.look_up("hangs.example"));
        // Until it has sent its query.
        let before = server.asked().len();
        tokio::time::resume();
        eventually("a question", SOON, async || {
            assert!(poll!(&mut given_up).is_pending());
            (server.asked().len() == before + 2).then_some(())
        })
        .await;
        tokio::time::pause();
        drop(given_up);
        tokio::time::advance(Duration::from_mins(10)).await;
    }
    tokio::time::resume();
    // The server handles queries in order.
    assert_eq!(addresses(&resolver, "last.example").await, ["192.0.2.1"]);
    assert_eq!(server.names(), ["hangs.example", "hangs.example", "hangs.example", "last.example"]);
}

#[tokio::test]
async fn names_that_hang_do_not_delay_others_however_many_there_are() {
    const BATCHES: usize = 6;
    const BATCH: usize = 50;
    let server = NameServer::start(|asked| {
        if asked.name.ends_with("hangs.example") { Reply::Silence } else { Reply::address("192.0.2.1") }
    });
    let resolver = Ground::new(&(server.line() + "options timeout:30")).resolver();
    let mut hanging = tokio::task::JoinSet::new();
    for batch in 1..=BATCHES {
        for number in 0..BATCH {
            let (resolver, host) = (resolver.clone(), format!("{number}.{batch}.hangs.example"));
            hanging.spawn(async move { resolver.look_up(&host).await });
        }
        // The kernel drops queries that do not fit into the server's buffer.
        eventually("all hang", SOON, async || (server.asked().len() == 2 * batch * BATCH).then_some(())).await;
    }
    assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.1"]);
    assert!(hanging.try_join_next().is_none());
}

/// If the caller that sent the query is dropped, another one sends it.
#[tokio::test]
async fn a_name_is_asked_for_once_however_many_want_it() {
    let server = NameServer::start(|_| Reply::Addresses(vec!["192.0.2.1".parse().unwrap()], 60));
    let resolver = Ground::new(&server.line()).resolver();
    let mut all: Vec<_> = (0..50).map(|_| Box::pin(resolver.look_up("a.example"))).collect();
    for look_up in &mut all {
        assert!(poll!(look_up).is_pending());
    }
    drop(all.remove(0));
    for found in futures_util::future::join_all(all).await {
        assert_eq!(found.unwrap(), ["192.0.2.1".parse::<IpAddr>().unwrap()]);
    }
    assert!(server.names().len() <= 2, "{:?}", server.names());
}
