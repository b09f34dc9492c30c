//! Logs of lines: every reader of such a format is given each line, and what they found is added up.

use std::io::{self, Read};

use super::lines::Lines;
use super::tally::Reading;
use super::{Format, Weight, cargo, go, pytest, tap, unittest};

/// A reader of one format.
pub(super) trait LogReader {
    /// Looks at the next line.
    fn line(&mut self, line: &str);

    /// What was found; nothing where the log has nothing of the format.
    fn finish(self: Box<Self>) -> Option<Reading>;
}

/// Reads a log. `only` names a format that it must have; nothing is answered where it has none.
///
/// # Errors
/// The bytes cannot be had.
pub(super) fn read(
    mut lines: Lines<impl Read>,
    only: Option<Format>,
) -> io::Result<Option<Reading>> {
    let mut readers: Vec<(Format, Box<dyn LogReader>)> = vec![
        (Format::GoJson, Box::<go::GoJson>::default()),
        (Format::GoTest, Box::<go::GoTest>::default()),
        (Format::Cargo, Box::<cargo::Cargo>::default()),
        (Format::Pytest, Box::<pytest::Pytest>::default()),
        (Format::Unittest, Box::<unittest::Unittest>::default()),
        (Format::Tap, Box::<tap::Tap>::default()),
    ];
    readers.retain(|(format, _)| only.is_none_or(|only| only == *format));
    while lines.next(|line| {
        for (_, reader) in &mut readers {
            reader.line(line);
        }
    })? {}
    let mut whole: Option<Reading> = None;
    for (_, reader) in readers {
        if let Some(found) = reader.finish() {
            match &mut whole {
                Some(whole) => whole.merge(found),
                None => whole = Some(found),
            }
        }
    }
    if let (None, Some(only)) = (&whole, only) {
        let mut reading = Reading::new(only);
        let text = format!("there is nothing of the format {} in it", only.as_str());
        reading.broken("no_summary", text);
        whole = Some(reading);
    }
    if let Some(whole) = &mut whole
        && lines.long > 0
    {
        let text = format!(
            "{} lines are longer than 1 MiB: their rest was not read",
            lines.long
        );
        whole.notice("long_lines", Weight::Told, text);
    }
    Ok(whole)
}
