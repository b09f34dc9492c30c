//! `onrecord query`: compliance queries over runs, frames and payload records, each for a stated purpose.

mod saved;
mod shape;
mod wrong;

use super::runs::encode;
use super::terminal::{Screen, show_bytes, table, tell};
use crate::client::{Client, ClientError};
use anyhow::{Context as _, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

/// Rows of a page at most.
const PAGE: u32 = 500;
/// Header that says of a file of counts whether there are more groups.
const CUT_OFF: &str = "onrecord-cut-off";

/// Arguments of `onrecord query`.
#[derive(Clone, Debug, clap::Args)]
pub struct QueryArgs {
    #[command(subcommand)]
    command: QueryCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum QueryCommand {
    /// Query runs
    Runs(AskArgs),
    /// Query the frames of all runs
    Frames(AskArgs),
    /// Query what is recorded about payloads of all runs, without what they say
    PayloadRecords(AskArgs),
    /// Keep a filter under a name, in place of what was kept there
    Save(saved::SaveArgs),
    /// List the filters that are kept
    Saved {
        /// Print one a line, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a filter that is kept
    Forget {
        /// Its name
        name: String,
    },
    /// List the queries that were asked, the last first
    Log(saved::LogArgs),
}

/// What is asked, and how it is answered.
#[derive(Clone, Debug, clap::Args)]
pub struct AskArgs {
    /// Only what this is true of, such as 'model = "x" and gate.verdict = fail' (docs/queries.md)
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// The filter that is kept under this name
    #[arg(long, value_name = "NAME", conflicts_with = "filter")]
    saved: Option<String>,
    /// Why, as a code such as a ticket's number; stands on the ledger, with who asks
    #[arg(long, value_name = "CODE")]
    purpose: String,
    /// How it is answered: a table, or as data; ndjson, csv and parquet have all that there is
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Count instead of listing
    #[arg(long)]
    count: bool,
    /// Count by these, such as day,gate.verdict
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    by: Vec<String>,
    /// At most so many rows of a table, or of json [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// File to write; it is there when it is whole [default: standard output]
    #[arg(short, long, visible_alias = "out", value_name = "FILE")]
    output: Option<PathBuf>,
}

impl AskArgs {
    /// Whether the format is something for where it goes.
    fn check(&self) -> anyhow::Result<()> {
        let is_shown = self.file().is_none() && std::io::stdout().is_terminal();
        if self.format == Format::Parquet && is_shown {
            bail!("parquet is nothing for a terminal: name a file with --output");
        }
        Ok(())
    }

    /// The file to write; none for standard output.
    fn file(&self) -> Option<&Path> {
        let output = self.output.as_deref();
        output.filter(|file| file.as_os_str() != "-")
    }
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One JSON object
    Json,
    /// A JSON object a line
    Ndjson,
    /// For spreadsheets
    Csv,
    /// For analysis
    Parquet,
}

impl Format {
    /// The name of a file of all that there is.
    fn file(self) -> Option<&'static str> {
        match self {
            Self::Table | Self::Json => None,
            Self::Ndjson => Some("ndjson"),
            Self::Csv => Some("csv"),
            Self::Parquet => Some("parquet"),
        }
    }
}

/// Runs the command.
pub async fn run(args: QueryArgs, client: Client) -> anyhow::Result<()> {
    match args.command {
        QueryCommand::Runs(args) => ask("runs", args, &client).await,
        QueryCommand::Frames(args) => ask("frames", args, &client).await,
        QueryCommand::PayloadRecords(args) => ask("payload-records", args, &client).await,
        QueryCommand::Save(args) => saved::save(args, &client).await,
        QueryCommand::Saved { json } => saved::list(&client, json).await,
        QueryCommand::Forget { name } => saved::forget(&client, &name).await,
        QueryCommand::Log(args) => saved::log(args, &client).await,
    }
}

async fn ask(resource: &'static str, args: AskArgs, client: &Client) -> anyhow::Result<()> {
    let filter = args.filter.clone().unwrap_or_default();
    let asked = if args.count || !args.by.is_empty() {
        count(resource, args, client).await
    } else if args.format.file().is_some() {
        file(resource, args, client).await
    } else {
        list(resource, args, client).await
    };
    asked.map_err(|error| wrong::with_caret(error, &filter))
}

/// What stands in the address of each request.
fn parameters(args: &AskArgs) -> Vec<(&'static str, String)> {
    let mut query = vec![("purpose", args.purpose.clone())];
    query.extend(args.filter.clone().map(|filter| ("filter", filter)));
    query.extend(args.saved.clone().map(|saved| ("saved", saved)));
    query
}

/// All that there is, as a file.
async fn file(resource: &str, args: AskArgs, client: &Client) -> anyhow::Result<()> {
    if args.limit.is_some() {
        bail!("--limit is for a table and for json: a file has all that the filter is true of");
    }
    let mut query = parameters(&args);
    query.extend(args.format.file().map(|name| ("format", name.to_owned())));
    let path = format!("/v1/{resource}?{}", encode(&query)?);
    stream(client, &path, &args).await
}

/// What the server answers as it comes, into the file or to standard output.
async fn stream(client: &Client, path: &str, args: &AskArgs) -> anyhow::Result<()> {
    args.check()?;
    match args.file() {
        Some(file) => super::export::fetch(client, path, file).await,
        None => {
            client.print(path).await?;
            Ok(())
        }
    }
}

/// The first rows, as a table or as one JSON object.
async fn list(resource: &'static str, args: AskArgs, client: &Client) -> anyhow::Result<()> {
    let mut left = args.limit.unwrap_or(50);
    let mut writer = Rows::begin(resource, &args)?;
    let (mut cursor, mut more) = (None::<String>, true);
    while left > 0 && more {
        let mut query = parameters(&args);
        query.push(("limit", left.min(PAGE).to_string()));
        query.extend(cursor.take().map(|cursor| ("cursor", cursor)));
        let path = format!("/v1/{resource}?{}", encode(&query)?);
        let page: Value = client.read(&path).await?;
        let rows = shape::rows(&page, resource);
        let rows =
            rows.with_context(|| format!("the server's answer has no list of {resource}"))?;
        left = left.saturating_sub(u32::try_from(rows.len()).unwrap_or(u32::MAX));
        writer.add(rows);
        cursor = page["next"].as_str().map(str::to_owned);
        more = cursor.is_some();
    }
    writer.end()?;
    if more {
        tell(
            "there are more; --limit N shows more of them, and --format ndjson, csv or parquet all",
        );
    }
    Ok(())
}

/// Counts, as a table or as data.
async fn count(resource: &'static str, args: AskArgs, client: &Client) -> anyhow::Result<()> {
    if args.limit.is_some() {
        bail!("--limit is not for counts");
    }
    let mut query = parameters(&args);
    if !args.by.is_empty() {
        query.push(("by", args.by.join(",")));
    }
    let format = args.format.file();
    query.extend(format.map(|name| ("format", name.to_owned())));
    let path = format!("/v1/{resource}/counts?{}", encode(&query)?);
    let cut_off = if format.is_some() {
        args.check()?;
        let (bytes, cut_off) = client.read_with(&path, CUT_OFF).await?;
        written(&bytes, args.file())?;
        cut_off.as_deref() == Some("true")
    } else {
        let answer: Value = client.read(&path).await?;
        let text = if args.format == Format::Json {
            format!("{answer}\n")
        } else {
            counted(&answer, &args.by)?
        };
        written(text.as_bytes(), args.file())?;
        answer["cut_off"] == true
    };
    if cut_off {
        tell(
            "there are more groups than are told; a filter or a longer unit of time makes them fewer",
        );
    }
    Ok(())
}

/// Counts as a table.
fn counted(answer: &Value, by: &[String]) -> anyhow::Result<String> {
    let rows = shape::rows(answer, "counts");
    let rows = rows.context("the server's answer has no list of counts")?;
    let cells: Vec<_> = rows.iter().map(|row| shape::counts(row, by)).collect();
    Ok(table(Screen::stdout(), &shape::counted(by), &cells))
}

/// Rows on their way to whoever reads them.
struct Rows {
    resource: &'static str,
    file: Option<PathBuf>,
    /// Of a JSON object so far; nothing for a table.
    json: Option<String>,
    cells: Vec<Vec<String>>,
    screen: Screen,
}

impl Rows {
    fn begin(resource: &'static str, args: &AskArgs) -> anyhow::Result<Self> {
        let screen = Screen::stdout();
        Ok(Self {
            resource,
            file: args.file().map(Path::to_owned),
            json: (args.format == Format::Json).then(|| format!("{{{}:[", Value::from(resource))),
            cells: Vec::new(),
            screen: Screen {
                width: screen.width.filter(|_| args.file().is_none()),
                coloured: screen.coloured && args.file().is_none(),
            },
        })
    }

    fn add(&mut self, rows: &[Value]) {
        match &mut self.json {
            Some(json) => {
                for row in rows {
                    let separator = if json.ends_with('[') { "\n" } else { ",\n" };
                    let _ = write!(json, "{separator}{row}");
                }
            }
            None => {
                let cells = rows
                    .iter()
                    .map(|row| shape::cells(self.resource, self.screen, row));
                self.cells.extend(cells);
            }
        }
    }

    fn end(self) -> anyhow::Result<()> {
        if let Some(json) = self.json {
            return written(format!("{json}\n]}}\n").as_bytes(), self.file.as_deref());
        }
        if self.cells.is_empty() {
            tell(format_args!("no such {}", self.resource.replace('-', " ")));
            return Ok(());
        }
        let text = table(self.screen, shape::columns(self.resource), &self.cells);
        written(text.as_bytes(), self.file.as_deref())
    }
}

/// Shows what there is, or writes it into a file.
fn written(bytes: &[u8], file: Option<&Path>) -> anyhow::Result<()> {
    match file {
        None => show_bytes(bytes),
        Some(file) => std::fs::write(file, bytes).map_err(|source| {
            let path = file.to_owned();
            ClientError::File { path, source }.into()
        }),
    }
}
