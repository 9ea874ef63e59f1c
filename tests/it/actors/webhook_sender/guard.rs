//! What the sender does not call: refused addresses in every notation, targets of redirects, proxies.

use std::net::Ipv6Addr;
use std::process::Command;

use hickory_proto::rr::RecordType;
use tokio::net::{TcpSocket, TcpStream};

use super::*;
use crate::support::name_server::{NameServer, Reply};
use crate::support::{SOON, eventually};

/// Hosts in URLs, none of them public, in all notations in which a URL may have an address.
const REFUSED_HOSTS: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "0177.0.0.1",
    "017700000001",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "0",
    "10.0.0.1",
    "100.64.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.0.2.1",
    "192.168.0.1",
    "224.0.0.1",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]",
    "[fd00:ec2::254]",
    "[fe80::1]",
];

/// Addresses that a name may resolve to and that no webhook may reach.
const REFUSED_ANSWERS: &[&str] = &[
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "192.168.0.1",
    "224.0.0.1",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fe80::1",
    "ff02::1",
];

#[tokio::test]
async fn a_literal_address_that_the_guard_refuses_is_never_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let closed_guard = sender(settings_of(AddressGuard::default()));
    for host in REFUSED_HOSTS {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{}/hook", receiver.address.port());
            let failure = closed_guard.send(request(&url)).await;
            assert_eq!(failure, Err(SendFailure::BlockedAddress), "{url}");
        }
    }
    assert_eq!(SendFailure::BlockedAddress.to_string(), "blocked address");
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_of_a_refused_address_is_never_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let url = receiver.url_of("localhost");
    let closed_guard = sender(settings_of(AddressGuard::default()));
    assert_eq!(closed_guard.send(request(&url)).await, Err(SendFailure::BlockedAddress));
    assert_eq!(receiver.connections(), 0);

    // The same name, with the system's resolver, if the operator permits the network.
    assert_eq!(sender(settings()).send(request(&url)).await, Ok(200));
}

#[tokio::test]
async fn a_name_that_resolves_to_refused_addresses_alone_is_never_dialled() {
    let answers: Vec<IpAddr> = REFUSED_ANSWERS.iter().map(|text| text.parse().unwrap()).collect();
    let closed_guard = |answer: &[IpAddr]| {
        let mut settings = settings_of(AddressGuard::default());
        settings.lookup = ScriptedLookup::new([answer]);
        sender(settings)
    };
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let url = receiver.url_of("example.com");
    for answer in answers.iter().map(std::slice::from_ref).chain([&*answers]) {
        let failure = closed_guard(answer).send(request(&url)).await;
        assert_eq!(failure, Err(SendFailure::BlockedAddress), "{answer:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn of_a_names_addresses_only_the_permitted_are_dialled() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let trap = Receiver::trap(&receiver).await;
    let mapped = IpAddr::V6(Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped());
    let loopback = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let answers = [[BLOCKED, OPEN], [OPEN, BLOCKED], [mapped, OPEN], [OPEN, mapped], [loopback, OPEN]];
    for answer in answers {
        let mut settings = settings();
        settings.lookup = ScriptedLookup::new([&answer]);
        let url = receiver.url_of("example.com");
        assert_eq!(sender(settings).send(request(&url)).await, Ok(200));
    }
    assert_eq!((receiver.connections(), trap.connections()), (answers.len(), 0));
}

#[tokio::test]
async fn a_permitted_address_that_is_down_does_not_lead_to_a_refused_one() {
    // No process listens there, and no other process gets the port.
    let down = TcpSocket::new_v4().unwrap();
    down.bind((OPEN, 0).into()).unwrap();
    let port = down.local_addr().unwrap().port();
    let trap = Receiver::start_at((BLOCKED, port).into(), None, Behaviour::Answer(OK.into())).await;
    let url = format!("http://example.com:{port}/hook");
    let mut settings = settings();
    settings.lookup = ScriptedLookup::new([&[OPEN, BLOCKED]]);
    assert_eq!(sender(settings).send(request(&url)).await, Err(SendFailure::ConnectionRefused));
    assert_eq!(trap.connections(), 0);
}

#[tokio::test]
async fn an_address_that_never_answers_leaves_time_for_the_next_one() {
    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    // Its queue of connections is full, so the kernel drops what comes.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind((BLOCKED, receiver.address.port()).into()).unwrap();
    let silent = silent.listen(0).unwrap();
    let address = silent.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
    }
    let mut settings = settings_of(guard("127.0.0.0/8"));
    settings.timeout = Duration::from_secs(2);
    settings.lookup = ScriptedLookup::new([&[BLOCKED, OPEN]]);
    assert_eq!(sender(settings).send(request(&receiver.url_of("example.com"))).await, Ok(200));
}

#[tokio::test]
async fn a_name_that_is_rebound_to_a_refused_address_does_not_pass() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(Behaviour::AnswerAndClose(closing.into())).await;
    let trap = Receiver::trap(&receiver).await;
    let mapped = IpAddr::V6(Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped());
    let lookup = ScriptedLookup::new([&[OPEN], &[BLOCKED], &[BLOCKED, OPEN], &[mapped], &[OPEN]]);
    let mut settings = settings();
    settings.lookup = Arc::clone(&lookup) as Arc<dyn Lookup>;
    let sender = sender(settings);
    let url = receiver.url_of("rebinding.example.com");

    let (sent, blocked) = (Ok(200), Err(SendFailure::BlockedAddress));
    for (turn, expected) in [sent, blocked, sent, blocked, sent].into_iter().enumerate() {
        assert_eq!(sender.send(request(&url)).await, expected);
        // One look-up for each connection: the checked address is the one that is connected to.
        assert_eq!(lookup.asked.load(Ordering::SeqCst), turn + 1);
    }
    assert_eq!((receiver.connections(), trap.connections()), (3, 0));
}

