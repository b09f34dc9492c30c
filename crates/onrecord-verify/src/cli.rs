//! The command line of the verifier, for its own binary and for `onrecord verify`.

use crate::code::Code;
use crate::render::{is_unsafe, render};
use crate::report::Report;
use crate::{
    LedgerCopy, Options, Receipts, TRUST_BYTES, Trust, parse_presented, parse_receipts, verify,
};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// What `--help` prints.
pub const HELP: &str = "\
Checks onrecord evidence offline: a run bundle (.onrecord.tar), a proof of one turn or frame
(.turn-proof.json, .frame-proof.json) or a whole ledger (ledger.tar), told apart by content.

Usage: onrecord-verify [OPTIONS] FILE        (FILE - reads standard input)

  --trust FILE     whom you trust: pinned keys and what you ask of witnesses; without, it is
                   looked for as onrecord/trust.txt in your configuration folder
  --full           withheld payloads are a gap (exit code 2)
  --ledger FILE    your own copy of the ledger (ledger.tar), to find second seals and split views
  --receipts FILE  receipts that you kept, plain or signed (an answer of an append a line, or a signed
                   head), to find truncation
  --present FILE   payloads with their salts ({commit, salt, data} a line, data in base64), such as those
                   that an agent kept; may be given several times
  --json           the report as one line of JSON
  --help, --version

Exit codes: 0 verified; 1 altered; 2 incomplete: something needed is missing, or the signer is
not trusted; 3 the input cannot be checked, or wrong usage.
";
/// Bytes of a file of receipts.
const RECEIPTS_BYTES: usize = 256 << 20;
/// Bytes of a file of presented payloads.
const PRESENTED_BYTES: usize = 256 << 20;

/// Where the command line reads and writes; given by the caller, so that it can be tried.
pub struct Surroundings<'a> {
    /// The user's configuration folder, see [`config_dir`].
    pub config_dir: Option<PathBuf>,
    /// For FILE `-`.
    pub stdin: &'a mut dyn Read,
    /// For the report.
    pub stdout: &'a mut dyn Write,
    /// For what is wrong with the usage.
    pub stderr: &'a mut dyn Write,
}

/// The user's configuration folder: `$XDG_CONFIG_HOME`, else below `$HOME` where the system has it.
pub fn config_dir(xdg_config_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let below = if cfg!(target_os = "macos") {
        "Library/Application Support"
    } else {
        ".config"
    };
    // A relative path would be looked up where the command happens to run.
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(xdg_config_home).or_else(|| Some(absolute(home)?.join(below)))
}

/// Runs the command line on the arguments after the program's name; the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>, surroundings: Surroundings<'_>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let json = args
        .iter()
        .take_while(|arg| *arg != "--")
        .any(|arg| arg == "--json");
    let Surroundings {
        config_dir,
        stdin,
        stdout,
        stderr,
    } = surroundings;
    let report = match Arguments::parse(args) {
        Ok(Parsed::Print(text)) => return print(stdout, stderr, &text, 0),
        Ok(Parsed::Verify(arguments)) => match arguments.options(config_dir.as_deref()) {
            Ok(options) => check(&arguments.file, stdin, &options),
            Err(detail) => Report::usage(detail),
        },
        Err(detail) => Report::usage(format!("{detail}; see --help")),
    };
    let code = report.verdict.exit_code;
    if json {
        return print(stdout, stderr, &to_json(&report), code);
    }
    if report.verdict.code == Code::Usage {
        let line = format!(
            "onrecord-verify: {}\n",
            crate::escape(&report.verdict.detail)
        );
        // Nobody is left to tell if this fails.
        let _ = stderr.write_all(line.as_bytes());
        return code;
    }
    print(stdout, stderr, &render(&report), code)
}

fn check(file: &Path, stdin: &mut dyn Read, options: &Options) -> Report {
    if file.as_os_str() == "-" {
        return verify(stdin, options);
    }
    match File::open(file) {
        Ok(input) => verify(input, options),
        Err(error) => Report::unusable(Code::Input, format!("{}: {error}", file.display())),
    }
}

