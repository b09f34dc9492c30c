//! A run: its frames linked again by the rule that placed them, every column against the canonical bytes, its row against the
//! chain, and what the ledger says of it against all of these. Here it is read, page by page.

use super::chain::{Frames, NODE_LEVEL, Proofs, check_stated, columns, signed};
use super::facts::{self, Said};
use super::found::{At, Found};
use super::ledger::Ledger;
use super::nodes::Nodes;
use super::payloads::{self, Payloads};
use crate::store::StoreError;
use crate::store::audit::{FrameRow, PayloadRow, Reader};
use bytes::Bytes;
use onrecord_core::chain::{Chain, Fault};
use onrecord_core::facts::Facts;
use onrecord_core::frame::Frame;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::statement::{Predicate, Signed};
use onrecord_verify::Code;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes of frames that are looked at together.
const PAGE_BYTES: u64 = 8 << 20;
/// Frames of the first page, of which it is not known how long they are.
const FIRST_FRAMES: u64 = 256;
/// Frames of a page, however short they are.
const MOST_FRAMES: u64 = 16_384;
/// Frames that one thread reads at least, since starting one costs something.
const SHARE: usize = 64;

/// How much was read so far.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) frames: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A statement about the run.
pub(super) struct Entry {
    pub(super) index: i64,
    pub(super) bytes: Vec<u8>,
    pub(super) signed: Signed,
    pub(super) says: Predicate,
}

/// Reads a run as it is at one moment.
pub(super) async fn check(
    reader: &mut Reader,
    tenant: &str,
    run: &RunId,
    ledger: &Arc<Ledger>,
    meter: &Meter,
) -> Result<Found, StoreError> {
    let mut found = Found::new(tenant, Some(run.to_string()));
    let Some(row) = reader.run(run).await? else {
        found.missing(At::of("runs", "run"), "it was there a moment ago");
        return Ok(found);
    };
    let Ok(tenant_id) = tenant.parse::<TenantId>() else {
        found.rule(
            Code::Malformed,
            At::of("tenants", "tenant"),
            "it is no tenant's id",
        );
        return Ok(found);
    };
    let entries = entries_of(reader, tenant, run).await?;
    let size = u64::try_from(row.size).unwrap_or(0);
    let mut reading = Reading {
        state: Frames::new(tenant_id, run.clone(), ledger.clone(), &entries),
        payloads: Payloads::new(&entries_said(&entries), reader.erasing(run).await?),
        said: Said::default(),
        found,
    };
    let (mut from, mut count) = (0, FIRST_FRAMES);
    let mut page = Page::read(reader, run, (from, size.min(count))).await?;
    while from < size {
        let (to, bytes) = (size.min(from + count), page.bytes());
        count = (count * PAGE_BYTES / bytes.max(1)).clamp(SHARE as u64, MOST_FRAMES);
        let next = (to, size.min(to + count));
        // While one page is looked at, the next one comes.
        let looking = tokio::task::spawn_blocking(move || {
            reading.look(&page, (from, to));
            reading
        });
        let coming = Page::read(reader, run, next);
        let (looked, came) = tokio::join!(looking, coming);
        let Ok(looked) = looked else {
            return Err(StoreError::timed_out());
        };
        reading = looked;
        meter.frames.fetch_add(to - from, Ordering::Relaxed);
        meter.bytes.fetch_add(bytes, Ordering::Relaxed);
        page = came?;
        from = to;
    }
    let Reading {
        mut state,
        payloads: _,
        said,
        mut found,
    } = reading;
    for seq in reader.surplus_frames(run, size).await? {
        found.surplus(
            At::of("frames", "seq").seq(seq),
            "it stands behind the run's size",
        );
    }
    for row in reader.payloads(run, size, None).await? {
        payloads::surplus(&row, &mut found);
    }
    if !state.broken {
        let nodes = std::mem::take(&mut state.nodes);
        let kept = Nodes {
            table: "run_nodes",
            level: i16::from(NODE_LEVEL),
            // Runs of before there was the table have none.
            all: false,
        };
        kept.check(reader.run_nodes(run).await?, nodes, &mut found)
            .await?;
        let is_seal = |entry: &Entry| matches!(entry.says, Predicate::RunSeal(_));
        let of_run = (state.chain(), entries.iter().any(is_seal));
        said.check(of_run, &reader.facts(run).await?, &mut found);
    }
    check_stated(reader.stated(run).await?, &entries, &mut found);
    let proofs = Proofs {
        own: row.seal_proof.clone(),
        cosigned: reader.cosigned_proof(run).await?,
    };
    state.finish(&row, &proofs, &entries, &mut found);
    Ok(found)
}

