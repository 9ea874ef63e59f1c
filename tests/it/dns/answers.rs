//! Responses: their content, which ones are accepted, and how long they are cached.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hickory_proto::op::{MessageType, Query, ResponseCode};
use hickory_proto::rr::RecordType;

use super::*;
use crate::support::eventually;
use crate::support::name_server::{Asked, NameServer, Reply, name};

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_name_has_the_addresses_of_both_families() {
    let server = NameServer::start(|_| Reply::Addresses(ips(&["192.0.2.1", "2001:db8::1", "192.0.2.2"]), 60));
    let resolver = Ground::new(&server.line()).resolver();
    assert_eq!(addresses(&resolver, "a.example").await, ["2001:db8::1", "192.0.2.1", "192.0.2.2"]);
    let mut kinds: Vec<RecordType> = server.asked().iter().map(|asked| asked.kind).collect();
    kinds.sort();
    assert_eq!(kinds, [RecordType::A, RecordType::AAAA]);
    assert!(server.asked().iter().all(|asked| asked.message.recursion_desired && asked.name == "a.example"));
}

#[tokio::test]
async fn one_family_is_enough_where_the_other_fails_or_hangs() {
    let server = NameServer::start(|asked| match (asked.kind, &*asked.name) {
        (RecordType::A, _) => Reply::address("192.0.2.1"),
        (_, "fails.example") => Reply::Failure(ResponseCode::ServFail),
        (_, "missing.example") => Reply::NoSuchName(60),
        _ => Reply::Silence,
    });
    let resolver = Ground::new(&(server.line() + "options timeout:30")).resolver();
    for host in ["fails.example", "missing.example"] {
        assert_eq!(addresses(&resolver, host).await, ["192.0.2.1"], "{host}");
    }
    // The look-up waits for it, but less than the timeout of a server.
    let began = Instant::now();
    assert_eq!(addresses(&resolver, "hangs.example").await, ["192.0.2.1"]);
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn names_lead_to_others_and_only_what_they_lead_to_counts() {
    let server = NameServer::start(|asked| match &*asked.name {
        "alias.example" => Reply::Aliases(vec!["b.example", "C.Example"], ips(&["192.0.2.3"]), 60),
        "loop.example" => Reply::Aliases(vec!["d.example", "loop.example"], ips(&["192.0.2.4"]), 60),
        // An address of another name.
        _ => {
            let mut answer = asked.answer();
            let data = hickory_proto::rr::RData::A(hickory_proto::rr::rdata::A::new(192, 0, 2, 5));
            answer.add_answer(hickory_proto::rr::Record::from_rdata(name("other.example"), 60, data));
            Reply::Packets(vec![answer.to_vec().unwrap()])
        }
    });
    let resolver = Ground::new(&server.line()).resolver();
    assert_eq!(addresses(&resolver, "alias.example").await, ["192.0.2.3"]);
    look_up(&resolver, "loop.example").await.unwrap();
    assert!(addresses(&resolver, "a.example").await.is_empty());
}

#[tokio::test]
async fn an_answer_is_kept_for_its_time() {
    let turn = AtomicU32::new(0);
    let server = NameServer::start(move |asked| {
        let number = turn.fetch_add(1, Ordering::Relaxed) / 2;
        let ttl = match &*asked.name {
            "kept.example" => 3600,
            "short.example" => 1,
            _ => 0,
        };
        Reply::Addresses(ips(&[&format!("192.0.2.{}", 1 + number)]), ttl)
    });
    let resolver = Ground::new(&server.line()).resolver();
    for _ in 0..3 {
        assert_eq!(addresses(&resolver, "kept.example").await, ["192.0.2.1"]);
        assert_eq!(addresses(&resolver, "KEPT.example").await, ["192.0.2.1"]);
    }
    assert_eq!(server.names(), ["kept.example"]);
    assert_eq!(addresses(&resolver, "not-kept.example").await, ["192.0.2.2"]);
    assert_eq!(addresses(&resolver, "not-kept.example").await, ["192.0.2.3"]);
    let began = Instant::now();
    assert_eq!(addresses(&resolver, "short.example").await, ["192.0.2.4"]);
    eventually("another answer", SOON, async || {
        (addresses(&resolver, "short.example").await != ["192.0.2.4"]).then_some(())
    })
    .await;
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(addresses(&resolver, "kept.example").await, ["192.0.2.1"]);
}

#[tokio::test]
async fn negative_answers_are_cached_and_failures_are_not() {
    let server = NameServer::start(|asked| match &*asked.name {
        "missing.example" => Reply::NoSuchName(60),
        "empty.example" => Reply::Addresses(Vec::new(), 60),
        _ => Reply::Failure(ResponseCode::ServFail),
    });
    let resolver = Ground::new(&(server.line() + "options attempts:1")).resolver();
    for _ in 0..2 {
        assert!(addresses(&resolver, "missing.example").await.is_empty());
        assert!(addresses(&resolver, "empty.example").await.is_empty());
        assert_eq!(look_up(&resolver, "fails.example").await, Err(LookUpError::Refused));
    }
    assert_eq!(server.names(), ["missing.example", "empty.example", "fails.example", "fails.example"]);
}

#[tokio::test]
async fn a_name_that_cannot_be_is_not_asked_for() {
    let server = NameServer::start(|_| Reply::address("192.0.2.1"));
    let resolver = Ground::new(&server.line()).resolver();
    for host in [format!("{}.example", "a".repeat(64)), "a..example".into(), "a.".repeat(130), String::new()] {
        assert!(addresses(&resolver, &host).await.is_empty(), "{host}");
    }
    assert!(server.asked().is_empty());
    assert_eq!(addresses(&resolver, "under_score-.example").await, ["192.0.2.1"]);
}

#[tokio::test]
async fn forged_and_broken_answers_are_ignored() {
    let server = NameServer::start(|asked| {
        let genuine = with_address(asked, 1);
        let forged = |forge: &dyn Fn(&mut hickory_proto::op::Message)| {
            let mut message = with_address(asked, 66);
            forge(&mut message);
            message.to_vec().unwrap()
        };
        Reply::Packets(vec![
            Vec::new(),
            b"garbage".to_vec(),
            vec![0xff; 512],
            forged(&|message| message.metadata.id ^= 1),
            forged(&|message| message.metadata.message_type = MessageType::Query),
            forged(&|message| message.queries = vec![Query::query(name("other.example"), asked.kind)]),
            forged(&|message| message.queries = vec![Query::query(name("a.example"), RecordType::TXT)]),
            forged(&|message| message.queries.clear()),
            genuine.to_vec().unwrap(),
            forged(&|_| {}),
        ])
    });
    let resolver = Ground::new(&server.line()).resolver();
    assert_eq!(addresses(&resolver, "a.example").await, ["2001:db8::1", "192.0.2.1"]);
}

fn with_address(asked: &Asked, last: u8) -> hickory_proto::op::Message {
    use hickory_proto::rr::rdata::{A, AAAA};
    use hickory_proto::rr::{RData, Record};
    let data = match asked.kind {
        RecordType::A => RData::A(A::new(192, 0, 2, last)),
        _ => RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into())),
    };
    let mut answer = asked.answer();
    answer.add_answer(Record::from_rdata(name(&asked.name), 60, data));
    answer
}

#[tokio::test]
async fn what_is_too_long_for_a_datagram_is_asked_for_over_tcp() {
    let many: Vec<IpAddr> = (1..=100).map(|last| IpAddr::from([192, 0, 2, last])).collect();
    let server = NameServer::start(
        move |asked| {
            if asked.over_tcp { Reply::Addresses(many.clone(), 60) } else { Reply::Truncated }
        },
    );
    let resolver = Ground::new(&server.line()).resolver();
    let found = addresses(&resolver, "many.example").await;
    // The largest number that is used.
    assert_eq!((found.len(), &*found[0], &*found[7]), (8, "192.0.2.1", "192.0.2.8"));
    assert_eq!(server.asked().iter().filter(|asked| asked.over_tcp).count(), 2);
}

#[tokio::test]
async fn an_answer_over_tcp_that_is_truncated_too_is_none() {
    let server = NameServer::start(|_| Reply::Truncated);
    let resolver = Ground::new(&(server.line() + "options attempts:1")).resolver();
    assert_eq!(look_up(&resolver, "a.example").await, Err(LookUpError::NoAnswer));
}
