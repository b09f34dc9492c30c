//! What the demo shows: aligned lines that fit 80 columns, coloured for people only.

use onrecord_verify::escape;
use std::io::IsTerminal as _;

/// Columns of the frame's numbers, and of its kinds.
const SEQ: usize = 7;
const KINDS: usize = 24;
/// Where what happened begins: two spaces before each column, and one more after the kinds.
const TEXT: usize = 2 + SEQ + 2 + KINDS + 2;
/// Columns of a terminal, and of the names of facts.
const WIDTH: usize = 80;
const NAME: usize = 14;

/// How a piece of text looks in a terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ink {
    /// As it is.
    Plain,
    /// A heading.
    Bold,
    /// Beside the point.
    Dim,
    /// As it should be.
    Green,
    /// Not as it should be.
    Red,
    /// Something to type.
    Cyan,
}

/// Standard output.
pub(super) struct Screen {
    coloured: bool,
}

impl Screen {
    /// Coloured where a person looks at it who did not ask for no colours.
    pub fn new() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "whether the terminal has colours, and whether its user wants them, is the environment's to say"
        )]
        let (plain, terminal) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
        let wanted = plain.is_none_or(|value| value.is_empty());
        let able = terminal.is_some_and(|value| value != "dumb");
        Self {
            coloured: wanted && able && std::io::stdout().is_terminal(),
        }
    }

    /// Text in an ink.
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            _ if !self.coloured => return text.to_owned(),
            Ink::Plain => return text.to_owned(),
            Ink::Bold => 1,
            Ink::Dim => 2,
            Ink::Green => 32,
            Ink::Red => 31,
            Ink::Cyan => 36,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A line as it is.
    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        crate::cli::print(&format!("{text}\n"))
    }

    /// An empty line and a heading, with what there is to say beside it.
    pub fn heading(&self, title: &str, aside: &str) -> anyhow::Result<()> {
        let title = self.paint(Ink::Bold, title);
        let aside = self.paint(Ink::Dim, aside);
        self.line(&format!("\n{title}  {aside}"))
    }

    /// The head of the columns of [`Self::frames`].
    pub fn columns(&self) -> anyhow::Result<()> {
        let head = format!("  {:>SEQ$}  {:<KINDS$}  what happened", "frame", "kind");
        self.line(&self.paint(Ink::Dim, &head))
    }

    /// What was recorded: the frames' numbers, their kinds, and what happened.
    pub fn frames(&self, seqs: &[u64], kinds: &str, ink: Ink, text: &str) -> anyhow::Result<()> {
        let number = match seqs {
            [] => "-".to_owned(),
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
        };
        let number = self.paint(Ink::Dim, &format!("{number:>SEQ$}"));
        let text = self.paint(ink, &escape(text));
        self.line(&format!("  {number}  {kinds:<KINDS$}  {text}"))
    }

    /// A line below, about the same.
    pub fn more(&self, text: &str) -> anyhow::Result<()> {
        let text = self.paint(Ink::Dim, &escape(text));
        self.line(&format!("{:TEXT$}{text}", ""))
    }

    /// A name and what is to be said of it, on as many lines as it takes.
    pub fn fact(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.named(2, name, text)
    }

    /// The same, below a fact that it belongs to.
    pub fn detail(&self, name: &str, text: &str) -> anyhow::Result<()> {
        self.named(4, name, text)
    }

    fn named(&self, indent: usize, name: &str, text: &str) -> anyhow::Result<()> {
        let mut name = name;
        for line in wrap(&escape(text), WIDTH - indent - NAME) {
            self.line(&format!("{:indent$}{name:<NAME$}{line}", ""))?;
            name = "";
        }
        Ok(())
    }
}

/// Lines of at most `width` characters, broken between words; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_none_is_lost() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(
            wrap("one /a/long/path two", 5),
            ["one", "/a/long/path", "two"]
        );
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn nobody_who_reads_it_with_a_program_gets_colours() {
        let screen = Screen { coloured: false };
        assert_eq!(screen.paint(Ink::Red, "FAIL"), "FAIL");
        let screen = Screen { coloured: true };
        assert_eq!(screen.paint(Ink::Red, "FAIL"), "\u{1b}[31mFAIL\u{1b}[0m");
        assert_eq!(screen.paint(Ink::Plain, "FAIL"), "FAIL");
    }
}
