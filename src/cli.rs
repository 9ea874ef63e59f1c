//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use uuid::Uuid;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "signpost", version, about = "A link shortening service.")]
pub struct Cli {
    /// Configuration file; default: ./signpost.toml, if it exists.
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// The command; without one, [`Command::Serve`].
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Serve requests until SIGTERM or SIGINT; the default.
    #[default]
    Serve,
    /// Check the configuration and print it, with secrets masked.
    CheckConfig,
    /// Migrate the store's schema to the current version.
    Migrate,
    /// Export everything except webhook deliveries to FILE.
    Export {
        /// Output file. An interrupted export resumes.
        file: PathBuf,
        /// Export a cluster although this node, whose data directory is lost, has not stopped in order. Of its last batch
        /// of hits some counts may be exported, and others not. May be given several times.
        #[arg(long = "lost-node", value_name = "ID")]
        lost_nodes: Vec<Uuid>,
    },
    /// Import FILE into the store, which must be empty. If a record is invalid, nothing is imported.
    Import {
        /// A file that an export has written.
        file: PathBuf,
    },
    /// Ask the server that runs with this configuration whether it is ready; for container engines. Exits with 1 if
    /// it is not.
    Healthcheck,
    /// Print the description of the API, as at /openapi.json.
    Openapi,
    /// Print what a hit with the user agent AGENT is taken for, and why.
    Bots {
        /// The value of a User-Agent header; may be empty.
        #[arg(allow_hyphen_values = true)]
        agent: String,
    },
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["signpost"], arguments].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn each_command_has_its_word_and_serving_needs_none() {
        for (arguments, expected) in [
            (&[][..], Command::Serve),
            (&["serve"], Command::Serve),
            (&["check-config"], Command::CheckConfig),
            (&["migrate"], Command::Migrate),
            (&["export", "a.jsonl"], Command::Export { file: "a.jsonl".into(), lost_nodes: Vec::new() }),
            (
                &["export", "--lost-node", "00000000-0000-0000-0000-000000000007", "a.jsonl"],
                Command::Export { file: "a.jsonl".into(), lost_nodes: vec![Uuid::from_u128(7)] },
            ),
            (&["import", "a.jsonl"], Command::Import { file: "a.jsonl".into() }),
            (&["healthcheck"], Command::Healthcheck),
            (&["openapi"], Command::Openapi),
            (&["bots", "curl/8.5.0"], Command::Bots { agent: "curl/8.5.0".into() }),
            (&["bots", ""], Command::Bots { agent: String::new() }),
            (&["bots", "-"], Command::Bots { agent: "-".into() }),
        ] {
            let cli = parse(arguments).expect("a valid command line");
            assert_eq!(cli.command.unwrap_or_default(), expected);
            assert_eq!(cli.config, None);
        }
    }

    #[test]
    fn the_file_may_be_named_before_or_after_the_command() {
        for arguments in
            [&["--config", "a.toml"][..], &["--config=a.toml", "serve"], &["check-config", "--config", "a.toml"]]
        {
            let cli = parse(arguments).expect("a valid command line");
            assert_eq!(cli.config.as_deref(), Some(Path::new("a.toml")));
        }
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        let error = parse(&["sevre"]).expect_err("no such command");
        assert!(error.to_string().contains("sevre"), "{error}");
        let error = parse(&["--cofnig", "a.toml"]).expect_err("no such option");
        assert!(error.to_string().contains("--cofnig"), "{error}");
    }

    #[test]
    fn help_and_version_are_answered() {
        let kind = |argument| parse(&[argument]).expect_err("ends the parse").kind();
        assert_eq!(kind("--help"), ErrorKind::DisplayHelp);
        assert_eq!(kind("--version"), ErrorKind::DisplayVersion);
    }
}
