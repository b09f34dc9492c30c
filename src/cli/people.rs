//! `onrecord people`: whom the pseudonyms in the ledger stand for.

use super::terminal::{Column, Screen, seconds, show, table, tell};
use crate::client::Client;
use anyhow::Context as _;
use clap::Subcommand;
use serde_json::Value;

/// Arguments of `onrecord people`.
#[derive(Clone, Debug, clap::Args)]
pub struct PeopleArgs {
    #[command(subcommand)]
    command: PeopleCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum PeopleCommand {
    /// List the people in the ledger with their pseudonyms
    List {
        /// Print one person a line, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show whom a pseudonym stands for
    Show {
        /// As it stands in the ledger
        pseudonym: String,
        /// Print the person as JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget whom a pseudonym stands for: from then on it leads nowhere
    Forget {
        /// As it stands in the ledger
        pseudonym: String,
    },
}

const COLUMNS: [Column; 3] = [
    Column::kept("PSEUDONYM"),
    Column {
        leave_out: 1,
        ..Column::kept("SINCE (UTC)")
    },
    Column::kept("PERSON"),
];

/// Runs the command.
pub async fn run(args: PeopleArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        PeopleCommand::List { json } => {
            let answer: Value = client.read("/v1/people").await?;
            let people = answer["people"].as_array();
            list(
                people.context("the server's answer has no list of people")?,
                json,
            )
        }
        PeopleCommand::Show { pseudonym, json } => {
            let person: Value = client.read(&format!("/v1/people/{pseudonym}")).await?;
            list(&[person], json)
        }
        PeopleCommand::Forget { pseudonym } => {
            client.delete(&format!("/v1/people/{pseudonym}")).await?;
            tell(format_args!("{pseudonym} leads nowhere any more"));
            Ok(())
        }
    }
}

fn list(people: &[Value], json: bool) -> anyhow::Result<()> {
    if json {
        let lines = people.iter().map(|person| format!("{person}\n"));
        return show(&lines.collect::<String>());
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows = people.iter().map(|person| {
        vec![
            text(&person["pseudonym"]),
            seconds(&person["since"]),
            text(&person["person"]),
        ]
    });
    show(&table(Screen::stdout(), &COLUMNS, &Vec::from_iter(rows)))
}
