//! The report for people: plain text, with nothing in it that a terminal would obey.

use crate::report::{Line, LineState, Report, What};
use onrecord_core::digest::Hash;
use std::fmt::Write as _;

/// The report as text, ending in a newline.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_report(&mut out, report);
    out
}

/// Text from the evidence with control characters, and those that turn the writing around, spelled out.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
        } else {
            out.push(character);
        }
    }
    out
}

pub(crate) fn is_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn write_report(out: &mut String, report: &Report) -> std::fmt::Result {
    let verdict = &report.verdict;
    let word = verdict.status.as_str().to_uppercase();
    match verdict.first_bad_seq {
        _ if verdict.exit_code == 0 => writeln!(out, "{word}")?,
        Some(seq) => writeln!(
            out,
            "{word} ({}), frame {seq}: {}",
            verdict.code,
            escape(&verdict.detail)
        )?,
        None => writeln!(
            out,
            "{word} ({}): {}",
            verdict.code,
            escape(&verdict.detail)
        )?,
    }
    write_facts(out, report)?;
    writeln!(out)?;
    for (name, line) in [
        ("Integrity", &report.integrity),
        ("Signer", &report.signer_trust),
        ("Completeness", &report.completeness),
        ("Ledger", &report.ledger),
    ] {
        write_line(out, name, line)?;
    }
    if report.facts.what != What::Ledger {
        let one = &report.payloads;
        writeln!(
            out,
            "{:<14}{} in all: {} disclosed, {} withheld, {} erased, {} missing, {} not kept",
            "Payloads",
            one.count,
            one.disclosed,
            one.withheld,
            one.erased,
            one.missing,
            one.not_kept
        )?;
        for one in &report.presented {
            let (commit, seq) = (one.commit, one.seq);
            writeln!(
                out,
                "Presented     ok: {commit} is the payload of frame {seq}"
            )?;
        }
        write_meaning(out, report)?;
    }
    if !report.findings.is_empty() {
        writeln!(out, "\nFindings")?;
        for one in &report.findings {
            let frame = one
                .seq
                .map(|seq| format!("frame {seq}: "))
                .unwrap_or_default();
            writeln!(
                out,
                "  {} {}: {frame}{}",
                one.status.as_str(),
                one.code,
                escape(&one.cause)
            )?;
        }
        if report.more_findings > 0 {
            writeln!(out, "  and {} more like these", report.more_findings)?;
        }
    }
    if !report.not_checked.is_empty() {
        writeln!(out, "\nNot checked")?;
        for one in &report.not_checked {
            writeln!(out, "  {}", escape(one))?;
        }
    }
    writeln!(out, "\n{}", escape(&report.proves))
}

fn write_facts(out: &mut String, report: &Report) -> std::fmt::Result {
    let facts = &report.facts;
    let what = match facts.what {
        What::Run => "run bundle",
        What::Turn => "turn proof",
        What::Frame => "frame proof",
        What::Ledger => "ledger",
        What::Unknown => return Ok(()),
    };
    writeln!(out, "{:<14}{what}", "What")?;
    let mut fact = |name: &str, value: Option<String>| match value {
        Some(value) => writeln!(out, "{name:<14}{}", escape(&value)),
        None => Ok(()),
    };
    fact("Run", facts.run.clone())?;
    fact("Run number", facts.run_no.map(|number| number.to_string()))?;
    fact("Turn", facts.turn.map(|number| number.to_string()))?;
    fact("Frame", facts.seq.map(|seq| seq.to_string()))?;
    fact("Tenant", facts.tenant.clone())?;
    fact("Size", facts.size.map(|size| size.to_string()))?;
    fact("Head", facts.head.as_ref().map(Hash::hex))?;
    fact("Root", facts.root.as_ref().map(Hash::hex))?;
    fact("Opened at", facts.opened_at.map(|at| at.to_string()))?;
    fact("Sealed at", facts.sealed_at.map(|at| at.to_string()))?;
    fact("Stamped at", facts.stamped_at.map(|at| at.to_string()))?;
    fact("Ledger origin", facts.ledger_origin.clone())
}

fn write_line(out: &mut String, name: &str, line: &Line) -> std::fmt::Result {
    let state = match line.state {
        LineState::Ok => "ok",
        LineState::Failed => "FAILED",
        LineState::Incomplete => "INCOMPLETE",
        LineState::NotChecked => "not checked",
    };
    writeln!(out, "{name:<14}{state}: {}", escape(&line.text))
}

fn write_meaning(out: &mut String, report: &Report) -> std::fmt::Result {
    let meaning = &report.meaning;
    let count = meaning.warnings.len() as u64 + meaning.more;
    match count {
        0 => writeln!(out, "{:<14}no warnings", "Meaning")?,
        1 => writeln!(
            out,
            "{:<14}1 warning, which does not change the verdict",
            "Meaning"
        )?,
        count => writeln!(
            out,
            "{:<14}{count} warnings, which do not change the verdict",
            "Meaning"
        )?,
    }
    for warning in &meaning.warnings {
        writeln!(
            out,
            "  frame {}: {}: {}",
            warning.seq,
            warning.code.as_str(),
            escape(&warning.cause)
        )?;
    }
    if meaning.more > 0 {
        writeln!(out, "  and {} more", meaning.more)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_as_a_command() {
        assert_eq!(
            escape("a\u{1b}[31mb\u{9b}\n\u{202e}é"),
            "a\\u{1b}[31mb\\u{9b}\\u{a}\\u{202e}é"
        );
    }
}
