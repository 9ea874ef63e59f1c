//! Memory of idle kept connections, each of which has had one redirect.

use std::{
    fmt::Write as _,
    io::{Read, Write as _},
    net::{SocketAddr, TcpStream},
};

use loadtests::{http, measure::Figures, program::HIGH_LIMIT, server::Server, way::Way};

use super::{
    Contest,
    nginx::{self, Duty},
    report::Report,
};

const CONNECTIONS: usize = 10_000;
/// What one may take, KiB.
const MOST_KIB: f64 = 2.0;

struct Idle {
    name: &'static str,
    before: f64,
    with: f64,
    after: f64,
}

impl Idle {
    fn kib_each(&self) -> f64 {
        (self.with - self.before) * 1024.0 / CONNECTIONS as f64
    }
}

pub fn measure(contest: &Contest, report: &mut Report) -> Result<(), String> {
    allow_descriptors();
    let way = Way::Pinned;
    let sample = contest.requests().hot().sample;
    let peer = nginx::start(Duty::LogManyConnections, way, &contest.home.directory("nginx-idle"));
    let own = contest.program.start("signpost", way, &contest.hot_links("idle"), &[HIGH_LIMIT]);
    let mut text = format!(
        "## Idle connections\n\nA server of its own, {CONNECTIONS} connections that each had one redirect and are kept. Resident \
         memory of all of a server's processes (`VmRSS`, in MiB) at rest after one redirect, with the connections, and when they are \
         closed; what the kernel has of them is not in it.\n\n\
         | | before | with | after | KiB a connection |\n|---|---|---|---|---|\n"
    );
    let mut each = Vec::new();
    for server in [&peer, &own] {
        let idle = of(server, &sample)?;
        let Idle { name, before, with, after } = idle;
        eprintln!("{name}: {before:.1}, {with:.1}, {after:.1} MiB");
        writeln!(text, "| {name} | {before:.1} | {with:.1} | {after:.1} | {:.2} |", idle.kib_each()).unwrap();
        each.push(idle.kib_each());
    }
    report.add(&(text + "\n"));
    report.at_most("Idle kept connections: KiB each", MOST_KIB, &Figures(vec![each[1]]));
    Ok(())
}

fn of(server: &Server, request: &str) -> Result<Idle, String> {
    // What is made at the first request is none of the connections'.
    drop(redirected(server.address, request)?);
    server.rest()?;
    let before = server.resident_mib("VmRSS");
    let connections = (0..CONNECTIONS).map(|_| redirected(server.address, request)).collect::<Result<Vec<_>, _>>()?;
    server.rest()?;
    let with = server.resident_mib("VmRSS");
    drop(connections);
    server.rest()?;
    Ok(Idle { name: server.name, before, with, after: server.resident_mib("VmRSS") })
}

/// A connection that has had its redirect.
fn redirected(address: SocketAddr, request: &str) -> Result<TcpStream, String> {
    let exchange = || -> std::io::Result<(TcpStream, u16)> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = [0; 4096];
        let mut length = 0;
        while http::lengths(&answer[..length]).is_none_or(|(head, body)| length < head + body) {
            match stream.read(&mut answer[length..])? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => length += read,
            }
        }
        Ok((stream, http::status(&answer)))
    };
    match exchange() {
        Ok((stream, 302)) => Ok(stream),
        Ok((_, status)) => Err(format!("a redirect was answered {status}")),
        Err(error) => Err(format!("an idle connection: {error}")),
    }
}

/// As many descriptors as this program may have, also for what it starts.
fn allow_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum });
}
