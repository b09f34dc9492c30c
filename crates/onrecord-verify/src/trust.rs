//! The trust file: whom the person who verifies believes (spec: `docs/spec/verification.md`, "Trust file").
//!
//! Lines of C2SP tlog-policy (`log`, `witness`, `group`, `quorum`) and ours (`seal-key`, `agent-key`,
//! `time-authority`, `time-anchor`). Strict: a line that is not understood is an error, since skipping it could skip a demand.

use crate::authority;
use crate::signature::PublicKey;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Actor, ActorType, check_actor};
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::note::{SignatureType, VerifierKey};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a trust file.
pub const TRUST_BYTES: usize = 1 << 20;

/// Pinned keys and what is asked of witnesses.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    logs: Vec<NoteKey>,
    witnesses: Vec<NoteKey>,
    /// Addresses of the witnesses, where lines have them.
    addresses: Vec<Option<String>>,
    nodes: Vec<Node>,
    quorum: Option<Quorum>,
    seal_keys: BTreeMap<Hash, SealKey>,
    agent_keys: BTreeMap<Hash, AgentKey>,
    agents: BTreeSet<String>,
    /// Certificates of time-stamping authorities, DER.
    authorities: Vec<Vec<u8>>,
    anchor: Option<u64>,
}

/// A log's or a witness's key.
#[derive(Clone, Debug)]
pub(crate) struct NoteKey {
    pub verifier: VerifierKey,
    pub key: PublicKey,
}

/// A key that seals, for one tenant and one ledger.
#[derive(Clone, Debug)]
pub(crate) struct SealKey {
    pub key: PublicKey,
    pub tenant: TenantId,
    pub origin: Origin,
    /// Entries at this index and after do not count.
    pub until: Option<u64>,
}

/// A key that an agent signs its frames with.
#[derive(Clone, Debug)]
pub(crate) struct AgentKey {
    pub key: PublicKey,
    pub actor: String,
}

/// A witness, or a group of nodes before it.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Witness(usize),
    Group { need: usize, members: Vec<usize> },
}

#[derive(Clone, Copy, Debug)]
enum Quorum {
    /// No witness is asked for.
    None,
    Node(usize),
}

/// Why a text is no trust file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("trust file, line {line}: {fault}")]
pub struct TrustError {
    /// From 1; after the last line where something is missing.
    pub line: usize,
    /// What is wrong.
    pub fault: TrustFault,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustFault {
    /// Begins with no word that is known.
    #[error(
        "unknown line {0:?}; expected log, witness, group, quorum, seal-key, agent-key, time-authority or time-anchor"
    )]
    Unknown(String),
    /// Too few or too many parts.
    #[error("expected: {0}")]
    Form(&'static str),
    /// A part is malformed.
    #[error("{0}")]
    Part(String),
    /// A key or name that another line has.
    #[error("{0} stands here a second time")]
    Twice(String),
    /// No `quorum` line although there are logs or witnesses.
    #[error("a `quorum` line is missing: `quorum NAME`, or `quorum none` to ask for no witness")]
    NoQuorum,
    /// A time anchor without witnesses or an authority that could give it.
    #[error("`time-anchor` needs a quorum of witnesses, or a `time-authority`")]
    AnchorWithoutQuorum,
}

fn part(error: impl std::fmt::Display) -> TrustFault {
    TrustFault::Part(error.to_string())
}

