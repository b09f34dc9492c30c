//! What made-up runs say: who works, with what, and how it ends. Names are few and known, so that questions find many
//! runs; some are rare, so that they find few.

use super::chance::Chance;
use super::{BATCH, Seed};
use onrecord_core::frame::{ActorType, Kind, Rel};
use onrecord_core::timestamp::Timestamp;

const AGENTS: [&str; 20] = [
    "coder",
    "reviewer",
    "researcher",
    "triager",
    "planner",
    "tester",
    "migrator",
    "writer",
    "analyst",
    "browser",
    "refactorer",
    "releaser",
    "debugger",
    "translator",
    "scheduler",
    "buyer",
    "support",
    "auditor",
    "trainer",
    "gardener",
];
const MODELS: [&str; 10] = [
    "opal-4",
    "opal-4-mini",
    "basalt-2",
    "quartz-9",
    "opal-3",
    "slate-70b",
    "marble-1",
    "flint-8b",
    "onyx-5",
    "chalk-2",
];
const TOOLS: [&str; 30] = [
    "shell",
    "read_file",
    "edit_file",
    "search",
    "grep",
    "run_tests",
    "list_files",
    "web_fetch",
    "git_diff",
    "git_commit",
    "sql_query",
    "http_request",
    "write_file",
    "apply_patch",
    "browser_click",
    "browser_read",
    "python",
    "lint",
    "format",
    "build",
    "deploy_preview",
    "read_ticket",
    "write_ticket",
    "send_mail",
    "calendar",
    "vector_search",
    "screenshot",
    "translate",
    "refund",
    "open_pull_request",
];
/// One run in so many calls this tool, the first among them.
const RARE: (u64, &str) = (100_000, "seismograph");
const GATES: [&str; 8] = [
    "unit tests",
    "lint",
    "types",
    "integration tests",
    "security scan",
    "licence check",
    "benchmark",
    "human review",
];
const PROFILES: [&str; 5] = ["coding", "research", "browser", "data", "devops"];
const LABELS: [&str; 12] = [
    "ci",
    "nightly",
    "customer",
    "internal",
    "canary",
    "experiment",
    "urgent",
    "team-a",
    "team-b",
    "team-c",
    "regulated",
    "pilot",
];
pub(super) const REDACTIONS: [&str; 8] = [
    "password",
    "api_key",
    "github_token",
    "jwt",
    "aws_access_key_id",
    "private_key",
    "email",
    "credit_card",
];
/// Microseconds between two frames, about.
const PACE: u64 = 4_000_000;

/// How a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// With its outcome, sealed.
    Full,
    /// In the midst of something, sealed.
    Interrupted,
    /// It goes on.
    Open,
}

/// One run.
pub(super) struct Told {
    /// Time of frame 0.
    pub(super) opened: Timestamp,
    /// Times of the frames after it, and of the end.
    pub(super) times: Vec<Timestamp>,
    pub(super) fate: Fate,
    pub(super) agent: &'static str,
    /// The body of frame 0, without what the store writes itself.
    pub(super) session: String,
    pub(super) session_payload: bool,
    pub(super) steps: Vec<Step>,
    /// What else follows from chance.
    pub(super) chance: Chance,
}

/// A frame after frame 0. One that closes a turn is the store's, and says nothing here.
pub(super) struct Step {
    pub(super) kind: Kind,
    pub(super) actor: (ActorType, &'static str),
    /// Canonical.
    pub(super) body: String,
    pub(super) link: Option<(Rel, u64)>,
    /// Whether it stands in the open turn.
    pub(super) in_turn: bool,
    pub(super) payload: bool,
}

/// All runs.
pub(super) struct Story {
    seed: Seed,
    began: Timestamp,
    now: Timestamp,
}

impl Story {
    pub(super) fn new(seed: &Seed, began: Timestamp, now: Timestamp) -> Self {
        Self {
            seed: seed.clone(),
            began,
            now,
        }
    }

