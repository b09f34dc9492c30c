//! The report as a page: plain HTML that prints, without script, and with everything in it escaped.

use super::{LIMITS, remarks};
use crate::export::RunReport;
use onrecord_core::account::Calls;
use onrecord_core::coverage::State;
use onrecord_core::digest::Hash;
use onrecord_core::frame::Actor;
use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

const STYLE: &str = "
:root { color-scheme: light; font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; background: #fff }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1.5rem }
h1 { font-size: 1.5rem; margin: 0 0 .25rem }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 2px solid #1a1a1a; padding-bottom: .2rem }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem }
p, ul { margin: .4rem 0 }
.state { font-weight: 600 }
.aside { color: #555; font-size: .87rem }
table { border-collapse: collapse; width: 100%; font-size: .87rem }
th, td { text-align: left; vertical-align: top; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid #ddd }
td:nth-child(5) { overflow-wrap: anywhere }
thead th { border-bottom: 1px solid #1a1a1a }
tbody th { font-weight: 500; white-space: nowrap; padding-right: 1.5rem }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.code { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere }
.time { white-space: nowrap }
@media print {
  @page { margin: 18mm 15mm }
  :root { font-size: 10pt }
  body { max-width: none; margin: 0; padding: 0 }
  h2, h3 { break-after: avoid }
  tr { break-inside: avoid }
  thead { display: table-header-group }
}
";

/// The page.
pub(super) fn page(report: &RunReport) -> String {
    let mut out = String::new();
    let run = text(&report.run.run);
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Report of run {run}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Report of run <span class=\"code\">{run}</span></h1>\n\
         <p class=\"aside\">Made by onrecord at <span class=\"time\">{}</span> of what the store and its ledger have.</p>\n",
        text(&report.made_at)
    );
    identity(&mut out, report);
    completeness(&mut out, report);
    custody(&mut out, report);
    coverage(&mut out, report);
    out.push_str("<h2>What this does not show</h2>\n<ul>\n");
    for limit in LIMITS {
        let _ = writeln!(out, "<li>{}</li>", text(&limit));
    }
    out.push_str("</ul>\n</main>\n</body>\n</html>\n");
    out
}

fn coverage(out: &mut String, report: &RunReport) {
    out.push_str(
        "<h2>What a record of use should have</h2>\n<p class=\"aside\">In the style of Article 12 of Regulation (EU) \
         2024/1689; no legal advice.</p>\n<table>\n<thead><tr><th>Fact</th><th>State</th><th>First frame</th>\
         <th>Source</th><th>How it is recorded</th></tr></thead>\n<tbody>\n",
    );
    for (fact, state) in &report.coverage {
        let first = match state {
            State::Recorded { seq } => seq.to_string(),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td>{}</td><td class=\"number\">{first}</td><td>{}</td><td>{}</td></tr>",
            fact.as_str().replace('_', " "),
            state.as_str().replace('_', " "),
            text(&fact.source()),
            text(&fact.how()),
        );
    }
    out.push_str("</tbody>\n</table>\n");
}

fn identity(out: &mut String, report: &RunReport) {
    let run = &report.run;
    let mut rows = vec![
        ("Tenant", text(&run.tenant)),
        ("Number in the tenant", run.run_no.to_string()),
        (
            "Agent",
            run.agent
                .as_ref()
                .map_or_else(|| "not named".to_owned(), text),
        ),
        ("Ledger", code(&report.origin)),
        ("Opened", time(&run.opened_at)),
        ("Last frame", time(&run.last_at)),
    ];
    match (run.sealed, report.sealed_by) {
        (Some((at, index)), Some(key)) => {
            rows.push(("Sealed", time(&at)));
            rows.push((
                "Seal",
                format!("entry {index} of the ledger, signed by key {}", code(&key)),
            ));
        }
        _ => rows.push(("Sealed", "no".to_owned())),
    }
    rows.push(("Frames", run.size.to_string()));
    rows.push(("Last hash", code(&run.head)));
    rows.push(("Root", code(&run.root)));
    table(out, &rows);
}

fn completeness(out: &mut String, report: &RunReport) {
    let account = &report.account;
    let mut said = remarks(report).into_iter();
    let _ = writeln!(
        out,
        "<h2>Completeness</h2>\n<p class=\"state\">{}</p>",
        text(&said.next().unwrap_or_default())
    );
    out.push_str("<ul>\n");
    for remark in said {
        let _ = writeln!(out, "<li>{}</li>", text(&remark));
    }
    out.push_str("</ul>\n");
    let outcome = report.run.outcome.unwrap_or("unknown: no frame says it");
    let places = |gaps: &[(u64, u64)]| {
        let one = |(first, last): &(u64, u64)| match first == last {
            true => first.to_string(),
            false => format!("{first} to {last}"),
        };
        gaps.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let mut rows = vec![
        ("Outcome", text(&outcome)),
        (
            "Frames",
            format!("{} of {} are there", account.frames, report.run.size),
        ),
    ];
    if account.missing > 0 {
        rows.push(("Gaps", places(&account.gaps)));
    }
    let payloads = &report.payloads;
    rows.extend([
        (
            "Turns",
            format!(
                "{} opened, {} closed",
                account.turns.opened, account.turns.closed
            ),
        ),
        ("Tool calls", calls(&account.tool_calls)),
        ("Model calls", calls(&account.model_calls)),
        (
            "Payloads",
            format!(
                "{} in all: {} stored, {} kept by agents, {} erased, {} lost",
                payloads.count,
                payloads.stored,
                payloads.not_kept,
                payloads.erased,
                payloads.missing
            ),
        ),
        ("Redactions", account.redactions.to_string()),
        (
            "Agents' signatures",
            format!("{} frames signed, {} not", account.signed, account.unsigned),
        ),
    ]);
    table(out, &rows);
    out.push_str("<h3>Frames by kind</h3>\n<table>\n<thead><tr><th scope=\"col\">Kind</th><th scope=\"col\" class=\"number\">Frames</th></tr></thead>\n<tbody>\n");
    for (kind, count) in &account.kinds {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td class=\"number\">{count}</td></tr>",
            text(&kind.as_str())
        );
    }
    out.push_str("</tbody>\n</table>\n");
}

fn custody(out: &mut String, report: &RunReport) {
    out.push_str("<h2>Chain of custody</h2>\n<h3>Who recorded</h3>\n");
    header(out, &["Actor", "Signed with", "Frames", "First", "Last"]);
    for writer in &report.account.writers {
        let key = writer
            .actor
            .keyid
            .map_or_else(|| "not signed".to_owned(), |key| code(&key));
        let (first, last) = (time(&writer.first_at), time(&writer.last_at));
        row(
            out,
            &[
                actor(&writer.actor),
                key,
                writer.frames.to_string(),
                first,
                last,
            ],
        );
    }
    out.push_str("</tbody>\n</table>\n<h3>What the ledger says</h3>\n");
    header(
        out,
        &[
            "Entry",
            "When",
            "What",
            "Who",
            "Of what and why",
            "Signed by key",
        ],
    );
    let mut keys = BTreeSet::new();
    for event in &report.custody.events {
        let by = event
            .by
            .as_ref()
            .map_or_else(|| "the store".to_owned(), actor);
        keys.insert(event.keyid);
        row(
            out,
            &[
                event.index.to_string(),
                time(&event.at),
                text(&event.what.as_str()),
                by,
                text(&event.detail),
                short(&event.keyid),
            ],
        );
    }
    out.push_str("</tbody>\n</table>\n<h3>Keys that signed it</h3>\n<ul>\n");
    for key in keys {
        let _ = writeln!(out, "<li>{}</li>", code(&key));
    }
    out.push_str("</ul>\n");
    if let Some(heads) = &report.custody.heads {
        let _ = writeln!(
            out,
            "<p>Entries that say how far it was while it was open: {}. The last is entry {} at {}, {} frames.</p>",
            heads.count,
            heads.last_index,
            time(&heads.last_at),
            heads.last_size
        );
    }
    if !report.custody.unread.is_empty() {
        let indexes: Vec<String> = report.custody.unread.iter().map(u64::to_string).collect();
        let _ = writeln!(
            out,
            "<p>Entries that this version cannot read: {}.</p>",
            indexes.join(", ")
        );
    }
}

fn calls(calls: &Calls) -> String {
    let mut said = format!("{}, {} without an answer", calls.count, calls.unanswered);
    if !calls.frames.is_empty() {
        let frames: Vec<String> = calls.frames.iter().map(u64::to_string).collect();
        let more = if calls.unanswered > calls.frames.len() as u64 {
            " …"
        } else {
            ""
        };
        let _ = write!(said, ": frames {}{more}", frames.join(", "));
    }
    said
}

/// A table of names and values, which are HTML.
fn table(out: &mut String, rows: &[(&str, String)]) {
    out.push_str("<table>\n<tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{value}</td></tr>",
            text(name)
        );
    }
    out.push_str("</tbody>\n</table>\n");
}

fn header(out: &mut String, names: &[&str]) {
    out.push_str("<table>\n<thead><tr>");
    for name in names {
        let _ = write!(out, "<th scope=\"col\">{}</th>", text(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

/// A row of cells, which are HTML.
fn row(out: &mut String, cells: &[String]) {
    out.push_str("<tr>");
    for cell in cells {
        let _ = write!(out, "<td>{cell}</td>");
    }
    out.push_str("</tr>\n");
}

fn actor(actor: &Actor) -> String {
    format!("{} ({})", text(&actor.id), text(&actor.kind.as_str()))
}

fn code(value: &(impl Display + ?Sized)) -> String {
    format!("<span class=\"code\">{}</span>", text(value))
}

/// Enough of a key's id to find it in the list of keys.
fn short(key: &Hash) -> String {
    code(&format!("{}…", &key.hex()[..16]))
}

fn time(value: &impl Display) -> String {
    format!("<span class=\"time\">{}</span>", text(value))
}

/// Text of the evidence as HTML, with control characters and those that turn the writing around spelled out.
fn text(value: &(impl Display + ?Sized)) -> String {
    let mut out = String::new();
    for character in onrecord_verify::escape(&value.to_string()).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_page_is_markup() {
        assert_eq!(
            text("<script>\u{202e}\"&'\n"),
            "&lt;script&gt;\\u{202e}&quot;&amp;&#39;\\u{a}"
        );
    }
}
