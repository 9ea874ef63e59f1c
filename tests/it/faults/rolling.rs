//! Two nodes behind a real nginx are restarted one after the other, as for a new release, and no client notices.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::load::Over;
use crate::support::cluster::cluster_blocking;
use crate::support::keyspaces::Keyspace;
use crate::support::process::{Process, Program};
use crate::support::server::ROOT_KEY;
use crate::support::until;
use crate::support::wire::Connection;

/// How often both are restarted.
const TIMES: usize = 3;
const CLIENTS: usize = 8;
/// A drain and a start each take less by far.
const AT_LAST: Duration = Duration::from_mins(1);
/// How long both serve between two restarts.
const PEACE: Duration = Duration::from_millis(500);

#[test]
#[cfg_attr(not(all(cql_engine, nginx)), ignore = "needs a CQL engine (Java 17 and Maven) and nginx")]
fn a_rolling_restart_behind_nginx_fails_no_request() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = cluster_blocking(3);
    let _turn = runtime.block_on(cluster.turn());
    let keyspace = Keyspace::shared();
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [balancer, first, second] = free_addresses();
    let addresses = [first, second];
    let start = |node: usize| {
        Program::under_load(directories[node].path())
            .sharing(&keyspace)
            .set("SIGNPOST_HTTP__LISTEN", &addresses[node].to_string())
            .serve()
    };
    let mut nodes: [Option<Process>; 2] = [Some(start(0)), Some(start(1))];
    let nginx = Nginx::before(addresses, balancer);
    let created = Connection::open(nginx.address).unwrap();
    let link = create(created);

    let (over, redirects, creations) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let over_at_last = Over(&over);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| scope.spawn(|| ask_all_the_time(nginx.address, &link, &over, &redirects, &creations)))
            .collect();
        for node in (0..TIMES).flat_map(|_| [0, 1]) {
            std::thread::sleep(PEACE);
            assert!(clients.iter().all(|client| !client.is_finished()), "a request failed");
            let ended = nodes[node].take().unwrap().terminate();
            assert_eq!(ended.code(), Some(0), "{ended:?}");
            nodes[node] = Some(start(node));
        }
        std::thread::sleep(PEACE);
        drop(over_at_last);
        for client in clients {
            client.join().unwrap();
        }
    });

    let (redirects, creations) = (redirects.into_inner(), creations.into_inner());
    eprintln!("{redirects} redirects and {creations} creations, none failed");
    assert!(redirects > 1_000 && creations > 10, "{redirects} and {creations}: too few to tell");
    let counted = || {
        let path = format!("/links/{link}/analytics/summary");
        let answer =
            nodes[0].as_ref().unwrap().connect().unwrap().get(&path, &[("X-API-Key", ROOT_KEY)]).unwrap().expect(200);
        answer.json()["total_hits"].as_u64().unwrap()
    };
    let began = Instant::now();
    while counted() < redirects {
        assert!(began.elapsed() < AT_LAST, "{} of {redirects} are counted", counted());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(counted(), redirects);
}

/// Redirects, and a creation now and then, over a connection that nginx keeps.
fn ask_all_the_time(nginx: SocketAddr, link: &str, over: &AtomicBool, redirects: &AtomicU64, creations: &AtomicU64) {
    let mut connection = Connection::open(nginx).unwrap();
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        connection.get(&format!("/{link}"), &[]).unwrap().expect(302);
        redirects.fetch_add(1, Ordering::Relaxed);
        if turn % 50 == 0 {
            connection.post("/shorten", ROOT_KEY, BODY).unwrap().expect(200);
            creations.fetch_add(1, Ordering::Relaxed);
        }
    }
}

const BODY: &str = r#"{"redirect_url":"https://example.com/"}"#;

fn create(mut connection: Connection) -> String {
    let answer = connection.post("/shorten", ROOT_KEY, BODY).unwrap().expect(200);
    answer.json()["short_id"].as_str().unwrap().to_owned()
}

/// Addresses that no other test uses, also while nobody listens there.
fn free_addresses() -> [SocketAddr; 3] {
    // None is let go of before all are there.
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.7.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

/// An nginx, configured as `docs/cluster.md` says. It ends when it is dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    _home: tempfile::TempDir,
}

impl Nginx {
    fn before(nodes: [SocketAddr; 2], address: SocketAddr) -> Self {
        let home = tempfile::tempdir().unwrap();
        let servers = documented()
            .replace("10.0.0.11:8080", &nodes[0].to_string())
            .replace("10.0.0.12:8080", &nodes[1].to_string())
            .replace("listen 80;", &format!("listen {address};"));
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {}/{kind};", home.path().display()))
            .concat();
        let configuration = format!(
            "daemon off; master_process off; pid nginx.pid; error_log stderr crit;
             events {{ worker_connections 256; }}
             http {{ access_log off; keepalive_requests 1000000; {temporary} {servers} }}"
        );
        std::fs::write(home.path().join("nginx.conf"), configuration).unwrap();
        let program = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let child = Command::new(program)
            .arg("-p")
            .arg(home.path())
            .args(["-e", "stderr", "-c", "nginx.conf"])
            .spawn()
            .unwrap();
        let nginx = Self { child, address, _home: home };
        until("nginx listens", AT_LAST, || Connection::open(address).is_ok());
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `docs/cluster.md` says to write into nginx's configuration.
fn documented() -> String {
    let document = include_str!("../../../docs/cluster.md");
    let block = document.split("```nginx\n").nth(1).unwrap().split("```").next().unwrap();
    block.to_owned()
}
