//! The rows of queries as cells of columns.

use super::resource::Resource;
use super::search::Rows;
use super::table::{Cell, Column, ColumnType, Row};
use crate::record::read::RunSummary;
use crate::store::search::frames::FrameRow;
use crate::store::search::payloads::PayloadRow;
use onrecord_core::timestamp::Timestamp;

impl Resource {
    /// The columns of its rows.
    pub(crate) fn columns(self) -> &'static [Column] {
        match self {
            Self::Runs => RUN_COLUMNS,
            Self::Frames => FRAME_COLUMNS,
            Self::PayloadRecords => PAYLOAD_COLUMNS,
        }
    }

    /// What the rows of a page are called in JSON.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Frames => "frames",
            Self::PayloadRecords => "payload_records",
        }
    }
}

impl Rows {
    /// The rows as cells of the resource's columns.
    pub(crate) fn cells(&self) -> Vec<Row> {
        match self {
            Self::Runs(runs) => runs.iter().map(of_run).collect(),
            Self::Frames(frames) => frames.iter().map(of_frame).collect(),
            Self::PayloadRecords(payloads) => payloads.iter().map(of_payload).collect(),
        }
    }
}

const RUN_COLUMNS: &[Column] = &[
    column("run", ColumnType::Text),
    column("run_no", ColumnType::Number),
    column("agent", ColumnType::Text),
    column("status", ColumnType::Text),
    column("outcome", ColumnType::Text),
    column("opened_at", ColumnType::Time),
    column("last_at", ColumnType::Time),
    column("sealed_at", ColumnType::Time),
    column("size", ColumnType::Number),
    column("turns", ColumnType::Number),
    column("payloads", ColumnType::Number),
    column("erased", ColumnType::Number),
    column("bytes", ColumnType::Number),
    column("head", ColumnType::Text),
    column("root", ColumnType::Text),
    column("open_index", ColumnType::Number),
    column("seal_index", ColumnType::Number),
];

fn of_run(run: &RunSummary) -> Row {
    vec![
        Cell::Text(run.run.to_string()),
        Cell::Number(run.run_no),
        text(run.agent.as_deref()),
        Cell::Text(run.status().to_owned()),
        Cell::Text(run.outcome.unwrap_or("unknown").to_owned()),
        Cell::Time(run.opened_at),
        Cell::Time(run.last_at),
        run.sealed.map_or(Cell::Null, |(at, _)| Cell::Time(at)),
        Cell::Number(run.size),
        Cell::Number(run.turns),
        Cell::Number(run.payloads),
        Cell::Number(run.erased),
        Cell::Number(run.bytes),
        Cell::Text(run.head.hex()),
        Cell::Text(run.root.hex()),
        Cell::Number(run.open_index),
        number(run.sealed.map(|(_, index)| index)),
    ]
}

const FRAME_COLUMNS: &[Column] = &[
    column("run", ColumnType::Text),
    column("seq", ColumnType::Number),
    column("at", ColumnType::Time),
    column("kind", ColumnType::Text),
    column("name", ColumnType::Text),
    column("verdict", ColumnType::Text),
    column("turn", ColumnType::Number),
    column("answers", ColumnType::Number),
    column("key", ColumnType::Text),
    column("run_no", ColumnType::Number),
    column("agent", ColumnType::Text),
];

fn of_frame(frame: &FrameRow) -> Row {
    vec![
        Cell::Text(frame.key.run.to_string()),
        Cell::Number(frame.key.seq),
        Cell::Time(frame.key.at),
        Cell::Text(frame.kind.as_str().to_owned()),
        text(frame.name.as_deref()),
        text(frame.verdict.map(|verdict| verdict.as_str())),
        number(frame.turn),
        number(frame.answers),
        Cell::Text(frame.writer_key.clone()),
        Cell::Number(frame.run_no),
        text(frame.agent.as_deref()),
    ]
}

const PAYLOAD_COLUMNS: &[Column] = &[
    column("run", ColumnType::Text),
    column("seq", ColumnType::Number),
    column("place", ColumnType::Number),
    column("commit", ColumnType::Text),
    column("media", ColumnType::Text),
    column("tier", ColumnType::Number),
    column("size", ColumnType::Number),
    column("state", ColumnType::Text),
    column("ledger_index", ColumnType::Number),
    column("erased_at", ColumnType::Time),
    column("at", ColumnType::Time),
    column("kind", ColumnType::Text),
    column("run_no", ColumnType::Number),
    column("agent", ColumnType::Text),
];

fn of_payload(payload: &PayloadRow) -> Row {
    let time = |time: Option<Timestamp>| time.map_or(Cell::Null, Cell::Time);
    vec![
        Cell::Text(payload.key.run.to_string()),
        Cell::Number(payload.key.seq),
        Cell::Number(payload.key.place),
        Cell::Text(payload.commit.hex()),
        Cell::Text(payload.media.clone()),
        Cell::Number(payload.tier),
        Cell::Number(payload.size),
        Cell::Text(payload.state.clone()),
        number(payload.erased.map(|(index, _)| index)),
        time(payload.erased.map(|(_, at)| at)),
        time(payload.frame.map(|(at, _)| at)),
        text(payload.frame.map(|(_, kind)| kind.as_str())),
        Cell::Number(payload.run_no),
        text(payload.agent.as_deref()),
    ]
}

pub(super) const fn column(name: &'static str, kind: ColumnType) -> Column {
    Column { name, kind }
}

fn text(text: Option<&str>) -> Cell {
    text.map_or(Cell::Null, |text| Cell::Text(text.to_owned()))
}

fn number(number: Option<u64>) -> Cell {
    number.map_or(Cell::Null, Cell::Number)
}
