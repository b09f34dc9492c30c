//! Asking witnesses (c2sp.org/tlog-witness), and what comes of their answers.

use super::{AnchorError, Anchors, Standing, answer, lock, told};
use crate::ledger;
use crate::record::rewind::Told;
use crate::store::{self, StoreError};
use futures_util::future::join_all;
use onrecord_core::id::TenantId;
use onrecord_core::note::{
    Cosignature, Note, NoteSignature, Submission, VerifierKey, cosigned_message,
};
use onrecord_verify::PublicKey;
use reqwest::{StatusCode, Url, header};
use std::time::{Duration, Instant};

/// Bytes of an answer at most.
const ANSWER_BYTES: usize = 65_536;
/// Characters of a witness's own words that are repeated.
const SAID_CHARS: usize = 200;
/// After what time those that answered are enough, where no file says so.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seals that get their proofs in one transaction.
const PROOFS: u32 = 200;

/// A witness that is asked.
pub(super) struct Asked {
    http: reqwest::Client,
    verifier: VerifierKey,
    key: PublicKey,
    url: String,
    submit: Url,
}

/// What came of asking.
enum Outcome {
    Cosigned(NoteSignature),
    /// It knows the ledger at a size that this one does not reach, or with another history up to it.
    Otherwise {
        size: u64,
        contradicts: bool,
    },
    Failed(String),
}

impl Asked {
    pub(super) fn new(
        http: reqwest::Client,
        (verifier, key, url): (&VerifierKey, &PublicKey, &str),
    ) -> Result<Self, AnchorError> {
        let wrong = |problem: &str| AnchorError::Address {
            url: url.to_owned(),
            problem: problem.to_owned(),
        };
        let submit = format!("{}/add-checkpoint", url.trim_end_matches('/'));
        let submit = Url::parse(&submit).map_err(|_| wrong("expected http(s)://HOST/PATH"))?;
        let is_plain = submit.query().is_none() && submit.fragment().is_none();
        if !matches!(submit.scheme(), "http" | "https") || !is_plain {
            return Err(wrong("expected http(s)://HOST/PATH"));
        }
        Ok(Self {
            http,
            verifier: verifier.clone(),
            key: key.clone(),
            url: url.to_owned(),
            submit,
        })
    }

    pub(super) fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends one submission.
    async fn submit(&self, submission: &Submission) -> Result<(StatusCode, String), String> {
        let sent = self.http.post(self.submit.clone());
        let sent = sent.body(submission.to_string()).send().await;
        let response = sent.map_err(told)?;
        let status = response.status();
        let is_size = response.headers().get(header::CONTENT_TYPE);
        let is_size = is_size.is_some_and(|kind| kind.as_bytes().starts_with(b"text/x.tlog.size"));
        let bytes = answer(response, ANSWER_BYTES).await?;
        let text = String::from_utf8(bytes).map_err(|_| "its answer is not UTF-8".to_owned())?;
        if status == StatusCode::CONFLICT && !is_size {
            return Err("409 without a size: it is no witness".to_owned());
        }
        Ok((status, text))
    }

    /// What its answer to a checkpoint means; `Err` has the size from which it is to be asked again.
    fn read(
        &self,
        note: &str,
        (old, size): (u64, u64),
        status: StatusCode,
        answer: &str,
    ) -> Result<Outcome, u64> {
        let printable = answer.chars().filter(|one| !one.is_control());
        let said: String = printable.take(SAID_CHARS).collect();
        Ok(match status {
            StatusCode::OK => match self.signature(note, answer) {
                Some(signature) => Outcome::Cosigned(signature),
                None => Outcome::Failed(
                    "its answer has no cosignature of the checkpoint by its key".to_owned(),
                ),
            },
            StatusCode::CONFLICT => {
                let known = answer.strip_suffix('\n').and_then(|text| text.parse().ok());
                match known {
                    Some(known) if known == old && old == size => Outcome::Otherwise {
                        size,
                        contradicts: true,
                    },
                    Some(known) => return Err(known),
                    None => Outcome::Failed("409 without a size: it is no witness".to_owned()),
                }
            }
            StatusCode::UNPROCESSABLE_ENTITY if old > 0 => Outcome::Otherwise {
                size: old,
                contradicts: true,
            },
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Outcome::Failed(format!(
                "{status}: its operator has to add the ledger's `log` line of `onrecord trust` ({said})"
            )),
            _ => Outcome::Failed(format!("{status}: {said}")),
        })
    }

