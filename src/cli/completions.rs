//! `onrecord completions SHELL`.

use super::Cli;
use clap::CommandFactory as _;
use clap_complete::Shell;

/// Arguments of `onrecord completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Runs the command.
pub fn run(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "onrecord", &mut text);
    super::print(&String::from_utf8_lossy(&text))
}
