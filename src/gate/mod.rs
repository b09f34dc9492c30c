//! Reports of gates read: the bytes of a report in, counts and a verdict out (documentation:
//! `docs/gates.md`).
//!
//! A report is read once, from its beginning to its end, in constant memory. What cannot be relied on
//! (a cut file, totals that do not fit, no test at all) is said in a [`Notice`], and is never a pass.

mod cargo;
mod decode;
mod go;
mod junit;
mod lines;
mod log;
mod nunit;
mod pytest;
mod sarif;
mod tally;
mod tap;
mod trx;
mod unittest;
mod verdict;
mod xml;
mod xunit;

pub use decode::charset;
pub use sarif::Level;
pub use tally::{Case, Counts, Failure, Notice, Reading, Tool, Weight};
pub use verdict::{Ended, Outcome, Verdict, judge};

use std::io::{self, BufRead, BufReader, Read};

/// Name and version of the reading, in every verdict. It changes when the same report gives another
/// verdict or other counts than before, and with nothing else.
pub const READER: &str = "onrecord-gate/1";

/// Bytes at the beginning of a report in which its format is looked for.
const HEAD: usize = 64 * 1024;

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// JUnit's XML, as most tools write it.
    Junit,
    /// Results of Visual Studio and `dotnet test`.
    Trx,
    /// NUnit's XML, of version 2 or 3.
    Nunit,
    /// xUnit.net's XML, version 2.
    Xunit,
    /// Findings of static analysis.
    Sarif,
    /// What `go test -json` prints.
    GoJson,
    /// What `go test -v` prints.
    GoTest,
    /// What `cargo test` and `cargo nextest` print.
    Cargo,
    /// What pytest prints.
    Pytest,
    /// What Python's unittest prints.
    Unittest,
    /// The Test Anything Protocol.
    Tap,
    /// A log of which only an exit code speaks.
    Plain,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 12] = [
        Self::Junit,
        Self::Trx,
        Self::Nunit,
        Self::Xunit,
        Self::Sarif,
        Self::GoJson,
        Self::GoTest,
        Self::Cargo,
        Self::Pytest,
        Self::Unittest,
        Self::Tap,
        Self::Plain,
    ];

    /// The name on the command line and in evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Junit => "junit",
            Self::Trx => "trx",
            Self::Nunit => "nunit",
            Self::Xunit => "xunit",
            Self::Sarif => "sarif",
            Self::GoJson => "go-json",
            Self::GoTest => "go-test",
            Self::Cargo => "cargo",
            Self::Pytest => "pytest",
            Self::Unittest => "unittest",
            Self::Tap => "tap",
            Self::Plain => "plain",
        }
    }

    /// The media type of a report, where its own text says in which encoding it is.
    pub fn media(self) -> &'static str {
        match self {
            Self::Junit | Self::Trx | Self::Nunit | Self::Xunit => "application/xml",
            Self::Sarif => "application/sarif+json",
            _ => "text/plain; charset=utf-8",
        }
    }
}

/// How to read a report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The format, where it is not to be found out from the content.
    pub format: Option<Format>,
    /// From which level on a finding of static analysis is a failure.
    pub sarif_level: Level,
}

/// A report that was not read.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The bytes cannot be had.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// No format fits.
    #[error(
        "this is none of the formats that were tried ({}){}",
        tried(),
        but(root.as_deref(), *is_log)
    )]
    Unknown {
        /// The root element, where it is XML.
        root: Option<String>,
        /// Whether it may be a log of some other tool: it is neither empty nor XML.
        is_log: bool,
    },
}

fn tried() -> String {
    let names = Format::ALL.map(Format::as_str);
    names[..names.len() - 1].join(", ")
}

fn but(root: Option<&str>, is_log: bool) -> String {
    match root {
        Some(root) => format!("; its root element is <{root}>"),
        None if !is_log => "; it is empty, or cut off before it says anything".to_owned(),
        None => String::new(),
    }
}

/// Reads a report to its end.
///
/// What is wrong in the report is no error here: it is in the reading's notices.
///
/// # Errors
/// The bytes cannot be had, or are of no known format and none was named.
pub fn read(input: impl Read, options: Options) -> Result<Reading, GateError> {
    let mut input = BufReader::with_capacity(HEAD, input);
    let head = fill(&mut input)?;
    let kind = decode::Kind::of(&head);
    let input = io::Cursor::new(head).chain(input);
    let format = match options.format {
        Some(Format::Plain) => return Ok(Reading::plain()),
        Some(format) => Some(format),
        None if kind.start == Some('<') => match xml::root(&kind.text) {
            Some(root) => Some(of_root(&root).ok_or(GateError::Unknown {
                root: Some(root),
                is_log: false,
            })?),
            None => None,
        },
        None if kind.start == Some('{') && sarif::fits(&kind.text) => Some(Format::Sarif),
        None => None,
    };
    let xml = |input| xml::Xml::new(input, &kind);
    let reading = match format {
        Some(Format::Junit) => junit::read(xml(input))?,
        Some(Format::Trx) => trx::read(xml(input))?,
        Some(Format::Nunit) => nunit::read(xml(input))?,
        Some(Format::Xunit) => xunit::read(xml(input))?,
        Some(Format::Sarif) => sarif::read(decode::Utf8::new(input, &kind), options.sarif_level)?,
        other => match log::read(lines::Lines::new(input, &kind), other)? {
            Some(reading) => reading,
            None => {
                return Err(GateError::Unknown {
                    root: None,
                    is_log: !matches!(kind.start, None | Some('<')),
                });
            }
        },
    };
    Ok(reading)
}

/// The format that a root element names.
fn of_root(root: &str) -> Option<Format> {
    match root {
        "testsuites" | "testsuite" => Some(Format::Junit),
        "TestRun" => Some(Format::Trx),
        "test-run" | "test-results" => Some(Format::Nunit),
        "assemblies" | "assembly" => Some(Format::Xunit),
        _ => None,
    }
}

/// The first bytes, as many as there are up to [`HEAD`].
fn fill(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    input.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}