async fn entries_of(
    reader: &mut Reader,
    tenant: &str,
    run: &RunId,
) -> Result<Vec<Entry>, StoreError> {
    let rows = reader.entries_of(tenant, run).await?;
    // What cannot be read, the ledger's own audit names.
    let read = |(index, _, bytes): (i64, String, Vec<u8>)| {
        let signed = Signed::parse(&bytes).ok()?;
        let says = signed.predicate().ok()??;
        Some(Entry {
            index,
            bytes,
            signed,
            says,
        })
    };
    Ok(rows.into_iter().filter_map(read).collect())
}

fn entries_said(entries: &[Entry]) -> Vec<(i64, &Predicate)> {
    entries
        .iter()
        .map(|entry| (entry.index, &entry.says))
        .collect()
}

/// Some places of a run and what lies in them.
struct Page {
    frames: Vec<Bytes>,
    payloads: Vec<PayloadRow>,
}

impl Page {
    async fn read(
        reader: &mut Reader,
        run: &RunId,
        (from, to): (u64, u64),
    ) -> Result<Self, StoreError> {
        let empty = from >= to && from > 0;
        if empty {
            return Ok(Self {
                frames: Vec::new(),
                payloads: Vec::new(),
            });
        }
        Ok(Self {
            frames: reader.frames(run, from, to).await?,
            payloads: reader.payloads(run, from, Some(to)).await?,
        })
    }

    fn bytes(&self) -> u64 {
        self.frames.iter().map(|row| row.len() as u64).sum()
    }
}

/// What goes from page to page.
struct Reading {
    state: Frames,
    payloads: Payloads,
    said: Said,
    found: Found,
}

impl Reading {
    fn look(&mut self, page: &Page, (from, to): (u64, u64)) {
        let rows: Vec<Read<'_>> = read_all(&page.frames);
        let mut payloads = page.payloads.iter().peekable();
        let mut expected = signed(from);
        for read in rows {
            let Ok(row) = read.row else {
                let at = At::of("frames", "bytes").seq(expected);
                self.found
                    .rule(Code::Malformed, at, "the row is not as the table has them");
                continue;
            };
            if row.seq < expected {
                let at = At::of("frames", "seq").seq(row.seq);
                self.found.surplus(at, "it stands in no place of the run");
                continue;
            }
            self.state.gap((expected, row.seq), &mut self.found);
            expected = row.seq + 1;
            let frame = match read.frame {
                Ok(frame) => frame,
                Err(fault) => {
                    self.state.broken = true;
                    // What it commits to cannot be told.
                    while payloads.next_if(|one| one.seq <= row.seq).is_some() {}
                    self.found.rule(
                        fault.code.into(),
                        At::of("frames", "bytes").seq(row.seq),
                        fault.detail,
                    );
                    continue;
                }
            };
            columns(&row, &frame, &mut self.found);
            self.said.look(&row, read.facts, &mut self.found);
            self.state.extend(&frame, &row, &mut self.found);
            self.payloads
                .look(&frame, row.seq, &mut payloads, &mut self.found);
        }
        self.state.gap((expected, signed(to)), &mut self.found);
        payloads.for_each(|row| payloads::surplus(row, &mut self.found));
    }
}

/// A row and the frame in it.
struct Read<'a> {
    row: Result<FrameRow<'a>, StoreError>,
    frame: Result<Frame<'a>, Fault>,
    facts: Facts,
}

/// Reads the frames of a page on all cores; each is read by itself.
fn read_all(rows: &[Bytes]) -> Vec<Read<'_>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let share = rows.len().div_ceil(cores).max(SHARE);
    let read = |row| {
        let row = FrameRow::read(row);
        let bytes = row.as_ref().map_or(&[][..], |row| row.bytes);
        let seq = row.as_ref().map_or(0, |row| row.seq);
        let frame = Chain::read(bytes, u64::try_from(seq).unwrap_or(0));
        Read {
            facts: frame.as_ref().map(facts::of).unwrap_or_default(),
            frame,
            row,
        }
    };
    if rows.len() <= share {
        return rows.iter().map(|row| read(row)).collect();
    }
    let read = &read;
    thread::scope(|scope| {
        let parts: Vec<_> = rows
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().map(|row| read(row)).collect::<Vec<_>>()))
            .collect();
        parts
            .into_iter()
            .flat_map(|part| part.join().unwrap_or_default())
            .collect()
    })
}
