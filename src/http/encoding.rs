//! Encoded bodies (RFC 9110, 8.4): gzip and zstd, decoded in steps of a bounded size.
//!
//! A few kilobytes can stand for gigabytes, so nothing here is as long as what comes out: a step yields at
//! most [`STEP_BYTES`], and whoever asks for the steps counts them.

use super::body::Memory;
use super::problem::Problem;
use axum::http::{HeaderMap, header};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_ErrorCode};

/// What is taken, as `Accept-Encoding` says it.
pub(crate) const TAKEN: &str = "gzip, zstd";
/// Bytes that one step takes or gives at most: some ten microseconds of work.
const STEP_BYTES: usize = 64 * 1024;
/// Base 2 logarithm of the largest window of a zstd frame: 8 MiB, the most that RFC 9659 lets a sender use.
const WINDOW_LOG: u32 = 23;
/// Base 2 logarithm of the window of gzip.
const GZIP_WINDOW_LOG: u8 = 15;

/// How a body is encoded; for the document only, the header is read by [`Encoding::of`].
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "a description of a header")]
pub(crate) struct EncodingHeader {
    /// `gzip` or `zstd` (with a window of at most 8 MiB) if the body is compressed. All limits count the
    /// decoded bytes.
    #[param(rename = "Content-Encoding")]
    content_encoding: Option<String>,
}

/// An encoding that is taken.
#[derive(Clone, Copy)]
pub(crate) enum Encoding {
    Gzip,
    Zstd,
}

