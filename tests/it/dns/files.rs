//! The files: search domains and hosts, and changes of the files.

use std::time::Duration;

use hickory_proto::op::ResponseCode;

use super::*;
use crate::support::eventually;
use crate::support::name_server::{NameServer, Reply};

/// Only this name exists; look-ups below `fails.example` fail.
fn server_of(there: &'static str) -> NameServer {
    NameServer::start(move |asked| match &*asked.name {
        name if name == there => Reply::address("192.0.2.1"),
        name if name.ends_with("fails.example") => Reply::Failure(ResponseCode::ServFail),
        name if name.ends_with("silent.example") => Reply::Silence,
        _ => Reply::NoSuchName(0),
    })
}

#[tokio::test]
async fn a_short_name_is_looked_up_in_the_search_domains() {
    let server = server_of("a.two.example");
    let resolver = Ground::new(&(server.line() + "search one.example two.example")).resolver();
    assert_eq!(addresses(&resolver, "a").await, ["192.0.2.1"]);
    assert_eq!(server.names(), ["a.one.example", "a.two.example"]);
    // A name with a trailing dot has no other name.
    assert!(addresses(&resolver, "a.").await.is_empty());
    assert_eq!(server.names()[2..], ["a"]);
    assert!(addresses(&resolver, "b.c").await.is_empty());
    assert_eq!(server.names()[3..], ["b.c", "b.c.one.example", "b.c.two.example"]);
}

#[tokio::test]
async fn the_number_of_dots_says_what_is_looked_up_first() {
    let server = server_of("api.b.example");
    let resolver = Ground::new(&(server.line() + "search one.example\noptions ndots:5")).resolver();
    assert_eq!(addresses(&resolver, "api.b.example").await, ["192.0.2.1"]);
    assert_eq!(server.names(), ["api.b.example.one.example", "api.b.example"]);
}

#[tokio::test]
async fn a_search_domain_that_fails_is_passed_over() {
    let server = server_of("a.two.example");
    let conf = server.line() + "search fails.example two.example\noptions attempts:1";
    assert_eq!(addresses(&Ground::new(&conf).resolver(), "a").await, ["192.0.2.1"]);
}

/// If the servers of a domain do not answer, the other domains are skipped, and the name itself is looked up.
#[tokio::test]
async fn after_a_search_domain_that_is_silent_the_name_is_looked_up_as_it_is() {
    let server = server_of("a.b");
    let conf = server.line() + "search silent.example two.example\noptions ndots:2 timeout:1 attempts:1";
    let resolver = Ground::new(&conf).resolver();
    assert_eq!(addresses(&resolver, "a.b").await, ["192.0.2.1"]);
    assert_eq!(server.names(), ["a.b.silent.example", "a.b"]);
    assert_eq!(look_up(&resolver, "c.silent.example").await, Err(LookUpError::NoAnswer));
    assert_eq!(server.names()[2..], ["c.silent.example"]);
}

#[tokio::test]
async fn the_hosts_file_goes_before_all_servers() {
    let server = NameServer::start(|_| Reply::address("192.0.2.1"));
    let ground = Ground::new(&(server.line() + "search one.example"));
    ground.write("hosts", "192.0.2.7 a.example Short # c.example\n::7 a.example\n");
    let resolver = ground.resolver();
    for host in ["a.example", "A.Example", "a.example."] {
        assert_eq!(addresses(&resolver, host).await, ["192.0.2.7", "::7"], "{host}");
    }
    assert_eq!(addresses(&resolver, "short").await, ["192.0.2.7"]);
    assert!(server.asked().is_empty());
    assert_eq!(addresses(&resolver, "c.example").await, ["192.0.2.1"]);
}

#[tokio::test]
async fn localhost_is_this_machine_without_a_query() {
    let server = NameServer::start(|_| Reply::address("192.0.2.1"));
    let ground = Ground::new(&server.line());
    for host in ["localhost", "localhost.", "LocalHost", "app.localhost"] {
        assert_eq!(addresses(&ground.resolver(), host).await, ["::1", "127.0.0.1"], "{host}");
    }
    ground.write("hosts", "127.0.0.1 localhost");
    assert_eq!(addresses(&ground.resolver(), "localhost").await, ["127.0.0.1"]);
    assert!(server.asked().is_empty());
    assert_eq!(addresses(&ground.resolver(), "notlocalhost").await, ["192.0.2.1"]);
}

#[tokio::test]
async fn without_a_resolv_conf_the_hosts_file_counts_all_the_same() {
    let ground = Ground::new("");
    ground.write("hosts", "192.0.2.7 a.example");
    std::fs::remove_file(ground.directory.path().join("resolv.conf")).unwrap();
    let resolver = ground.resolver();
    assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.7"]);
    // Whether the machine of the test has a name server or not.
    assert!(look_up(&resolver, "name.invalid").await.unwrap_or_default().is_empty());
    std::fs::remove_file(ground.directory.path().join("hosts")).unwrap();
    assert_eq!(addresses(&ground.resolver(), "localhost").await, ["::1", "127.0.0.1"]);
}

#[tokio::test]
async fn files_that_change_are_followed() {
    let (first, second) = (server_of("first.example"), server_of("second.example"));
    let ground = Ground::new(&first.line());
    let resolver =
        Resolver::new(ResolverSettings { check_files_every: Duration::from_millis(10), ..ground.settings() });
    assert_eq!(addresses(&resolver, "first.example").await, ["192.0.2.1"]);
    assert!(addresses(&resolver, "second.example").await.is_empty());

    // The file is replaced, as by most programs.
    ground.write("new", &second.line());
    std::fs::rename(ground.directory.path().join("new"), ground.directory.path().join("resolv.conf")).unwrap();
    eventually("the other server", SOON, async || {
        (addresses(&resolver, "second.example").await == ["192.0.2.1"]).then_some(())
    })
    .await;
    assert!(addresses(&resolver, "first.example").await.is_empty());

    // The file is written in place, as in a container.
    ground.write("hosts", "192.0.2.9 second.example");
    eventually("the hosts file", SOON, async || {
        (addresses(&resolver, "second.example").await == ["192.0.2.9"]).then_some(())
    })
    .await;

    // The file is removed and restored.
    std::fs::remove_file(ground.directory.path().join("hosts")).unwrap();
    eventually("no hosts file", SOON, async || {
        (addresses(&resolver, "second.example").await == ["192.0.2.1"]).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_was_answered_is_kept_as_long_as_the_files_are_the_same() {
    let server = NameServer::start(|_| Reply::Addresses(vec!["192.0.2.1".parse().unwrap()], 60));
    let ground = Ground::new(&server.line());
    let resolver = Resolver::new(ResolverSettings { check_files_every: Duration::ZERO, ..ground.settings() });
    for _ in 0..5 {
        assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.1"]);
    }
    assert_eq!(server.names(), ["a.example"]);
    ground.write("hosts", "# changed");
    assert_eq!(addresses(&resolver, "a.example").await, ["192.0.2.1"]);
    assert_eq!(server.names(), ["a.example", "a.example"]);
}