    /// The run of a number from 0. Runs of one batch have a time of their own, at whose end all are over, so that a ledger
    /// that is written batch by batch never goes back.
    pub(super) fn run(&self, number: u64) -> Told {
        let mut chance = Chance::of(self.seed.seed, number);
        let (opened, room) = self.opened(number, &mut chance);
        let young = self.now.micros() - opened.micros() < 6 * 3_600_000_000;
        let fate = match chance.below(1_000) {
            _ if young && chance.permille(300) => Fate::Open,
            0..20 => Fate::Interrupted,
            _ => Fate::Full,
        };
        let agent = chance.of_many(&AGENTS);
        let model = chance.of_many(&MODELS);
        let session = self.session(opened, (agent, model), &mut chance);
        let mut told = Told {
            times: times(opened, room, self.seed.frames, &mut chance),
            steps: Teller::new((agent, model), &mut chance).tell(self.seed.frames, fate, number),
            opened,
            fate,
            agent,
            session,
            session_payload: false,
            chance,
        };
        told.give_payloads(self.seed.payloads);
        told
    }

    /// When a run is opened, and how many microseconds it may take.
    fn opened(&self, number: u64, chance: &mut Chance) -> (Timestamp, u64) {
        let batches = self.seed.runs.div_ceil(BATCH);
        let batch = number / BATCH;
        let all = u64::try_from(self.now.micros() - self.began.micros()).unwrap_or(0);
        let window = all / batches;
        // As long as the longest run takes, unless there are so many runs that they have to hurry.
        let room = (2 * PACE * (self.seed.frames + 1)).min(window / 2);
        let slot = (window - room) / BATCH.min(self.seed.runs - batch * BATCH);
        let offset = batch * window + number % BATCH * slot + chance.below(slot);
        let opened = self.began.micros().saturating_add_unsigned(offset);
        (Timestamp::from_micros(opened).unwrap_or(self.began), room)
    }

