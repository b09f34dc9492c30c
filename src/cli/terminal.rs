//! What people see: lines that fit the terminal, coloured on a terminal only, and tables.

use anstyle::{AnsiColor, Style};
use onrecord_verify::escape;
use std::fmt::{Display, Write as _};
use std::io::{IsTerminal as _, Write as _};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// What stands out little.
pub(super) const DIM: Style = Style::new().dimmed();
/// What stands out.
pub(super) const BOLD: Style = Style::new().bold();
/// What is as it should be.
pub(super) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What is not.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// What is not known, or wants to be looked at.
pub(super) const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();
/// What something is called.
pub(super) const NAME: Style = AnsiColor::Cyan.on_default();

/// Where lines are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    /// Columns; `None` where nobody looks, and nothing is cut.
    pub width: Option<usize>,
    /// Whether lines have colours.
    pub coloured: bool,
}

impl Screen {
    /// Whether there is no room for what is merely nice to know.
    pub(super) fn is_narrow(self) -> bool {
        self.width.is_some_and(|columns| columns < 110)
    }

    /// Standard output. `--color` and `NO_COLOR` have their say.
    pub(super) fn stdout() -> Self {
        let stdout = std::io::stdout();
        let width = stdout
            .is_terminal()
            .then(|| rustix::termios::tcgetwinsize(&stdout).ok())
            .flatten()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns > 20);
        let choice = anstream::AutoStream::choice(&stdout);
        Self {
            width,
            coloured: choice != anstream::ColorChoice::Never,
        }
    }
}

/// Standard output was closed: whoever read it has seen enough.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(super) struct Closed;

/// Writes to standard output for somebody who reads it, and nothing but that: where it is closed, the
/// command ends.
pub(super) fn show(text: &str) -> anyhow::Result<()> {
    show_bytes(text.as_bytes())
}

/// The same for what may be no text.
pub(super) fn show_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Closed.into()),
        other => Ok(other?),
    }
}

/// Says something beside the data, on standard error. Where that is closed, nobody wants to know.
pub(super) fn tell(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// One line, of pieces in their styles.
#[derive(Clone, Debug, Default)]
pub(super) struct Line(Vec<(Style, String)>);

impl Line {
    /// Adds a piece. Text from evidence cannot move the cursor or turn what follows around.
    pub(super) fn add(&mut self, style: Style, text: &str) -> &mut Self {
        self.0.push((style, escape(text)));
        self
    }

    /// Adds plain text.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.add(Style::new(), text)
    }

    /// Adds spaces up to a column, at least one.
    pub(super) fn column(&mut self, column: usize) -> &mut Self {
        let missing = column.saturating_sub(self.width()).max(1);
        self.text(&" ".repeat(missing))
    }

    fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    /// The line with its end; what is beyond the terminal is cut.
    pub(super) fn render(&self, screen: Screen) -> String {
        let cut = screen.width.filter(|width| self.width() > *width);
        let mut left = cut.map_or(usize::MAX, |width| width - 1);
        let mut out = String::new();
        for (style, text) in &self.0 {
            let text = beginning(text, left);
            left -= text.width();
            if screen.coloured && *style != Style::new() && !text.is_empty() {
                let _ = write!(out, "{style}{text}{style:#}");
            } else {
                out.push_str(text);
            }
        }
        if cut.is_some() {
            out.push('…');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
        out
    }
}

/// A column of a table.
pub(super) struct Column<'a> {
    /// What stands above it.
    pub head: &'a str,
    /// To how many columns of the terminal it may be cut where there is too little room; `None` for not at all.
    pub least: Option<usize>,
    /// When it is left out where cutting is not enough: the highest first, 0 for never.
    pub leave_out: u8,
}

impl<'a> Column<'a> {
    /// A column that is always there, whole.
    pub(super) const fn kept(head: &'a str) -> Self {
        Self {
            head,
            least: None,
            leave_out: 0,
        }
    }
}

