//! nginx, as the one to compare with.

use std::{fs, path::Path};

use loadtests::{
    seed,
    server::{Server, free_address},
    way::{Side, Way},
};

/// What an nginx does for a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// `return 302` and nothing else.
    Constant,
    /// And its access log, buffered: the peer of record. `limit_req` would do nothing here: `return` ends a request before limits are looked at.
    Log,
    /// The same, with connections that are kept by the kernel until their first bytes are there.
    LogDeferred,
    /// The same, with room for many connections.
    LogManyConnections,
    /// And a limit for each client that is looked at.
    LimitAndLog,
}

impl Duty {
    pub fn name(self) -> &'static str {
        match self {
            Self::Constant => "nginx, constant",
            Self::Log => "nginx, log",
            Self::LogDeferred => "nginx, log, deferred",
            Self::LogManyConnections => "nginx, log, room for 16,384",
            Self::LimitAndLog => "nginx, limit and log",
        }
    }
}

/// Starts one with its files in `home`.
pub fn start(duty: Duty, way: Way, home: &Path) -> Server {
    fs::create_dir_all(home).unwrap();
    let address = free_address();
    fs::write(home.join("nginx.conf"), configuration(duty, way, &address.to_string())).unwrap();
    let mut command = way.command(Side::Server, "nginx");
    command.arg("-p").arg(home).args(["-c", "nginx.conf", "-e", "error.log"]);
    Server::start(duty.name(), command, address, None, home)
}

fn configuration(duty: Duty, way: Way, address: &str) -> String {
    let workers = if way.is_pinned() { "1" } else { "auto" };
    let log = match duty {
        Duty::Constant => "off",
        Duty::Log | Duty::LogDeferred | Duty::LogManyConnections | Duty::LimitAndLog => {
            "access.log combined buffer=64k flush=1s"
        }
    };
    let deferred = if duty == Duty::LogDeferred { " deferred" } else { "" };
    let connections = if duty == Duty::LogManyConnections { 16_384 } else { 4_096 };
    let redirect = format!("return 302 {};", seed::target(0));
    // A request is limited behind the phase in which `return` answers it. So the location refuses everybody, which comes
    // behind the limit, and answers that with the redirect: no file is touched, and nothing is logged of it.
    let locations = match duty {
        Duty::Constant | Duty::Log | Duty::LogDeferred | Duty::LogManyConnections => {
            format!("location / {{ {redirect} }}")
        }
        Duty::LimitAndLog => format!(
            "limit_req zone=clients burst=1000000 nodelay;
        location / {{ deny all; error_page 403 = @redirect; }}
        location @redirect {{ {redirect} }}"
        ),
    };
    format!(
        "worker_processes {workers};
daemon off;
pid nginx.pid;
error_log error.log crit;
events {{ worker_connections {connections}; }}
http {{
    access_log {log};
    keepalive_requests 1000000000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    set_real_ip_from 127.0.0.0/8;
    real_ip_header X-Forwarded-For;
    limit_req_zone $binary_remote_addr zone=clients:10m rate=1000000r/s;
    server {{
        listen {address}{deferred};
        {locations}
    }}
}}
"
    )
}
