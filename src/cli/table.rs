//! A table that fits the terminal.

use std::io::IsTerminal as _;

/// Columns of the terminal; `None` where standard output is none, and nothing is cut.
fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    rustix::termios::tcgetwinsize(stdout)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 20)
}

/// Rows under a head, columns as wide as their widest cell; what is beyond the terminal is cut.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| onrecord_verify::escape(cell).to_string())
                .collect()
        })
        .collect();
    let columns: Vec<usize> = (0..head.len())
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .chain([head[column].chars().count()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&head).chain(&rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&columns)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        text.push_str(&fit(cells.join("  ").trim_end()));
        text.push('\n');
    }
    text
}

/// A time for people, to the second, in UTC.
pub(super) fn seconds(at: &serde_json::Value) -> String {
    at.as_str()
        .and_then(|at| at.get(..19))
        .unwrap_or_default()
        .replace('T', " ")
}

/// Whether there is room for wide columns.
pub(super) fn is_narrow() -> bool {
    width().is_some_and(|columns| columns < 110)
}

/// A line that fits the terminal.
pub(super) fn fit(line: &str) -> String {
    match width() {
        Some(width) if line.chars().count() > width => {
            line.chars().take(width - 1).chain(['…']).collect()
        }
        _ => line.to_owned(),
    }
}