/// Rows under a head, columns as wide as their widest cell where there is room.
pub(super) fn table(screen: Screen, columns: &[Column<'_>], rows: &[Vec<String>]) -> String {
    let cells: Vec<Vec<String>> =
        std::iter::once(columns.iter().map(|one| one.head.to_owned()).collect())
            .chain(
                rows.iter()
                    .map(|row| row.iter().map(|cell| escape(cell)).collect()),
            )
            .collect();
    let mut widths: Vec<Option<usize>> = (0..columns.len())
        .map(|column| cells.iter().map(|row| row[column].width()).max())
        .collect();
    if let Some(room) = screen.width {
        fit(&mut widths, columns, room);
    }
    let mut out = String::new();
    for (number, row) in cells.iter().enumerate() {
        let mut line = Line::default();
        let mut end = 0;
        for (cell, width) in row.iter().zip(&widths) {
            let Some(width) = *width else { continue };
            if end > 0 {
                line.column(end);
            }
            let style = if number == 0 { BOLD } else { Style::new() };
            line.add(style, &shortened(cell, width));
            end += width + GAP;
        }
        // Whatever did not fit by now is not to be cut.
        out.push_str(&line.render(Screen {
            width: None,
            ..screen
        }));
    }
    out
}

/// Columns between two cells.
const GAP: usize = 2;

/// Makes a table fit: leaves out columns where cutting is not enough, then cuts the widest first.
fn fit(widths: &mut [Option<usize>], columns: &[Column<'_>], room: usize) {
    let places = 0..columns.len();
    let excess = loop {
        let there = widths.iter().flatten();
        let total = there.clone().sum::<usize>() + GAP * there.count().saturating_sub(1);
        let excess = total.saturating_sub(room);
        let all_spare: usize = places
            .clone()
            .map(|place| spare(widths, columns, place))
            .sum();
        let next = places
            .clone()
            .filter(|place| widths[*place].is_some() && columns[*place].leave_out > 0)
            .max_by_key(|place| columns[*place].leave_out);
        match next {
            Some(next) if excess > all_spare => widths[next] = None,
            _ => break excess,
        }
    };
    for _ in 0..excess {
        let widest = places
            .clone()
            .filter(|place| spare(widths, columns, *place) > 0)
            .max_by_key(|place| widths[*place]);
        let Some(width) = widest.and_then(|place| widths[place].as_mut()) else {
            return;
        };
        *width -= 1;
    }
}

/// By how much a column may be cut.
fn spare(widths: &[Option<usize>], columns: &[Column<'_>], place: usize) -> usize {
    match (widths[place], columns[place].least) {
        (Some(width), Some(least)) => width.saturating_sub(least),
        _ => 0,
    }
}

/// A text of so many columns at most, with an ellipsis where it was longer.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    format!("{}…", beginning(text, width.saturating_sub(1)))
}

/// As much of a text as so many columns hold.
fn beginning(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    let end = text.char_indices().find(|(_, character)| {
        taken += character.width().unwrap_or(0);
        taken > columns
    });
    end.map_or(text, |(end, _)| &text[..end])
}

/// A time for people, to the second, in UTC.
pub(super) fn seconds(at: &serde_json::Value) -> String {
    at.as_str()
        .and_then(|at| at.get(..19))
        .unwrap_or_default()
        .replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column {
            head: "NO",
            least: None,
            leave_out: 1,
        },
        Column::kept("RUN"),
        Column {
            head: "SIZE",
            least: None,
            leave_out: 2,
        },
        Column {
            head: "AGENT",
            least: Some(6),
            leave_out: 0,
        },
    ];

    fn at(width: Option<usize>) -> String {
        let screen = Screen {
            width,
            coloured: false,
        };
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let rows = [
            row(["12", "01M8N005FD", "7", "a-long-name"]),
            row(["1", "01M8N00000", "12345", "b\u{1b}[2J"]),
        ];
        table(screen, &COLUMNS, &rows)
    }

    #[test]
    fn a_table_gives_up_what_matters_least() {
        let whole = "\
NO  RUN         SIZE   AGENT
12  01M8N005FD  7      a-long-name
1   01M8N00000  12345  b\\u{1b}[2J
";
        for wide in [None, Some(34), Some(200)] {
            assert_eq!(at(wide), whole);
        }
        let cut = "\
NO  RUN         SIZE   AGENT
12  01M8N005FD  7      a-lon…
1   01M8N00000  12345  b\\u{1…
";
        assert_eq!(at(Some(29)), cut);
        let without_size = "\
NO  RUN         AGENT
12  01M8N005FD  a-long-na…
1   01M8N00000  b\\u{1b}[2J
";
        assert_eq!(at(Some(26)), without_size);
        let least = "\
RUN         AGENT
01M8N005FD  a-lon…
01M8N00000  b\\u{1…
";
        // The run is never cut, however little room there is.
        assert_eq!(at(Some(18)), least);
        assert_eq!(at(Some(3)), least);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(shortened("記録する", 8), "記録する");
        assert_eq!(shortened("記録する", 7), "記録す…");
        assert_eq!(shortened("記録する", 6), "記録…");
        let mut line = Line::default();
        line.text("記録").column(6).text("x");
        let screen = Screen {
            width: Some(7),
            coloured: false,
        };
        assert_eq!(line.render(screen), "記録  x\n");
    }

    #[test]
    fn lines_are_cut_by_what_is_seen() {
        let mut line = Line::default();
        line.add(BAD, "FAIL")
            .text(" of a \u{202e}test")
            .add(DIM, " 12345");
        let plain = |width| {
            line.render(Screen {
                width,
                coloured: false,
            })
        };
        assert_eq!(plain(None), "FAIL of a \\u{202e}test 12345\n");
        assert_eq!(plain(Some(12)), "FAIL of a \\…\n");
        let coloured = line.render(Screen {
            width: Some(12),
            coloured: true,
        });
        assert_eq!(coloured, "\u{1b}[1m\u{1b}[31mFAIL\u{1b}[0m of a \\…\n");
    }
}