    fn session(
        &self,
        opened: Timestamp,
        (agent, model): (&str, &str),
        chance: &mut Chance,
    ) -> String {
        // A release a week, and now and then an older one.
        let week = (opened.micros() - self.began.micros()) / (7 * super::DAY_MICROS);
        let release = u64::try_from(week)
            .unwrap_or(0)
            .saturating_sub(chance.below(8) / 7);
        let mut labels: Vec<&str> = (0..chance.below(4))
            .map(|_| chance.of_many(&LABELS))
            .collect();
        labels.sort_unstable();
        labels.dedup();
        let labels: Vec<String> = labels.iter().map(|label| format!("\"{label}\"")).collect();
        let profile = chance.of_many(&PROFILES);
        let mut members = vec![
            format!(r#""agent":"{agent}""#),
            format!(r#""labels":[{}]"#, labels.join(",")),
        ];
        if chance.permille(800) {
            members.push(format!(r#""mandate":"mandate-{}""#, chance.below(40)));
        }
        if chance.permille(900) {
            let commit = chance.hex(40);
            members.push(format!(
                r#""pins":{{"model":"{model}","repository":{{"branch":"main","commit":"{commit}","dirty":false}}}}"#
            ));
        }
        members.push(format!(r#""profile":"{profile}""#));
        if chance.permille(950) {
            members.push(format!(
                r#""release":"{agent}-{}.{release}""#,
                1 + release / 10
            ));
        }
        format!("{{{}}}", members.join(","))
    }
}

/// Times of the frames after the first, and of the end: within what a run may take.
fn times(opened: Timestamp, room: u64, frames: u64, chance: &mut Chance) -> Vec<Timestamp> {
    let mut gaps: Vec<u64> = (0..=frames)
        .map(|_| 100_000 + chance.below(2 * PACE))
        .collect();
    let sum: u64 = gaps.iter().sum();
    if sum > room {
        let shorter =
            |gap: &mut u64| *gap = (u128::from(*gap) * u128::from(room) / u128::from(sum)) as u64;
        gaps.iter_mut().for_each(shorter);
    }
    let mut at = opened.micros();
    let passed = gaps.into_iter().map(|gap| {
        at = at.saturating_add_unsigned(gap);
        Timestamp::from_micros(at).unwrap_or(opened)
    });
    passed.collect()
}

impl Told {
    /// Chooses the frames that have payloads.
    fn give_payloads(&mut self, count: u64) {
        let mut places: Vec<usize> = (0..self.steps.len())
            .filter(|place| self.steps[*place].kind != Kind::TurnEnd)
            .collect();
        for given in 0..count {
            // The task first, as agents record it.
            if given == 0 {
                self.session_payload = true;
                continue;
            }
            if places.is_empty() {
                return;
            }
            let chosen = places.swap_remove(self.chance.below(places.len() as u64) as usize);
            self.steps[chosen].payload = true;
        }
    }
}

/// Tells the frames of a run after its first.
struct Teller<'a> {
    chance: &'a mut Chance,
    agent: &'static str,
    model: &'static str,
    steps: Vec<Step>,
    /// Frames since the turn began.
    in_turn: u64,
    attempts: u64,
}

impl<'a> Teller<'a> {
    fn new((agent, model): (&'static str, &'static str), chance: &'a mut Chance) -> Self {
        Self {
            chance,
            agent,
            model,
            steps: Vec::new(),
            in_turn: 0,
            attempts: 0,
        }
    }

    /// So many frames in all, of which the first, and the last that the seal writes, are not told here.
    fn tell(mut self, frames: u64, fate: Fate, number: u64) -> Vec<Step> {
        let (at_the_seal, at_the_end) = match fate {
            Fate::Full => (2, 2),
            Fate::Interrupted => (1, 0),
            Fate::Open => (0, 0),
        };
        let last = frames - 1 - at_the_seal - at_the_end;
        self.turn();
        if number.is_multiple_of(RARE.0) {
            self.call(RARE.1);
        }
        while (self.steps.len() as u64) < last {
            let left = last - self.steps.len() as u64;
            let new_turn = self.in_turn >= 5 && left >= 3 && self.chance.permille(500);
            match self.chance.below(10) {
                _ if left == 1 => self.remark(),
                _ if new_turn => {
                    self.say(Kind::TurnEnd, String::new());
                    self.turn();
                }
                0..6 => {
                    let tool = self.chance.of_many(&TOOLS);
                    self.call(tool);
                }
                6..8 => self.ask(),
                _ => self.remark(),
            }
        }
        if fate == Fate::Full {
            self.end();
        }
        self.steps
    }

    fn say(&mut self, kind: Kind, body: String) {
        self.say_as((ActorType::Agent, self.agent), kind, body, None);
    }

    fn say_as(
        &mut self,
        actor: (ActorType, &'static str),
        kind: Kind,
        body: String,
        link: Option<(Rel, u64)>,
    ) {
        self.in_turn = if kind == Kind::Turn {
            0
        } else {
            self.in_turn + 1
        };
        self.steps.push(Step {
            kind,
            actor,
            body,
            link,
            in_turn: kind != Kind::Outcome,
            payload: false,
        });
    }

    /// The place of the last frame.
    fn last(&self) -> u64 {
        self.steps.len() as u64
    }

    fn turn(&mut self) {
        self.say(Kind::Turn, format!(r#"{{"model":"{}"}}"#, self.model));
    }

    fn call(&mut self, tool: &'static str) {
        self.say(Kind::ToolCall, format!(r#"{{"name":"{tool}"}}"#));
        // Whoever dies in between leaves a call without a result.
        if self.chance.permille(3) {
            return self.remark();
        }
        let (exit, status) = match self.chance.below(100) {
            0..6 => (1 + self.chance.below(2), "error"),
            6 => (126, "denied"),
            _ => (0, "ok"),
        };
        let answers = Some((Rel::Answers, self.last()));
        let body = format!(r#"{{"exit":{exit},"status":"{status}"}}"#);
        self.say_as((ActorType::Tool, tool), Kind::ToolResult, body, answers);
    }

    fn ask(&mut self) {
        let model = if self.chance.permille(50) {
            self.chance.of_many(&MODELS)
        } else {
            self.model
        };
        let body = format!(
            r#"{{"model":"{model}","provider":"quarry","revision":"r{}"}}"#,
            self.chance.below(4)
        );
        self.say(Kind::ModelCall, body);
        let (input, output) = (
            200 + self.chance.below(20_000),
            10 + self.chance.below(2_000),
        );
        let answers = Some((Rel::Answers, self.last()));
        let body = format!(
            r#"{{"model":"{model}","usage":{{"input_tokens":{input},"output_tokens":{output}}}}}"#
        );
        self.say_as(
            (ActorType::Agent, self.agent),
            Kind::ModelResult,
            body,
            answers,
        );
    }

    /// A frame that stands alone.
    fn remark(&mut self) {
        let some = self.chance.below(400);
        match self.chance.below(20) {
            0..4 => self.say(
                Kind::FileVersion,
                format!(r#"{{"change":"update","path":"src/part_{some}.rs"}}"#),
            ),
            4..8 => {
                let body = format!(r#"{{"environment":"env-{}","source":"user"}}"#, some % 7);
                self.say(Kind::Observation, body);
            }
            8..11 => {
                let by_human = self.chance.permille(100);
                let actor = if by_human {
                    (ActorType::Human, "operator")
                } else {
                    (ActorType::Agent, self.agent)
                };
                let body = format!(
                    r#"{{"policy_version":"p{}","selected":"option-{}"}}"#,
                    some % 5,
                    some % 3
                );
                self.say_as(actor, Kind::Decision, body, None);
            }
            11..14 => {
                let gate = self.chance.of_many(&GATES);
                let candidate = self.chance.hex(40);
                self.gate(gate, &candidate);
            }
            14..16 => self.say(
                Kind::Retrieval,
                format!(r#"{{"index":"docs-{}","retriever":"bm25"}}"#, some % 4),
            ),
            16 => self.say(
                Kind::Memory,
                format!(r#"{{"action":"read","item":"m-{some}"}}"#),
            ),
            17 => self.say(Kind::Context, r#"{"action":"compacted"}"#.to_owned()),
            18 => self.say(Kind::SideEffect, format!(r#"{{"operation":"op-{some}"}}"#)),
            _ => self.say(Kind::Snapshot, format!(r#"{{"snapshot":"s-{some}"}}"#)),
        }
    }

    /// What a gate says of a candidate; whether it passed.
    fn gate(&mut self, gate: &str, candidate: &str) -> bool {
        let verdict = match self.chance.below(1_000) {
            0..60 => "fail",
            60..85 => "error",
            85..100 => "skipped",
            _ => "pass",
        };
        self.attempts += 1;
        let body = format!(
            r#"{{"attempt":{},"candidate":"{candidate}","name":"{gate}","verdict":"{verdict}"}}"#,
            self.attempts
        );
        let uses = Some((Rel::Uses, self.last()));
        let verifier = if gate == "human review" {
            (ActorType::Human, "reviewer")
        } else {
            (ActorType::Verifier, "ci")
        };
        self.say_as(verifier, Kind::GateResult, body, uses);
        verdict == "pass"
    }

    fn end(&mut self) {
        let gate = self.chance.of_many(&GATES);
        let candidate = self.chance.hex(40);
        let passed = self.gate(gate, &candidate);
        let status = match (passed, self.chance.below(100)) {
            (true, 0..2) | (false, 0..10) => "cancelled",
            (true, _) => "completed",
            (false, _) => "failed",
        };
        let verified = passed.then_some((Rel::VerifiedBy, self.last()));
        let body = format!(r#"{{"candidate":"{candidate}","status":"{status}"}}"#);
        self.say_as(
            (ActorType::Agent, self.agent),
            Kind::Outcome,
            body,
            verified,
        );
    }
}