    /// Its signature in an answer, if it is one under the checkpoint.
    fn signature(&self, note: &str, lines: &str) -> Option<NoteSignature> {
        let note = Note::parse(&format!("{note}{lines}")).ok()?;
        let bytes = note.signatures_of(&self.verifier).next()?.to_vec();
        let one = Cosignature::from_bytes(&bytes).ok()?;
        let message = cosigned_message(one.time, &note.text);
        let is_true = self.key.verifies(message.as_bytes(), &one.signature);
        is_true.then(|| self.verifier.signature(bytes))
    }
}

impl Anchors {
    /// Has the latest checkpoint of a tenant cosigned, if it is not: by those that are due.
    pub(super) async fn ask_witnesses(
        &self,
        tenant: &TenantId,
        size: u64,
    ) -> Result<(), AnchorError> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let cosigned = match self.known(tenant, |known| known.cosigned) {
            Some(cosigned) => cosigned,
            None => self.read_cosigned(tenant).await?,
        };
        if cosigned >= size {
            return Ok(());
        }
        let since = self.known(tenant, |known| {
            *known.waiting.get_or_insert_with(Instant::now)
        });
        let mut tx = self.recorder.store().snapshot(tenant).await?;
        let (size, note) = store::ledger::checkpoint(&mut tx, tenant).await?;
        let kept = store::anchors::cosignatures(&mut tx, tenant, size).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let has = |place: &usize| {
            let key = self
                .witnesses
                .get(*place)
                .map(|one| one.verifier.to_string());
            kept.iter().any(|row| Some(&row.witness) == key.as_ref())
        };
        let mut signed: Vec<usize> = (0..self.witnesses.len()).filter(has).collect();
        let due = self.witnesses.iter().enumerate().filter(|(place, _)| {
            let is_due =
                |known: &mut super::Known| known.witnesses.entry(*place).or_default().1.is_due();
            !signed.contains(place) && self.known(tenant, is_due)
        });
        let note = note.as_str();
        let asked = due.map(|(place, one)| async move {
            let outcome = self.ask(tenant, (place, one), (size, note)).await;
            (place, one, outcome)
        });
        for (place, one, outcome) in join_all(asked).await {
            if self.settle(tenant, (place, one), size, outcome?).await? {
                signed.push(place);
            }
        }
        if policy.is_met(&signed, since.elapsed() >= PATIENCE) {
            self.publish(tenant, cosigned, size).await?;
            self.known(tenant, |known| {
                known.cosigned = Some(size);
                known.waiting = None;
            });
        }
        Ok(())
    }

    async fn read_cosigned(&self, tenant: &TenantId) -> Result<u64, AnchorError> {
        let mut tx = self.recorder.store().snapshot(tenant).await?;
        let cosigned = store::anchors::cosigned(&mut tx, tenant).await?;
        tx.commit().await.map_err(StoreError::from)?;
        let cosigned = cosigned.map_or(0, |(size, _)| size);
        self.known(tenant, |known| known.cosigned = Some(cosigned));
        Ok(cosigned)
    }

    /// Asks one witness; where it knows another size than was thought, once more from there.
    async fn ask(
        &self,
        tenant: &TenantId,
        (place, one): (usize, &Asked),
        (size, note): (u64, &str),
    ) -> Result<Outcome, AnchorError> {
        let mut old = self.known(tenant, |known| known.witnesses.entry(place).or_default().0);
        let mut outcome = Outcome::Failed("it names another size each time".to_owned());
        for _ in 0..3 {
            if old > size {
                outcome = Outcome::Otherwise {
                    size: old,
                    contradicts: false,
                };
                break;
            }
            let mut tx = self.recorder.store().snapshot(tenant).await?;
            let path = ledger::log::consistency(&mut tx, tenant, old, size).await?;
            tx.commit().await.map_err(StoreError::from)?;
            let submission = Submission {
                old,
                path,
                checkpoint: note.to_owned(),
            };
            let (status, answer) = match one.submit(&submission).await {
                Ok(answered) => answered,
                Err(problem) => return Ok(Outcome::Failed(problem)),
            };
            match one.read(note, (old, size), status, &answer) {
                Ok(read) => {
                    outcome = read;
                    break;
                }
                Err(known) => old = known,
            }
        }
        // What it said otherwise it is asked about anew: its operator may have put it right.
        let knows = match outcome {
            Outcome::Cosigned(_) => size,
            Outcome::Otherwise { .. } => 0,
            Outcome::Failed(_) => old,
        };
        self.known(tenant, |known| {
            known.witnesses.entry(place).or_default().0 = knows
        });
        Ok(outcome)
    }

    /// Keeps what a witness signed, or what it said instead. True where it signed.
    async fn settle(
        &self,
        tenant: &TenantId,
        (place, one): (usize, &Asked),
        size: u64,
        outcome: Outcome,
    ) -> Result<bool, AnchorError> {
        let witness = one.verifier.to_string();
        let problem = match outcome {
            Outcome::Cosigned(signature) => {
                let mut tx = self.recorder.store().begin(tenant).await?;
                let line = signature.to_string();
                let row = (witness.as_str(), line.as_str());
                store::anchors::insert_cosignature(&mut tx, tenant, size, row).await?;
                tx.commit().await.map_err(StoreError::from)?;
                self.standing(tenant, place, Standing::well);
                return Ok(true);
            }
            Outcome::Otherwise { size, contradicts } => {
                let told = Told::Witness {
                    witness,
                    size,
                    contradicts,
                };
                if self.recorder.has_published(tenant, told).await? {
                    // Another process was ahead of what this one saw.
                    return Ok(false);
                }
                format!(
                    "it saw another history of the ledger, of {size} entries, and will not cosign this one"
                )
            }
            Outcome::Failed(problem) => problem,
        };
        let is_new = self.standing(tenant, place, |standing| standing.failed(problem.clone()));
        if is_new {
            tracing::warn!(%tenant, witness = one.verifier.name(), url = one.url, problem, "a witness did not cosign; it is asked again");
        }
        Ok(false)
    }

    fn standing<T>(
        &self,
        tenant: &TenantId,
        place: usize,
        change: impl FnOnce(&mut Standing) -> T,
    ) -> T {
        let mut known = lock(&self.known);
        let known = known.entry(tenant.clone()).or_default();
        change(&mut known.witnesses.entry(place).or_default().1)
    }

    /// Gives the seals below a cosigned checkpoint their proofs under it, and says that it is cosigned.
    async fn publish(&self, tenant: &TenantId, from: u64, size: u64) -> Result<(), AnchorError> {
        let mut next = from;
        loop {
            let mut tx = self.recorder.store().begin(tenant).await?;
            let note = ledger::cosigned_note(&mut tx, tenant, size).await;
            let note = note.map_err(crate::record::RecordError::from)?;
            let seals = store::anchors::seals(&mut tx, tenant, next..size, PROOFS).await?;
            for (index, run, _) in &seals {
                let proof = ledger::proof(&mut tx, tenant, *index, (size, &note)).await;
                let proof = proof.map_err(crate::record::RecordError::from)?;
                store::anchors::insert_proof(&mut tx, tenant, run, &proof).await?;
            }
            match seals.last() {
                Some((index, ..)) => next = index + 1,
                None => store::anchors::insert_cosigned(&mut tx, tenant, size).await?,
            }
            // A crash after a page leaves proofs under a checkpoint that is cosigned, and the others to the next round.
            tx.commit().await.map_err(StoreError::from)?;
            if seals.is_empty() {
                return Ok(());
            }
        }
    }
}