impl Encoding {
    /// The encoding of a body; none if it comes as it is.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, Problem> {
        let refused = |found: &str| {
            Problem::encoding(format!(
                "the body comes as {found}; one of gzip and zstd is taken, or none"
            ))
        };
        let mut found = Vec::new();
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let value = value
                .to_str()
                .map_err(|_| refused("bytes that are no text"))?;
            found.extend(
                value
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty()),
            );
        }
        let word = match found[..] {
            [] => return Ok(None),
            [word] => word.to_ascii_lowercase(),
            _ => return Err(refused(&found.join(", "))),
        };
        match word.as_str() {
            "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "zstd" => Ok(Some(Self::Zstd)),
            other => Err(refused(other)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// A body that is being decoded.
pub(crate) struct Decoder {
    encoding: Encoding,
    state: State,
    /// What came and is not decoded yet.
    input: Bytes,
    /// Whether the last step gave all that it may, so that there may be more without further input.
    full: bool,
    /// Whether all that was decoded so far are whole members of gzip, or whole frames of zstd.
    whole: bool,
    /// Whether one has ended, and the next has given nothing yet.
    between: bool,
    memory: Memory,
    /// Memory for the window, where it is a large one.
    window: Option<OwnedSemaphorePermit>,
}

enum State {
    Gzip(Decompress),
    Zstd(DCtx<'static>),
}

/// What a state did with its input.
struct Step {
    taken: usize,
    /// Whether a member or a frame ended with it.
    ended: bool,
}

enum Defect {
    Corrupt,
    Window,
}

impl Decoder {
    pub(crate) fn new(encoding: Encoding, memory: &Memory) -> Result<Self, Problem> {
        let state = match encoding {
            Encoding::Gzip => State::Gzip(Decompress::new_gzip(GZIP_WINDOW_LOG)),
            Encoding::Zstd => {
                let mut context = DCtx::try_create().ok_or_else(Problem::busy)?;
                context
                    .set_parameter(DParameter::WindowLogMax(WINDOW_LOG))
                    .map_err(|_| Problem::internal())?;
                State::Zstd(context)
            }
        };
        Ok(Self {
            encoding,
            state,
            input: Bytes::new(),
            full: false,
            whole: false,
            between: false,
            memory: memory.clone(),
            window: None,
        })
    }

    /// Whether there is something to do before further input is needed.
    pub(crate) fn has_work(&self) -> bool {
        self.full || !self.input.is_empty()
    }

    /// The next bytes that came.
    pub(crate) fn feed(&mut self, input: Bytes) {
        self.input = input;
    }

    /// One step: what it gives, which may be nothing.
    pub(crate) fn step(&mut self) -> Result<Bytes, Problem> {
        let input = &self.input[..self.input.len().min(STEP_BYTES)];
        let mut out = Vec::with_capacity(STEP_BYTES);
        let step = match self.state.step(input, &mut out) {
            Ok(step) if step.taken > 0 || !out.is_empty() || self.full => step,
            // Neither takes nor gives: it would do so for ever.
            Ok(_) | Err(Defect::Corrupt) => return Err(self.corrupt()),
            Err(Defect::Window) => {
                return Err(Problem::encoding(
                    "the window of the zstd is larger than 8 MiB (RFC 9659)",
                ));
            }
        };
        self.input.advance(step.taken);
        self.full = out.len() == out.capacity();
        if step.taken > 0 || !out.is_empty() {
            self.whole = step.ended;
            self.between = step.ended || (self.between && out.is_empty());
        }
        self.hold()?;
        Ok(out.into())
    }

    /// Nothing comes any more.
    pub(crate) fn end(&self) -> Result<(), Problem> {
        if self.whole {
            return Ok(());
        }
        let name = self.encoding.name();
        Err(Problem::encoding_broken(format!(
            "the {name} of the body ends before its end"
        )))
    }

    fn corrupt(&self) -> Problem {
        let name = self.encoding.name();
        Problem::encoding_broken(if self.between {
            format!("behind the end of the {name} of the body is something that is no {name}")
        } else {
            format!("the {name} of the body is corrupt")
        })
    }

    /// A window is as large as the sender says and stays while the body comes, so it takes room.
    fn hold(&mut self) -> Result<(), Problem> {
        let State::Zstd(context) = &self.state else {
            return Ok(());
        };
        self.memory.window(context.sizeof(), &mut self.window)
    }
}

impl State {
    /// Decodes until the input or the capacity of `out` is used up, or a member or frame ends.
    fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Step, Defect> {
        match self {
            Self::Gzip(member) => {
                let before = member.total_in();
                let status = member
                    .decompress_vec(input, out, FlushDecompress::None)
                    .map_err(|_| Defect::Corrupt)?;
                let taken = usize::try_from(member.total_in() - before).unwrap_or(input.len());
                let ended = status == Status::StreamEnd;
                if ended {
                    *member = Decompress::new_gzip(GZIP_WINDOW_LOG);
                }
                Ok(Step { taken, ended })
            }
            Self::Zstd(context) => {
                let mut input = InBuffer::around(input);
                let mut output = OutBuffer::around(out);
                let hint = context
                    .decompress_stream(&mut output, &mut input)
                    .map_err(defect)?;
                Ok(Step {
                    taken: input.pos(),
                    ended: hint == 0,
                })
            }
        }
    }
}

/// Errors of zstd are negative numbers in a `usize`.
fn defect(code: usize) -> Defect {
    let window = ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge as usize;
    if code.wrapping_neg() == window {
        Defect::Window
    } else {
        Defect::Corrupt
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;
    use zstd_safe::{CCtx, CParameter};

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// With a window of 2 to the power of `log` bytes.
    fn zstd(bytes: &[u8], log: u32) -> Vec<u8> {
        let mut context = CCtx::create();
        context.set_parameter(CParameter::WindowLog(log)).unwrap();
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let mut output = OutBuffer::around(&mut out);
        let mut input = InBuffer::around(bytes);
        context.compress_stream(&mut output, &mut input).unwrap();
        assert_eq!(context.end_stream(&mut output).unwrap(), 0);
        out
    }

    /// All that comes out when so many bytes come at once, in steps that are none too long.
    fn decode(encoding: Encoding, bytes: &[u8], at_once: usize) -> Vec<u8> {
        let mut decoder = Decoder::new(encoding, &Memory::new(64)).unwrap();
        let mut all = Vec::new();
        for piece in bytes.chunks(at_once) {
            decoder.feed(Bytes::copy_from_slice(piece));
            while decoder.has_work() {
                let step = decoder.step().unwrap();
                assert!(step.len() <= 2 * STEP_BYTES, "{}", step.len());
                all.extend_from_slice(&step);
            }
        }
        decoder.end().unwrap();
        all
    }

    #[test]
    fn steps_are_bounded_and_all_of_them_are_the_body() {
        // Lengths about that of a step, and what inflates a thousandfold.
        for length in [
            0,
            1,
            STEP_BYTES - 1,
            STEP_BYTES,
            STEP_BYTES + 1,
            3 * STEP_BYTES,
            5 << 20,
        ] {
            let mut body: Vec<u8> = (0..length).map(|at| (at * at / 7) as u8).collect();
            body.resize(length * 3, 0);
            for (encoding, encoded) in [
                (Encoding::Gzip, gzip(&body)),
                (Encoding::Zstd, zstd(&body, 20)),
            ] {
                let twice = encoded.repeat(2);
                for at_once in [1, 7, 16 * 1024, 1 << 20] {
                    if at_once == 1 && length > 1 << 20 {
                        continue;
                    }
                    assert!(
                        decode(encoding, &twice, at_once) == body.repeat(2),
                        "{length} {at_once}"
                    );
                }
            }
        }
    }

    #[test]
    fn windows_over_a_mebibyte_share_half_the_memory() {
        let memory = Memory::new(24);
        let begin = |log| {
            let mut decoder = Decoder::new(Encoding::Zstd, &memory).unwrap();
            let bytes = zstd(&[7; 100_000], log);
            decoder.feed(Bytes::copy_from_slice(&bytes[..bytes.len() - 1]));
            decoder.step().map(|_| decoder)
        };
        let first = begin(23).unwrap();
        assert_eq!(begin(23).map(drop).unwrap_err().code, "busy");
        // Small ones are free, as many as there are.
        let small: Vec<Decoder> = (0..20).map(|_| begin(17).unwrap()).collect();
        drop(first);
        begin(23).unwrap();
        drop(small);
    }
}