impl Trust {
    /// Reads a trust file.
    pub fn parse(text: &str) -> Result<Self, TrustError> {
        let mut trust = Self::default();
        let mut lines = 0;
        for (index, line) in text.lines().enumerate() {
            lines = index + 1;
            let line = line.trim_matches([' ', '\t', '\r']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            trust
                .line(line)
                .map_err(|fault| TrustError { line: lines, fault })?;
        }
        let missing = |fault| TrustError {
            line: lines + 1,
            fault,
        };
        let asks = !trust.logs.is_empty() || !trust.nodes.is_empty();
        match (asks, trust.quorum, trust.anchor) {
            (true, None, _) => Err(missing(TrustFault::NoQuorum)),
            (_, None | Some(Quorum::None), Some(_)) if trust.authorities.is_empty() => {
                Err(missing(TrustFault::AnchorWithoutQuorum))
            }
            _ => Ok(trust),
        }
    }

    fn line(&mut self, line: &str) -> Result<(), TrustFault> {
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let rest = rest.trim_matches([' ', '\t']);
        let parts: Vec<&str> = rest
            .split([' ', '\t'])
            .filter(|part| !part.is_empty())
            .collect();
        match word {
            "log" => self.read_log(&parts),
            "witness" => self.read_witness(&parts),
            "group" => self.read_group(&parts),
            "quorum" => self.read_quorum(&parts),
            "seal-key" => self.read_seal_key(&parts),
            "agent-key" => self.read_agent_key(rest),
            "time-authority" => self.read_authority(&parts),
            "time-anchor" => self.read_time_anchor(&parts),
            other => Err(TrustFault::Unknown(other.chars().take(40).collect())),
        }
    }

    fn read_log(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let ([vkey] | [vkey, _]) = parts else {
            return Err(TrustFault::Form("log VKEY [URL]"));
        };
        let key = note_key(vkey, SignatureType::Text)?;
        if self.logs.iter().any(|log| log.verifier == key.verifier) {
            return Err(TrustFault::Twice(format!(
                "the log {}",
                key.verifier.name()
            )));
        }
        self.logs.push(key);
        Ok(())
    }

    fn read_witness(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let (name, vkey, address) = match parts {
            [name, vkey] => (name, vkey, None),
            [name, vkey, url] => (name, vkey, Some((*url).to_owned())),
            _ => return Err(TrustFault::Form("witness NAME VKEY [URL]")),
        };
        let key = note_key(vkey, SignatureType::Cosignature)?;
        // One key under two names would count twice towards a quorum.
        if self.witnesses.iter().any(|other| other.key == key.key) {
            return Err(TrustFault::Twice(format!("the key of witness {name}")));
        }
        let index = self.witnesses.len();
        self.node(name, Rule::Witness(index))?;
        self.witnesses.push(key);
        self.addresses.push(address);
        Ok(())
    }

    fn read_group(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let [name, threshold, names @ ..] = parts else {
            return Err(TrustFault::Form("group NAME any|all|N MEMBER..."));
        };
        let mut members = Vec::new();
        for member in names {
            let index = self.find(member)?;
            if members.contains(&index) {
                return Err(TrustFault::Twice(format!("member {member}")));
            }
            members.push(index);
        }
        let need = match *threshold {
            "any" => 1,
            "all" => members.len(),
            number => usize::try_from(decimal(number)?).map_err(part)?,
        };
        if need == 0 || need > members.len() {
            return Err(part("a group needs between one and all of its members"));
        }
        self.node(name, Rule::Group { need, members })
    }

    fn read_quorum(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let [name] = parts else {
            return Err(TrustFault::Form("quorum NAME|none"));
        };
        if self.quorum.is_some() {
            return Err(TrustFault::Twice("`quorum`".into()));
        }
        self.quorum = Some(match *name {
            "none" => Quorum::None,
            name => Quorum::Node(self.find(name)?),
        });
        Ok(())
    }

    fn read_seal_key(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let (key, tenant, origin, until) = match parts {
            [key, tenant, origin] => (key, tenant, origin, None),
            [key, tenant, origin, "until", index] => (key, tenant, origin, Some(decimal(index)?)),
            _ => {
                return Err(TrustFault::Form(
                    "seal-key BASE64 TENANT ORIGIN [until INDEX]",
                ));
            }
        };
        let (keyid, key) = PublicKey::from_spki(key).map_err(part)?;
        self.pin_once(keyid)?;
        let tenant = tenant.parse().map_err(part)?;
        let origin = origin.parse().map_err(part)?;
        self.seal_keys.insert(
            keyid,
            SealKey {
                key,
                tenant,
                origin,
                until,
            },
        );
        Ok(())
    }

    fn read_agent_key(&mut self, rest: &str) -> Result<(), TrustFault> {
        // An actor's id may have spaces, so it is the rest of the line.
        let (key, actor) = rest
            .split_once([' ', '\t'])
            .ok_or(TrustFault::Form("agent-key BASE64 ACTOR_ID"))?;
        let actor = actor.trim_matches([' ', '\t']).to_owned();
        let (keyid, key) = PublicKey::from_spki(key).map_err(part)?;
        self.pin_once(keyid)?;
        check_actor(&Actor {
            id: actor.clone(),
            keyid: None,
            kind: ActorType::Agent,
        })
        .map_err(TrustFault::Part)?;
        self.agents.insert(actor.clone());
        self.agent_keys.insert(keyid, AgentKey { key, actor });
        Ok(())
    }

    fn read_authority(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let [certificate] = parts else {
            return Err(TrustFault::Form("time-authority BASE64"));
        };
        let der = STANDARD.decode(certificate).map_err(part)?;
        if !authority::is_certificate(&der) {
            return Err(part("not the DER of a certificate"));
        }
        if self.authorities.contains(&der) {
            return Err(TrustFault::Twice("the authority's certificate".into()));
        }
        self.authorities.push(der);
        Ok(())
    }

    fn read_time_anchor(&mut self, parts: &[&str]) -> Result<(), TrustFault> {
        let [seconds] = parts else {
            return Err(TrustFault::Form("time-anchor SECONDS"));
        };
        if self.anchor.is_some() {
            return Err(TrustFault::Twice("`time-anchor`".into()));
        }
        self.anchor = Some(decimal(seconds)?);
        Ok(())
    }

    fn pin_once(&self, keyid: Hash) -> Result<(), TrustFault> {
        if self.seal_keys.contains_key(&keyid) || self.agent_keys.contains_key(&keyid) {
            return Err(TrustFault::Twice(format!("the key {keyid}")));
        }
        Ok(())
    }

    fn node(&mut self, name: &str, rule: Rule) -> Result<(), TrustFault> {
        if name == "none" || self.nodes.iter().any(|node| node.name == name) {
            return Err(TrustFault::Twice(format!("the name {name}")));
        }
        self.nodes.push(Node {
            name: name.to_owned(),
            rule,
        });
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, TrustFault> {
        let found = self.nodes.iter().position(|node| node.name == name);
        found.ok_or_else(|| {
            part(format!(
                "{name:?} is no witness or group of the lines above"
            ))
        })
    }

    /// Whether any log is pinned: without, the ledger is not checked.
    pub fn has_logs(&self) -> bool {
        !self.logs.is_empty()
    }

    /// The origins of the logs that are pinned, in the order of their lines.
    pub fn log_origins(&self) -> impl Iterator<Item = &str> {
        self.logs.iter().map(|log| log.verifier.name())
    }

    /// Whether a log of this origin is pinned.
    pub fn pins(&self, origin: &str) -> bool {
        self.logs_of(origin).next().is_some()
    }

    /// How many agents' keys are pinned.
    pub fn agent_key_count(&self) -> usize {
        self.agent_keys.len()
    }

    /// The logs of an origin.
    pub(crate) fn logs_of<'a>(&'a self, origin: &'a str) -> impl Iterator<Item = &'a NoteKey> {
        self.logs
            .iter()
            .filter(move |log| log.verifier.name() == origin)
    }

    pub(crate) fn witnesses(&self) -> &[NoteKey] {
        &self.witnesses
    }

    /// The pinned witnesses in the order of their lines: verifier key, public key, and address where the line has one.
    pub fn asked(&self) -> impl Iterator<Item = (&VerifierKey, &PublicKey, Option<&str>)> {
        let witnesses = self.witnesses.iter().zip(&self.addresses);
        witnesses.map(|(one, address)| (&one.verifier, &one.key, address.as_deref()))
    }

    pub(crate) fn seal_key(&self, keyid: &Hash) -> Option<&SealKey> {
        self.seal_keys.get(keyid)
    }

    pub(crate) fn agent_key(&self, keyid: &Hash) -> Option<&AgentKey> {
        self.agent_keys.get(keyid)
    }

    /// Whether a key is pinned for this agent.
    pub(crate) fn is_pinned_agent(&self, actor: &str) -> bool {
        self.agents.contains(actor)
    }

    /// Certificates of the time-stamping authorities that are pinned.
    pub(crate) fn authorities(&self) -> &[Vec<u8>] {
        &self.authorities
    }

    /// Whether a quorum of witnesses is asked for.
    pub(crate) fn has_quorum(&self) -> bool {
        matches!(self.quorum, Some(Quorum::Node(_)))
    }

    /// Seconds after `sealed_at` within which a quorum must have cosigned, or an authority have stamped.
    pub(crate) fn anchor_seconds(&self) -> Option<u64> {
        self.anchor
    }

    /// Whether the policy is content with these witnesses, by their place among the lines; without a quorum line nothing
    /// is asked.
    pub fn quorum_met(&self, cosigned: impl Fn(usize) -> bool) -> bool {
        let Some(Quorum::Node(wanted)) = self.quorum else {
            return true;
        };
        // Groups name earlier lines only, so one pass in order settles all of them.
        let mut met: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            met.push(match &node.rule {
                Rule::Witness(index) => cosigned(*index),
                Rule::Group { need, members } => {
                    members.iter().filter(|member| met[**member]).count() >= *need
                }
            });
        }
        met[wanted]
    }
}

fn note_key(vkey: &str, wanted: SignatureType) -> Result<NoteKey, TrustFault> {
    let verifier = VerifierKey::parse(vkey).map_err(part)?;
    if verifier.signature_type() != wanted {
        return Err(part(match wanted {
            SignatureType::Text => "a log's key has type 0x01",
            SignatureType::Cosignature => "a witness's key has type 0x04",
        }));
    }
    let key = PublicKey::from_bytes(verifier.public_key()).map_err(part)?;
    Ok(NoteKey { verifier, key })
}

fn decimal(text: &str) -> Result<u64, TrustFault> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if canonical && digits {
        text.parse().ok()
    } else {
        None
    };
    number.ok_or_else(|| {
        part(format!(
            "{text:?} is no number in digits without leading zeros"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str =
        "log evidence.example/t/9d2v6c1p8h4z+01e040df+ARKeH/1MQRfRc3JdIsmeEOCAnIx0//XkpTZrrxGCO8Vm";
    const W1: &str =
        "witness w1 witness.example/w1+3f5d39a7+BKaKYv/Zvr81vI6YxCnujEsvRZdKZp2MI+Ns2kjLeKl8";
    const W2: &str =
        "witness w2 witness.example/w2+f72117ff+BKzCMvNcKeO2dd/nBXT9eYPmJwEBoOQCBgoYYuL9eC07";
    const SEAL: &str = "seal-key MCowBQYDK2VwAyEAvARux7/No1lqnyf4jOmANpY9IivCGSCBgeDh1IX9iFw= t_7f3k9q2m4x8w evidence.example/t/9d2v6c1p8h4z";
    const AGENT: &str =
        "agent-key MCowBQYDK2VwAyEAjy4arOVm/zcQdESp46N3iP8sG0YI6cXYZSPbbZ9Z2Yg= coder 2";

    fn fault(lines: &[&str]) -> String {
        Trust::parse(&lines.join("\n")).unwrap_err().to_string()
    }

    #[test]
    fn nested_groups_count() {
        let text = [
            LOG,
            W1,
            W2,
            "group any any w1 w2",
            "group both 2 any w2",
            "quorum both",
            SEAL,
            AGENT,
        ]
        .join("\r\n");
        let trust = Trust::parse(&text).unwrap();
        assert!(trust.quorum_met(|_| true));
        assert!(trust.quorum_met(|witness| witness == 1));
        assert!(!trust.quorum_met(|witness| witness == 0));
        assert!(!trust.quorum_met(|_| false));
        assert!(trust.is_pinned_agent("coder 2"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (lines, expected) in [
            (&["nonsense"][..], "unknown line"),
            (&[LOG], "a `quorum` line is missing"),
            (&[LOG, LOG, "quorum none"], "second time"),
            (
                &[
                    W1,
                    "witness w3 witness.example/w1+3f5d39a7+BKaKYv/Zvr81vI6YxCnujEsvRZdKZp2MI+Ns2kjLeKl8",
                ],
                "second time",
            ),
            (&[W1, W1], "second time"),
            (&["quorum w9"], "no witness or group"),
            (&["quorum none", "quorum none"], "second time"),
            (&[W1, "group g 2 w1"], "between one and all"),
            (&[W1, "group g 0 w1"], "between one and all"),
            (&[W1, "group g all"], "between one and all"),
            (&[W1, "group g any w1 w1"], "second time"),
            (&[W1, "group none any w1"], "second time"),
            (&["time-anchor 5"], "needs a quorum"),
            (&["quorum none", "time-anchor 5"], "needs a quorum"),
            (&[W1, "quorum w1", "time-anchor 05"], "leading zeros"),
            (&[SEAL, SEAL], "second time"),
            (&[AGENT, AGENT], "second time"),
            (&["seal-key AAAA t_7f3k9q2m4x8w a/t/b"], "not an Ed25519"),
            (
                &[
                    "seal-key MCowBQYDK2VwAyEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= t_7f3k9q2m4x8w a/t/b",
                ],
                "not an Ed25519",
            ),
            (
                &[
                    "seal-key MCowBQYDK2VwAyEAvARux7/No1lqnyf4jOmANpY9IivCGSCBgeDh1IX9iFw= t_x a/t/b",
                ],
                "a tenant is",
            ),
            (
                &["agent-key MCowBQYDK2VwAyEAvARux7/No1lqnyf4jOmANpY9IivCGSCBgeDh1IX9iFw="],
                "expected: agent-key",
            ),
            (
                &[
                    "log witness.example/w1+3f5d39a7+BKaKYv/Zvr81vI6YxCnujEsvRZdKZp2MI+Ns2kjLeKl8",
                    "quorum none",
                ],
                "type 0x01",
            ),
        ] {
            let found = fault(lines);
            assert!(found.contains(expected), "{lines:?}: {found}");
        }
        let both = SEAL.replace("seal-key", "agent-key");
        assert!(fault(&[SEAL, &both]).contains("second time"));
    }
}
