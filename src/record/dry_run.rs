//! Trying rules: what they would do to a sample, and what they would have refused of what is recorded.

use super::prepare::offload;
use super::read::ListRequest;
use super::redaction::Metadata;
use super::{RecordError, Recorder};
use crate::access::Caller;
use crate::redact::{Place, RuleSet, Shape};
use crate::store::search::Effort;
use onrecord_core::id::RunId;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Runs that are looked at.
pub(crate) const RUNS: u32 = 1_000;
/// Frames that are looked at, and their bytes; then it ends, and says so.
const FRAMES: u64 = 50_000;
const BYTES: usize = 64 * 1024 * 1024;
/// Frames that are read at once.
const PAGE: u32 = 500;
/// Places that are told of each rule.
const PLACES: usize = 10;

/// What to try.
pub(crate) struct TryRequest {
    /// A document in place of the tenant's, with its media type.
    pub(crate) rules: Option<(&'static str, Vec<u8>)>,
    /// Canonical JSON or text.
    pub(crate) sample: Option<(Vec<u8>, bool)>,
    /// How many of the newest runs to look at.
    pub(crate) runs: Option<u32>,
}

/// What came of it. Nothing of a secret is in it.
pub(crate) struct Tried {
    /// The version of the rules.
    pub(crate) set: String,
    /// The sample without its secrets, and what they were.
    pub(crate) sample: Option<(Vec<u8>, Vec<TriedMark>)>,
    /// What was looked at of what is recorded.
    pub(crate) runs: Option<TriedRuns>,
}

/// A secret in the sample.
pub(crate) struct TriedMark {
    pub(crate) kind: String,
    pub(crate) rule: String,
    /// Of the placeholder, as on a frame: a pointer in JSON, and bytes in text.
    pub(crate) pointer: Option<String>,
    pub(crate) range: Option<(u64, u64)>,
}

/// What the rules find in recorded frames, outside of payloads.
#[derive(Default)]
pub(crate) struct TriedRuns {
    pub(crate) runs: u64,
    pub(crate) frames: u64,
    /// Whether all of the runs were looked at.
    pub(crate) complete: bool,
    /// By rule and kind: how often, and some places.
    pub(crate) found: BTreeMap<(String, String), (u64, Vec<TriedPlace>)>,
}

/// A place in a recorded frame.
pub(crate) struct TriedPlace {
    pub(crate) run: RunId,
    pub(crate) seq: u64,
    pub(crate) pointer: String,
}

impl Recorder {
    /// Tries rules, those of the tenant or others. Nothing is stored, and nothing changes.
    ///
    /// # Errors
    /// [`RecordError::BadRules`]: the rules cannot be used.
    pub(crate) async fn try_redaction(
        &self,
        caller: Caller,
        request: TryRequest,
    ) -> Result<Tried, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let rules = match &request.rules {
                Some((media, document)) => recorder.compile_own(media, document)?,
                None => match recorder.rules(&caller.tenant).await? {
                    Some(rules) => rules,
                    None => Arc::new(RuleSet::builtin().map_err(RecordError::StoredRules)?),
                },
            };
            let sample = request.sample.map(|(bytes, is_json)| {
                let shape = if is_json { Shape::Json } else { Shape::Text };
                offload(bytes.len(), || try_sample(&rules, bytes, shape))
            });
            let runs = match request.runs {
                Some(last) => Some(recorder.try_runs(&caller, &rules, last).await?),
                None => None,
            };
            Ok(Tried {
                set: rules.version().to_owned(),
                sample,
                runs,
            })
        })
        .await
    }

    async fn try_runs(
        &self,
        caller: &Caller,
        rules: &RuleSet,
        last: u32,
    ) -> Result<TriedRuns, RecordError> {
        let list = ListRequest {
            limit: last.min(RUNS),
            ..ListRequest::default()
        };
        let mut tried = TriedRuns::default();
        let mut bytes = 0;
        // Without a condition each run that is looked at is one of them.
        let runs = self.runs(caller.clone(), list, Effort::default());
        for run in runs.await?.rows {
            let mut from = 0;
            while from < run.size {
                if tried.frames >= FRAMES || bytes >= BYTES {
                    return Ok(tried);
                }
                let limit = u32::try_from(run.size - from).unwrap_or(PAGE).min(PAGE);
                let page = self
                    .frames(caller.clone(), run.run.clone(), from, limit)
                    .await?;
                if page.is_empty() {
                    break;
                }
                bytes += page.iter().map(Vec::len).sum::<usize>();
                offload(usize::MAX, || {
                    for (frame, seq) in page.iter().zip(from..) {
                        tried.look(rules, frame, &run.run, seq);
                    }
                });
                from += page.len() as u64;
                tried.frames += page.len() as u64;
            }
            tried.runs += 1;
        }
        tried.complete = true;
        Ok(tried)
    }
}

fn try_sample(rules: &RuleSet, bytes: Vec<u8>, shape: Shape) -> (Vec<u8>, Vec<TriedMark>) {
    let Some(redacted) = rules.redact(&bytes, shape) else {
        return (bytes, Vec::new());
    };
    let marks = redacted.marks.into_iter().map(|mark| {
        let (pointer, range) = match mark.place {
            Place::Pointer(pointer) => (Some(pointer), None),
            Place::Range(start, end) => (None, Some((start, end))),
        };
        TriedMark {
            kind: mark.kind,
            rule: mark.rule,
            pointer,
            range,
        }
    });
    (redacted.bytes, marks.collect())
}

impl TriedRuns {
    fn look(&mut self, rules: &RuleSet, frame: &[u8], run: &RunId, seq: u64) {
        #[derive(Deserialize)]
        struct Seen<'a> {
            #[serde(borrow)]
            actor: SeenActor<'a>,
            #[serde(borrow)]
            body: &'a RawValue,
            key: std::borrow::Cow<'a, str>,
            #[serde(default, borrow)]
            payloads: Vec<SeenPayload<'a>>,
        }
        #[derive(Deserialize)]
        struct SeenActor<'a> {
            id: std::borrow::Cow<'a, str>,
        }
        #[derive(Deserialize)]
        struct SeenPayload<'a> {
            media: std::borrow::Cow<'a, str>,
            name: std::borrow::Cow<'a, str>,
        }
        // What the store wrote is a frame.
        let Ok(seen) = serde_json::from_slice::<Seen<'_>>(frame) else {
            return;
        };
        let payloads = seen.payloads.iter();
        let metadata = Metadata {
            at: "",
            member: "body",
            body: seen.body.get().as_bytes(),
            key: Some(&seen.key),
            actor: Some(&seen.actor.id),
            payloads: payloads.map(|one| (&*one.name, &*one.media)).collect(),
        };
        for found in metadata.found(rules) {
            let (count, places) = self.found.entry((found.rule, found.kind)).or_default();
            *count += 1;
            if places.len() < PLACES {
                places.push(TriedPlace {
                    run: run.clone(),
                    seq,
                    pointer: found.pointer,
                });
            }
        }
    }
}
