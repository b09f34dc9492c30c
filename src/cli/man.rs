//! `onrecord man`: manual pages, from the same declaration as `--help`.

use super::Cli;
use super::terminal::{show, tell};
use anyhow::{Context as _, bail};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use std::path::{Path, PathBuf};

/// Arguments of `onrecord man`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// The command, such as `runs` or `token create` [default: the page of all]
    pub command: Vec<String>,
    /// Write all pages into this folder instead: onrecord.1, onrecord-runs.1 …
    #[arg(long, value_name = "DIR", conflicts_with = "command", value_hint = clap::ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &ManArgs) -> anyhow::Result<()> {
    // Without a command `help` that would have a page for each page.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    if let Some(dir) = &args.dir {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        write(&command, dir).with_context(|| format!("cannot write into {}", dir.display()))?;
        tell(format_args!(
            "wrote the pages into {}; `man -M` takes a folder with them in man1/",
            dir.display()
        ));
        return Ok(());
    }
    let mut page = &command;
    for name in args
        .command
        .iter()
        .flat_map(|words| words.split_whitespace())
    {
        let Some(next) = page.find_subcommand(name) else {
            let known: Vec<&str> = page.get_subcommands().map(Command::get_name).collect();
            bail!(
                "`{}` has no command {name:?}; it has: {}",
                page.get_bin_name().unwrap_or("onrecord"),
                known.join(", ")
            );
        };
        page = next;
    }
    let mut text = Vec::new();
    of(page).render(&mut text)?;
    show(&String::from_utf8_lossy(&text))
}

fn of(command: &Command) -> Man {
    Man::new(command.clone())
        .source(concat!("onrecord ", env!("CARGO_PKG_VERSION")))
        .manual("onrecord")
}

/// Writes the page of a command and of all below it.
fn write(command: &Command, dir: &Path) -> std::io::Result<()> {
    of(command).generate_to(dir)?;
    command
        .get_subcommands()
        .try_for_each(|command| write(command, dir))
}