fn print(stdout: &mut dyn Write, stderr: &mut dyn Write, text: &str, code: u8) -> u8 {
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => code,
        // Whoever reads has read enough; the verdict stands.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => {
            let _ = writeln!(
                stderr,
                "onrecord-verify: the report could not be written: {error}"
            );
            3
        }
    }
}

/// One line of JSON that is safe on a terminal too: JSON leaves some control characters as they are.
fn to_json(report: &Report) -> String {
    let text = serde_json::to_string(report).unwrap_or_default();
    let mut out = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out.push('\n');
    out
}

#[derive(Debug, Default)]
struct Arguments {
    trust: Option<PathBuf>,
    full: bool,
    ledger: Option<PathBuf>,
    receipts: Option<PathBuf>,
    presented: Vec<PathBuf>,
    file: PathBuf,
}

enum Parsed {
    Print(String),
    Verify(Arguments),
}

impl Arguments {
    fn parse(args: Vec<OsString>) -> Result<Parsed, String> {
        let mut parsed = Self::default();
        let mut file: Option<PathBuf> = None;
        let mut options = true;
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let text = if options {
                arg.to_str().unwrap_or_default()
            } else {
                ""
            };
            let (name, inline) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => {
                    (name, Some(OsString::from(value)))
                }
                _ => (text, None),
            };
            let slot = match name {
                "--trust" => Some(&mut parsed.trust),
                "--ledger" => Some(&mut parsed.ledger),
                "--receipts" => Some(&mut parsed.receipts),
                _ => None,
            };
            if name == "--present" {
                let value = inline.or_else(|| args.next());
                let value = value.ok_or_else(|| format!("{name} needs a FILE"))?;
                parsed.presented.push(value.into());
                continue;
            }
            if let Some(slot) = slot {
                let value = inline
                    .or_else(|| args.next())
                    .ok_or_else(|| format!("{name} needs a FILE"))?;
                if slot.replace(value.into()).is_some() {
                    return Err(format!("{name} stands twice"));
                }
                continue;
            }
            match text {
                "--help" | "-h" => return Ok(Parsed::Print(HELP.into())),
                "--version" | "-V" => {
                    return Ok(Parsed::Print(format!(
                        "onrecord-verify {}\n",
                        env!("CARGO_PKG_VERSION")
                    )));
                }
                "--full" => parsed.full = true,
                "--json" => {}
                "--" => options = false,
                other if other.starts_with('-') && other != "-" => {
                    return Err(format!("unknown option {other}"));
                }
                _ if file.is_some() => return Err("more than one FILE".into()),
                _ => file = Some(arg.into()),
            }
        }
        parsed.file = file.ok_or("FILE is missing")?;
        Ok(Parsed::Verify(parsed))
    }

    fn options(&self, config_dir: Option<&Path>) -> Result<Options, String> {
        let trust = self.trust(config_dir)?;
        let ledger = match &self.ledger {
            None => None,
            Some(path) => {
                let input =
                    File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
                Some(LedgerCopy::read(input, trust.as_ref()))
            }
        };
        let receipts = match &self.receipts {
            None => Receipts::default(),
            Some(path) => {
                let text = read_text(path, RECEIPTS_BYTES)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
                parse_receipts(&text).map_err(|error| format!("{}: {error}", path.display()))?
            }
        };
        let mut presented = Vec::new();
        for path in &self.presented {
            let text = read_text(path, PRESENTED_BYTES)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let of_file = parse_presented(&text);
            presented.extend(of_file.map_err(|error| format!("{}: {error}", path.display()))?);
        }
        Ok(Options {
            trust,
            full: self.full,
            ledger,
            receipts: receipts.plain,
            signed_receipts: receipts.signed,
            presented,
        })
    }

    /// The trust file that was named, or the user's own, or none.
    fn trust(&self, config_dir: Option<&Path>) -> Result<Option<Trust>, String> {
        let (path, named) = match (&self.trust, config_dir) {
            (Some(path), _) => (path.clone(), true),
            (None, Some(folder)) => (folder.join("onrecord").join("trust.txt"), false),
            (None, None) => return Ok(None),
        };
        match read_text(&path, TRUST_BYTES) {
            Ok(text) => Trust::parse(&text)
                .map(Some)
                .map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound && !named => Ok(None),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }
}

fn read_text(path: &Path, limit: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("more than {limit} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "not UTF-8"))
}
