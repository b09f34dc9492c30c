//! The frames, line by line (check 4), with what is checked as they pass: receipts, agents' signatures
//! and what the run means.

use crate::check::Check;
use crate::code::{Code, Stage, Status};
use crate::leaves::Leaves;
use crate::lines;
use crate::payloads::Ledger as PayloadLedger;
use crate::submitted::Agents;
use crate::tar::{Body, LineEnd, TarError};
use onrecord_core::chain::{Fault, Line, Links, Seen};
use onrecord_core::digest::Hash;
use onrecord_core::frame::Frame;
use onrecord_core::id::RunId;
use onrecord_core::invariants::Invariants;
use onrecord_core::limits::FRAME_BYTES;
use onrecord_core::receipt::Receipt;
use onrecord_core::statement::State;
use std::collections::BTreeMap;
use std::io::BufRead;

/// A run's frames, once they passed.
#[derive(Default)]
pub(crate) struct Frames {
    /// `None` before the first frame that could be read.
    pub chain: Option<Links>,
    /// Whether some line was not the next frame: nothing after it is known.
    pub broken: bool,
    pub leaves: Leaves,
    pub payloads: PayloadLedger,
    /// SHA-256 of the first line with its newline: the subject of the opening.
    first_line: Option<Hash>,
    /// SHA-256 of all lines with their newlines: the subject of the seal.
    pub file: Option<Hash>,
}

impl Frames {
    /// The run, as its frames say.
    pub fn run(&self) -> Option<&RunId> {
        self.chain.as_ref().map(Links::run)
    }

    /// Whether the first `size` frames are those of a signed state. `digest` is that of its subject,
    /// where it is `frames.ndjson`: it is compared at the sizes whose digest is known, and elsewhere
    /// head and root bind the same bytes.
    pub fn agree(&self, state: &State, digest: Option<&Hash>) -> Result<(), String> {
        let Some(chain) = self.chain.as_ref().filter(|_| !self.broken) else {
            return Ok(());
        };
        if state.run != *chain.run() {
            return Err(format!("it is of run {}", state.run));
        }
        if state.size > chain.size() {
            return Err(format!(
                "{} frames were stated, {} are here",
                state.size,
                chain.size()
            ));
        }
        let Some(last) = state.size.checked_sub(1) else {
            return Err("it is of no frames".into());
        };
        let leaves = (self.leaves.get(last), self.leaves.root_at(state.size));
        let (Some(head), Some(root)) = leaves else {
            // They could not be read back, which is said at the end.
            return Ok(());
        };
        if head != state.head {
            return Err(format!(
                "frame {last} is another one than was stated, {}",
                state.head
            ));
        }
        if root != state.root {
            return Err(format!(
                "the root of {} frames is not the one that was stated, {}",
                state.size, state.root
            ));
        }
        let file = if state.size == chain.size() {
            self.file
        } else if state.size == 1 {
            self.first_line
        } else {
            None
        };
        match (digest, file) {
            (Some(digest), Some(file)) if *digest != file => Err(format!(
                "the digest of its lines is {file}, stated was {digest}"
            )),
            _ => Ok(()),
        }
    }
}

/// Receipts of one run by place.
type Receipts<'a> = BTreeMap<u64, Vec<&'a Receipt>>;

struct Reader<'c, 't> {
    check: &'c mut Check<'t>,
    frames: Frames,
    seen: Seen,
    agents: Agents,
    meaning: Invariants,
    receipts: &'c [Receipt],
    /// Those of the run, once the run is known.
    due: Receipts<'c>,
}

/// Reads `frames.ndjson`. `sealed` is whether there is a seal, which always has a frame.
pub(crate) fn read<R: BufRead>(
    check: &mut Check<'_>,
    body: &mut Body<'_, R>,
    receipts: &[Receipt],
    sealed: bool,
) -> Result<Frames, TarError> {
    let mut reader = Reader {
        check,
        frames: Frames::default(),
        seen: Seen::default(),
        agents: Agents::of_run(),
        meaning: Invariants::new(),
        receipts,
        due: Receipts::new(),
    };
    match lines::read(body, |line, frame| reader.line(line, frame))? {
        LineEnd::Torn => reader.torn(),
        LineEnd::TooLong => reader.too_long(),
        LineEnd::Whole | LineEnd::None => {}
    }
    reader.frames.file = Some(body.digest());
    Ok(reader.finish(sealed))
}

