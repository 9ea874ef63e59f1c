//! The two ways to share the machine between a server and what loads it.

use std::{ffi::OsStr, process::Command};

/// How processes are spread over the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The server with one worker and all of its threads on one core, the load generator on another: the figure of record,
    /// since neither can take time from the other.
    Pinned,
    /// The server as people run it, with as many workers as it takes by itself.
    Unpinned,
}

/// Whose core it is.
#[derive(Clone, Copy, Debug)]
pub enum Side {
    Server,
    Generator,
}

/// A command before another one, which ends with this program then, however that ends.
pub fn ends_with_this_program() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    command
}

impl Way {
    /// A command whose process and threads stay where they belong. It ends with this program, however that ends.
    pub fn command(self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = ends_with_this_program();
        if self.is_pinned() {
            command.args(["taskset", "--cpu-list", &(side as usize).to_string()]);
        }
        command.arg(program);
        command
    }

    pub fn is_pinned(self) -> bool {
        self == Self::Pinned
    }
}