/// The same with the service's own resolver and a real name server, also if the answer may be cached.
#[tokio::test]
async fn what_a_name_server_says_is_judged_at_every_dial() {
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::start(Behaviour::AnswerAndClose(closing.into())).await;
    let trap = Receiver::trap(&receiver).await;
    let turn = AtomicUsize::new(0);
    let server = NameServer::start(move |asked| match (asked.kind, &*asked.name) {
        (RecordType::AAAA, "mapped.example") => {
            let mapped = IpAddr::V6(Ipv4Addr::new(127, 0, 0, 2).to_ipv6_mapped());
            Reply::Addresses(vec![mapped], 60)
        }
        (RecordType::A, "rebinding.example") => {
            let answer = if turn.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) { OPEN } else { BLOCKED };
            Reply::Addresses(vec![answer], 0)
        }
        (RecordType::A, "both.example") => Reply::Addresses(vec![BLOCKED, OPEN], 60),
        (RecordType::A, "kept.example") => Reply::Addresses(vec![BLOCKED], 60),
        (RecordType::A, "alias.example") => Reply::Aliases(vec!["localhost"], vec![BLOCKED], 60),
        _ => Reply::NoSuchName(60),
    });
    let directory = tempfile::tempdir().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    std::fs::write(&resolv_conf, server.line()).unwrap();
    let resolver = Resolver::new(ResolverSettings::new(resolv_conf));
    let sender = sender(SenderSettings::new(guard("127.0.0.1/32"), Arc::new(resolver)));

    let (sent, blocked) = (Ok(200), Err(SendFailure::BlockedAddress));
    for (host, outcomes) in [
        ("rebinding.example", [sent, blocked, sent]),
        ("both.example", [sent, sent, sent]),
        ("kept.example", [blocked, blocked, blocked]),
        ("alias.example", [blocked, blocked, blocked]),
        ("mapped.example", [blocked, blocked, blocked]),
    ] {
        for outcome in outcomes {
            assert_eq!(sender.send(request(&receiver.url_of(host))).await, outcome, "{host}");
        }
    }
    assert_eq!(trap.connections(), 0);
    let failure = sender.send(request("http://missing.example/")).await;
    assert_eq!(failure.unwrap_err().to_string(), "dns");
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let target = Receiver::start(Behaviour::Answer(OK.into())).await;
    for status in [301, 302, 303, 307, 308] {
        let redirect = format!("HTTP/1.1 {status} Moved\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", target.url());
        assert_eq!(outcome(Behaviour::Answer(redirect)).await, Err(SendFailure::Status(status)));
    }
    assert_eq!(target.connections(), 0);
}

/// The environment of a process can't be changed safely while it has threads, so this test starts itself again in a
/// process whose environment has a proxy.
#[tokio::test]
async fn a_proxy_in_the_environment_is_not_used() {
    const RECEIVER: &str = "TEST_RECEIVER_URL";
    const HERE: &str = concat!(module_path!(), "::a_proxy_in_the_environment_is_not_used");
    if let Ok(url) = std::env::var(RECEIVER) {
        assert_eq!(sender(settings()).send(request(&url)).await, Ok(200));
        // It does not speak TLS and waits for a request in vain; a proxy would do the same.
        let mut settings = settings();
        settings.timeout = Duration::from_secs(1);
        let over_tls = url.replacen("http:", "https:", 1);
        assert_eq!(sender(settings).send(request(&over_tls)).await, Err(SendFailure::TimedOut));
        return;
    }

    let receiver = Receiver::start(Behaviour::Answer(OK.into())).await;
    let proxy = Receiver::start(Behaviour::Answer(OK.into())).await;
    let (_, this_test) = HERE.split_once("::").unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([this_test, "--exact"]).env(RECEIVER, receiver.url());
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        again.env(name, format!("http://{}", proxy.address));
    }
    again.env_remove("NO_PROXY").env_remove("no_proxy");
    let ran = tokio::task::spawn_blocking(move || again.output()).await;
    let ran = ran.unwrap().unwrap();

    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    // The sender has abandoned the second connection, whether it was accepted by then or not.
    eventually("both connections", SOON, async || (receiver.connections() >= 2).then_some(())).await;
    assert_eq!((receiver.connections(), proxy.connections()), (2, 0));
}
