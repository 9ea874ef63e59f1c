//! Memory of the real program where it has nothing to do.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::process::{Process, Program, resident_where};
use crate::support::server::ROOT_KEY;
use crate::support::{SOON, soon, until};

/// 64 MiB at rest are promised, of which the code of a release build has some 16. That of this build has more, so it is left out.
const MOST_BESIDES_CODE: u64 = 48 << 20;

/// Bytes in memory that are not of the program's file or its libraries.
fn besides_code(process: &Process) -> u64 {
    let program = env!("CARGO_BIN_EXE_signpost");
    let program = std::fs::canonicalize(program).unwrap();
    let is_code = |name: &str| name.contains(".so") || program.to_str() == Some(name);
    resident_where(&process.pid().to_string(), |name| !is_code(name))
}

#[test]
fn a_program_at_rest_takes_little_memory_at_its_start_and_after_a_load() {
    const AT_ONCE: usize = 100;
    const HITS: usize = 40_000;
    let directory = tempfile::tempdir().unwrap();
    let process = Program::at(directory.path())
        .set("SIGNPOST_ROOT_KEY", ROOT_KEY)
        .set("SIGNPOST_LIMITS__REDIRECT_PER_MINUTE", "1000000")
        .serve();
    // It makes what it has ahead while it is ready already.
    soon("the journal has its spare segment", || {
        std::fs::read_dir(directory.path().join("data/journal")).unwrap().count() >= 3
    });
    assert!(besides_code(&process) < MOST_BESIDES_CODE, "{}", besides_code(&process));

    let body = r#"{"redirect_url":"https://example.com/"}"#;
    let made = process.connect().unwrap().post("/shorten", ROOT_KEY, body).unwrap().expect(200).json();
    let agent = "a".repeat(800);
    let request =
        format!("GET /{} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n", made["short_id"].as_str().unwrap());
    let requests = request.repeat(AT_ONCE);
    let mut connection = TcpStream::connect(process.address).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 4096];
    let length = connection.read(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 302 ") && answer[..length].ends_with(b"\r\n\r\n"));
    let mut answers = vec![0; length * AT_ONCE];
    for _ in 0..HITS / AT_ONCE {
        connection.write_all(requests.as_bytes()).unwrap();
        connection.read_exact(&mut answers).unwrap();
    }
    assert!(answers.starts_with(b"HTTP/1.1 302 "));
    until("all is counted", 3 * SOON, || process.has_counted_all());
    until("memory is given back", SOON, || besides_code(&process) < MOST_BESIDES_CODE);
}
