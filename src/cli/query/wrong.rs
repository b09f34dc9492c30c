//! A filter that is wrong, with a caret under the place.

use crate::client::ClientError;
use onrecord_verify::escape;
use unicode_width::UnicodeWidthStr as _;

/// Columns of a long filter that are shown before the place, and in all.
const BEFORE: usize = 60;
const SHOWN: usize = 100;

/// A filter that the server found wrong.
#[derive(Debug, thiserror::Error)]
#[error(
    "the filter is wrong: {detail}\n  {line}\n  {caret}\nhow one is written stands in docs/queries.md"
)]
struct WrongFilter {
    detail: String,
    line: String,
    caret: String,
}

/// The error as it is, or, where it says which character of the filter is wrong, with the filter.
pub(super) fn with_caret(error: anyhow::Error, filter: &str) -> anyhow::Error {
    let Some(ClientError::Problem(problem)) = error.downcast_ref() else {
        return error;
    };
    let Some(at) = problem.at.filter(|_| !filter.is_empty()) else {
        return error;
    };
    let detail = problem.detail.split_once(": ");
    let detail = detail.map_or(problem.detail.as_str(), |(_, detail)| detail);
    let (line, column) = excerpt(filter, at);
    WrongFilter {
        detail: detail.to_owned(),
        line,
        caret: format!("{}^", " ".repeat(column)),
    }
    .into()
}

/// The part of a filter around a character, from 1, and the column at which that is.
fn excerpt(filter: &str, at: usize) -> (String, usize) {
    let before = filter.chars().take(at.saturating_sub(1));
    // As a terminal shows it: nothing of it moves the cursor.
    let mut before = escape(&before.collect::<String>());
    let after = escape(
        &filter
            .chars()
            .skip(at.saturating_sub(1))
            .collect::<String>(),
    );
    if before.width() > BEFORE {
        let mut from = before.len();
        let mut width = 0;
        for (start, character) in before.char_indices().rev() {
            width += character.to_string().width();
            if width >= BEFORE {
                break;
            }
            from = start;
        }
        before = format!("…{}", &before[from..]);
    }
    let column = before.width();
    let room = SHOWN.saturating_sub(column);
    let after = super::super::terminal::shortened(&after, room);
    (format!("{before}{after}"), column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_under_the_character() {
        for (filter, at, line, column) in [
            ("status = closed", 10, "status = closed", 9),
            ("agent = \"記録\" x", 14, "agent = \"記録\" x", 15),
            ("", 1, "", 0),
            ("size >", 7, "size >", 6),
            ("a\n= 1", 3, "a\\u{a}= 1", 6),
        ] {
            assert_eq!(excerpt(filter, at), (line.to_owned(), column), "{filter:?}");
        }
    }

    #[test]
    fn of_a_long_filter_the_part_around_the_place_is_shown() {
        let filter = format!("{} wrong {}", "x".repeat(500), "y".repeat(500));
        let (line, column) = excerpt(&filter, 502);
        assert!(line.starts_with('…') && line.ends_with('…'), "{line}");
        assert!(line.width() <= SHOWN && column <= BEFORE);
        assert!(line[line.find("wrong").unwrap()..].starts_with("wrong yyy"));
        let before: usize = line[..line.find("wrong").unwrap()].width();
        assert_eq!(before, column);
    }
}
