//! Tables of queries: which columns each has, and the cells of a row.

use crate::cli::terminal::{Column, Screen, seconds};
use serde_json::Value;

/// The rows of an answer.
pub(super) fn rows<'a>(answer: &'a Value, name: &str) -> Option<&'a [Value]> {
    // The member is named as the resource is, or with an underscore for a hyphen.
    let found = answer.get(name);
    let found = found.or_else(|| answer.get(name.replace('-', "_")));
    Some(found?.as_array()?.as_slice())
}

const FRAMES: [Column; 7] = [
    Column {
        leave_out: 2,
        ..Column::kept("AT (UTC)")
    },
    Column::kept("RUN"),
    Column::kept("SEQ"),
    Column {
        leave_out: 1,
        ..Column::kept("KIND")
    },
    Column {
        least: Some(12),
        ..Column::kept("NAME")
    },
    Column {
        leave_out: 3,
        ..Column::kept("VERDICT")
    },
    Column {
        least: Some(8),
        leave_out: 4,
        ..Column::kept("AGENT")
    },
];

const PAYLOADS: [Column; 7] = [
    Column::kept("RUN"),
    Column::kept("SEQ"),
    Column {
        leave_out: 1,
        ..Column::kept("STATE")
    },
    Column {
        leave_out: 2,
        ..Column::kept("TIER")
    },
    Column {
        leave_out: 3,
        ..Column::kept("SIZE")
    },
    Column {
        least: Some(10),
        leave_out: 5,
        ..Column::kept("MEDIA")
    },
    Column {
        least: Some(12),
        leave_out: 4,
        ..Column::kept("COMMIT")
    },
];

/// The columns of a resource.
pub(super) fn columns(resource: &str) -> &'static [Column<'static>] {
    match resource {
        "runs" => &crate::cli::runs::COLUMNS,
        "frames" => &FRAMES,
        _ => &PAYLOADS,
    }
}

/// A row of a resource, a cell for each of its columns.
pub(super) fn cells(resource: &str, screen: Screen, row: &Value) -> Vec<String> {
    let of = |names: &[&str]| names.iter().map(|name| cell(&row[*name])).collect();
    match resource {
        "runs" => crate::cli::runs::row(screen, row),
        "frames" => {
            let mut at = seconds(&row["at"]);
            if screen.is_narrow() {
                // To the minute.
                at.truncate(16);
            }
            let mut cells = vec![at];
            let rest: Vec<String> = of(&["run", "seq", "kind", "name", "verdict", "agent"]);
            cells.extend(rest);
            cells
        }
        _ => of(&["run", "seq", "state", "tier", "size", "media", "commit"]),
    }
}

/// The columns of counts by some fields.
pub(super) fn counted(by: &[String]) -> Vec<Column<'_>> {
    let mut columns: Vec<Column<'_>> = by.iter().map(|name| Column::kept(name)).collect();
    columns.push(Column::kept("COUNT"));
    columns
}

/// The cells of a count.
pub(super) fn counts(row: &Value, by: &[String]) -> Vec<String> {
    let groups = by
        .iter()
        .map(|name| match (name.as_str(), cell(&row[name])) {
            (_, none) if none.is_empty() => "-".to_owned(),
            // As far as the unit goes.
            ("day" | "week" | "month", at) => at.get(..10).unwrap_or(&at).to_owned(),
            ("hour", at) => at.get(..16).unwrap_or(&at).replace('T', " "),
            (_, text) => text,
        });
    let mut cells: Vec<String> = groups.collect();
    cells.push(cell(&row["count"]));
    cells
}

/// A value for people; nothing where there is none.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_are_told_as_far_as_their_unit_goes() {
        let by = ["day", "hour", "gate", "verdict"].map(str::to_owned);
        let row = json!({"day": "2026-11-30T00:00:00.000000Z", "hour": "2026-11-30T08:00:00.000000Z", "gate": "unit", "count": 7});
        assert_eq!(
            counts(&row, &by),
            ["2026-11-30", "2026-11-30 08:00", "unit", "-", "7"]
        );
        assert_eq!(counts(&json!({"count": 7}), &[]), ["7"]);
    }
}