impl<'c> Reader<'c, '_> {
    /// Whether the next line can be read after this one.
    fn line(&mut self, line: Line<'_>, frame: &Result<Frame<'_>, Fault>) -> bool {
        if line.bytes.len() > FRAME_BYTES {
            self.too_long();
            return false;
        }
        // Lines are frames from 0 on, and what is before this one has passed.
        let seq = self.frames.leaves.size();
        let fault = match frame {
            Ok(frame) => match self.extend(line, frame) {
                Ok(()) => {
                    self.passed(line, frame);
                    return true;
                }
                Err(fault) => fault,
            },
            Err(fault) => Fault {
                seq,
                ..fault.clone()
            },
        };
        self.check
            .push_at(Stage::Frames, fault.code.into(), fault.seq, fault.detail);
        self.frames.broken = true;
        false
    }

    fn extend(&mut self, line: Line<'_>, frame: &Frame<'_>) -> Result<(), Fault> {
        let chain = match &mut self.frames.chain {
            Some(chain) => chain,
            // Frame 0 says whose run it is; whether that is the seal's is asked afterwards.
            none => {
                self.frames.first_line = Some(Hash::of(&[line.bytes, b"\n"]));
                let of_run = |receipt: &&Receipt| receipt.run == frame.run;
                for receipt in self.receipts.iter().filter(of_run) {
                    self.due.entry(receipt.seq).or_default().push(receipt);
                }
                none.insert(Links::new(frame.tenant.clone(), frame.run.clone()))
            }
        };
        chain.extend(frame, line, Some(&mut self.seen))?;
        self.frames.leaves.push(line.hash, chain.tree());
        Ok(())
    }

    /// A frame that stands where it may.
    fn passed(&mut self, line: Line<'_>, frame: &Frame<'_>) {
        let Line { bytes, hash } = line;
        let first = self.frames.leaves.first();
        self.agents.read(self.check, frame, bytes, first.as_ref());
        self.meaning.read(frame);
        self.frames.payloads.declare(frame);
        for receipt in self.due.remove(&frame.seq).unwrap_or_default() {
            if receipt.hash != hash || receipt.at != frame.at {
                self.check.push_at(
                    Stage::Receipts,
                    Code::Receipt,
                    frame.seq,
                    format!(
                        "the receipt is for {} at {}, the frame is {hash} at {}",
                        receipt.hash, receipt.at, frame.at
                    ),
                );
            }
        }
    }

    fn torn(&mut self) {
        self.check.push(
            Stage::Frames,
            Code::FramesTorn,
            "the last line of frames.ndjson does not end in a newline",
        );
        self.frames.broken = true;
    }

    fn too_long(&mut self) {
        let seq = self.frames.leaves.size();
        self.check.push_at(
            Stage::Frames,
            Code::FrameJson,
            seq,
            format!("a frame has at most {FRAME_BYTES} bytes"),
        );
        self.frames.broken = true;
    }

    fn finish(mut self, sealed: bool) -> Frames {
        let check = self.check;
        if self.frames.leaves.size() == 0 && !self.frames.broken {
            let status = if sealed {
                Status::Altered
            } else {
                Status::Incomplete
            };
            check.findings.push_as(
                status,
                Stage::Frames,
                Code::NoFrames,
                None,
                "frames.ndjson is empty",
            );
        }
        if !self.frames.broken {
            for (seq, _) in self.due {
                check.push_at(
                    Stage::Receipts,
                    Code::Receipt,
                    seq,
                    "a receipt was given for this frame, and it is not here",
                );
            }
        } else if !self.due.is_empty() {
            check.skip("receipts of frames after the one that is broken");
        }
        if !self.receipts.is_empty() {
            let run = self.frames.run();
            let others = self
                .receipts
                .iter()
                .filter(|one| Some(&one.run) != run)
                .count();
            check.receipts += self.receipts.len() - others;
            if others > 0 {
                check.skip(format!("{others} receipts of other runs"));
            }
        }
        self.agents.finish(check);
        check.meaning = self.meaning.finish();
        if let Some(chain) = &self.frames.chain {
            let facts = &mut check.facts;
            facts.tenant = Some(chain.tenant().to_string());
            facts.run = Some(chain.run().to_string());
            facts.size = Some(chain.size());
            facts.head = Some(chain.head());
            facts.root = Some(chain.root());
            if let Some(opened) = chain.opened() {
                facts.run_no = Some(opened.run_no);
                facts.opened_at = Some(opened.at);
                facts
                    .ledger_origin
                    .get_or_insert_with(|| opened.ledger.to_string());
            }
        }
        self.frames.payloads.sort();
        self.frames
    }
}
