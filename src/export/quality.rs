//! How well runs could be repeated and checked again, as far as what is kept of them tells: figures for each agent, or for each
//! stretch of time.

use super::examined::{Budget, Examined, Looked};
use crate::record::{RecordError, Recorder, commit};
use crate::store;
pub(crate) use crate::store::quality::Each;
use crate::store::quality::Sampled;
use onrecord_core::frame::{Frame, Kind};
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use onrecord_core::{json, pins};
use std::collections::BTreeMap;

/// Sessions, results of gates, and runs with their payloads that are looked at, the newest of the time: so that it takes a
/// second, however many there are.
pub(crate) const SAMPLE: u32 = 5_000;

const DAY_MICROS: i64 = 86_400_000_000;

/// Which pins sessions have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manifests {
    pub(crate) sessions: u64,
    /// Of each pin how many sessions have it.
    pub(crate) pins: BTreeMap<&'static str, u64>,
}

/// What of payloads is there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Artifacts {
    pub(crate) stored: u64,
    pub(crate) kept: u64,
    pub(crate) erased: u64,
}

/// How often gates that were asked again about the same candidate said the same.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreement {
    /// Pairs of a gate and a candidate in a run with more than one verdict.
    pub(crate) asked_again: u64,
    /// Those of them whose verdicts are all the same.
    pub(crate) agreed: u64,
}

/// The figures under one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quality {
    pub(crate) manifests: Manifests,
    /// By tier.
    pub(crate) artifacts: BTreeMap<i16, Artifacts>,
    pub(crate) agreement: Agreement,
    pub(crate) examined: Examined,
}

impl Quality {
    fn add(&mut self, more: Self) {
        self.manifests.sessions += more.manifests.sessions;
        for (pin, count) in more.manifests.pins {
            *self.manifests.pins.entry(pin).or_default() += count;
        }
        for (tier, more) in more.artifacts {
            let artifacts = self.artifacts.entry(tier).or_default();
            artifacts.stored += more.stored;
            artifacts.kept += more.kept;
            artifacts.erased += more.erased;
        }
        self.agreement.asked_again += more.agreement.asked_again;
        self.agreement.agreed += more.agreement.agreed;
        self.examined.add(more.examined);
    }
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) groups: BTreeMap<String, Quality>,
    /// Sessions and results of gates that were looked at.
    pub(crate) sessions: u64,
    pub(crate) gates: u64,
    /// What was read anew.
    pub(crate) looked: Looked,
}

impl Recorder {
    /// Measures what was recorded from one time to before another, and reads as much of it anew as the budget has.
    ///
    /// # Errors
    /// The database, which may take too long.
    pub(crate) async fn replay_quality(
        &self,
        tenant: TenantId,
        time: (Timestamp, Timestamp),
        (each, budget): (Each, Budget),
    ) -> Result<Measured, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&tenant).await?;
            let sample = (each, SAMPLE);
            let sessions =
                store::quality::frames(&mut tx, &tenant, Kind::Session, time, sample).await?;
            let gates =
                store::quality::frames(&mut tx, &tenant, Kind::GateResult, time, sample).await?;
            let payloads = store::quality::payloads(&mut tx, &tenant, time, sample).await?;
            commit(tx).await?;
            let mut groups: BTreeMap<String, Quality> = BTreeMap::new();
            for session in &sessions {
                let manifests = &mut groups.entry(session.key.clone()).or_default().manifests;
                manifests.read(&frame(session)?);
            }
            for (key, tier, state, count) in payloads {
                let of_tier = &mut groups.entry(key).or_default().artifacts;
                let artifacts = of_tier.entry(tier).or_default();
                match state.as_str() {
                    "stored" => artifacts.stored += count,
                    "kept" => artifacts.kept += count,
                    _ => artifacts.erased += count,
                }
            }
            for (key, again) in agreement(&gates)? {
                groups.entry(key).or_default().agreement = again;
            }
            let (examined, looked) = recorder.examine(&tenant, time, (each, budget)).await?;
            for (key, examined) in examined {
                groups.entry(key).or_default().examined = examined;
            }
            Ok(Measured {
                since: time.0,
                until: time.1,
                groups,
                sessions: sessions.len() as u64,
                gates: gates.len() as u64,
                looked,
            })
        })
        .await
    }
}

impl Recorder {
    /// Measures what was recorded in the last day, of all tenants together. What is read anew is shared out among them.
    ///
    /// # Errors
    /// The database.
    pub(crate) async fn replay_quality_of_all(&self) -> Result<Quality, RecordError> {
        let now = self.store.now().await?;
        let since = Timestamp::from_micros(now.micros().saturating_sub(DAY_MICROS)).unwrap_or(now);
        let mut all = Quality::default();
        let tenants = self.store.tenants().await?;
        let budget = Budget::WHOLE.share(tenants.len());
        for (tenant, _) in tenants {
            let sample = (Each::Agent, budget);
            let measured = self.replay_quality(tenant, (since, now), sample).await?;
            measured.groups.into_values().for_each(|one| all.add(one));
        }
        Ok(all)
    }
}

impl Manifests {
    fn read(&mut self, session: &Frame<'_>) {
        self.sessions += 1;
        for (name, is_there) in pins::of(session) {
            *self.pins.entry(name).or_default() += u64::from(is_there);
        }
    }
}

fn frame(sampled: &Sampled) -> Result<Frame<'_>, RecordError> {
    let wrong = |_| store::contradiction("frames", "bytes", &sampled.run);
    Ok(Frame::parse(&sampled.bytes).map_err(wrong)?)
}

/// What each gate said of each candidate of a run, under the key of the run.
fn agreement(gates: &[Sampled]) -> Result<BTreeMap<String, Agreement>, RecordError> {
    type Asked<'a> = (&'a str, &'a RunId, String, String);
    let mut said: BTreeMap<Asked<'_>, Vec<String>> = BTreeMap::new();
    for gate in gates {
        let parsed = frame(gate)?;
        let members = json::members(parsed.body.as_bytes(), json::Limits::FRAME);
        let members = members.unwrap_or_default();
        let text = |name: &str| {
            let member = members.iter().find(|member| member.name == name)?;
            json::string(member.raw).ok()
        };
        if let (Some(name), Some(candidate), Some(verdict)) =
            (text("name"), text("candidate"), text("verdict"))
        {
            let asked = (gate.key.as_str(), &gate.run, name, candidate);
            said.entry(asked).or_default().push(verdict);
        }
    }
    let mut all: BTreeMap<String, Agreement> = BTreeMap::new();
    for ((key, ..), verdicts) in said {
        if verdicts.len() > 1 {
            let agreement = all.entry(key.to_owned()).or_default();
            agreement.asked_again += 1;
            agreement.agreed += u64::from(verdicts.iter().all(|verdict| *verdict == verdicts[0]));
        }
    }
    Ok(all)
}
