//! The agent: what it does is real, what it thinks is a script.

use super::journal::{Entry, Journal};
use super::screen::{Ink, Screen};
use super::step::{Session, short};
use super::workspace::{Answer, PROGRAM, TEST, Workspace};
use crate::client::{Client, ClientError};
use anyhow::{bail, ensure};
use onrecord_core::id::RunId;
use serde_json::{Value, json};
use std::fs;

/// Who works, and who judges.
pub(super) const AGENT: &str = "demo-agent";
pub(super) const GATE: &str = "demo-gate";
/// What the agent is asked for.
const TASK: &str =
    "days.sh says that 1900 has 366 days, but it had 365. Repair days.sh until test.sh passes.";

/// An idea of the scripted model, and the patch that it makes of it.
struct Attempt {
    label: &'static str,
    thought: &'static str,
    patch: &'static str,
    right: bool,
}

const ATTEMPTS: [Attempt; 2] = [
    Attempt {
        label: "first patch",
        thought: "A year that 100 divides has 365 days.",
        patch: include_str!("work/first.patch"),
        right: false,
    },
    Attempt {
        label: "second patch",
        thought: "But one that 400 divides has 366.",
        patch: include_str!("work/second.patch"),
        right: true,
    },
];

/// What is left when the work is done.
pub(super) struct Work {
    /// The run.
    pub run: RunId,
    /// The gate result that failed.
    pub failed_gate: u64,
    /// Frames so far.
    pub size: u64,
}

/// What became of an attempt.
struct Candidate {
    tree: String,
    file: u64,
    gate: u64,
}

/// Lets the agent repair the program, and records every step.
pub(super) async fn work(
    screen: &Screen,
    workspace: &Workspace,
    agent: Client,
    gate: Client,
) -> anyhow::Result<Work> {
    workspace.prepare().await?;
    let run = open(screen, workspace, &agent).await?;
    let session = Session {
        screen,
        workspace,
        agent: Journal::new(agent, run.clone(), "agent"),
        gate: Journal::new(gate, run.clone(), "gate"),
    };
    let file = session.look().await?;
    let [first, second] = &ATTEMPTS;
    let failed = session.attempt(2, first, file).await?;
    session.judge_itself(&failed).await?;
    let passed = session.attempt(3, second, failed.file).await?;
    let size = session.finish(&failed, &passed).await?;
    Ok(Work {
        run,
        failed_gate: failed.gate,
        size,
    })
}

/// Opens the run with what the work depends on.
async fn open(screen: &Screen, workspace: &Workspace, agent: &Client) -> anyhow::Result<RunId> {
    let state = workspace.state().await?;
    let request = json!({
        "session": {
            "agent": AGENT,
            "mandate": "repair",
            "profile": "coding",
            "release": concat!("onrecord-demo-", env!("CARGO_PKG_VERSION")),
            "pins": {
                "repository": {
                    "commit": state.commit,
                    "branch": state.branch,
                    "dirty": state.dirty > 0,
                    "untracked": state.untracked,
                },
                "model": "scripted",
                "toolchain": workspace.git_version(),
            },
        },
        "key": format!("{}/session", workspace.name()),
        "payloads": [{ "name": "task", "text": TASK }],
    });
    let run = Journal::open(agent, &request).await?;
    let clean = if state.dirty > 0 { "dirty" } else { "clean" };
    let commit = short(&state.commit);
    screen.columns()?;
    screen.frames(&[0], "session", Ink::Plain, &format!("run {run}"))?;
    screen.more(&format!("commit {commit} on {}, {clean}", state.branch))?;
    Ok(run)
}

impl Session<'_> {
    /// Turn 1: the agent reads, and sees the test fail. The first version of the file.
    async fn look(&self) -> anyhow::Result<u64> {
        self.turn(1, "look", TASK).await?;
        self.think(TASK, "First I read the program and its test.")
            .await?;
        let mut file = 0;
        for name in [PROGRAM, TEST] {
            let text = fs::read_to_string(self.workspace.repository().join(name))?;
            let lines = text.lines().count();
            let answer = Answer {
                exit: 0,
                output: text,
            };
            let arguments = json!({ "path": name });
            let read = self
                .tool("read_file", arguments, async { Ok(answer) })
                .await?;
            self.show(&read, Ink::Plain, &format!("read {name}, {lines} lines"))?;
            if name == PROGRAM {
                file = self.file_version(&read, None, "as found").await?;
            }
        }
        self.test(false).await?;
        Ok(file)
    }

    /// A turn: idea, patch, test, and the gate's own test of exactly these files.
    async fn attempt(
        &self,
        turn: u64,
        attempt: &Attempt,
        before: u64,
    ) -> anyhow::Result<Candidate> {
        self.turn(turn, attempt.label, "Go on until the test passes.")
            .await?;
        self.think(attempt.label, attempt.thought).await?;
        let applied = self
            .tool(
                "apply_patch",
                json!({ "patch": attempt.patch }),
                self.workspace.apply(attempt.patch),
            )
            .await?;
        ensure!(
            applied.answer.exit == 0,
            "the patch does not fit: {}",
            applied.answer.output
        );
        self.show(&applied, Ink::Plain, &format!("patch {PROGRAM}"))?;
        for line in attempt.patch.lines() {
            if line.starts_with('+') && !line.starts_with("+++") {
                self.screen.more(line)?;
            }
        }
        let file = self
            .file_version(
                &applied,
                Some(before),
                &format!("{PROGRAM}, replaces that of {before}"),
            )
            .await?;
        self.test(attempt.right).await?;
        let tree = self.workspace.tree().await?;
        let gate = self.judge(turn - 1, &tree, file, attempt.right).await?;
        Ok(Candidate { tree, file, gate })
    }

    /// An agent that would rather judge itself is refused.
    async fn judge_itself(&self, candidate: &Candidate) -> anyhow::Result<()> {
        let verdict = json!({
            "kind": "gate_result",
            "key": "demo/agent/pass",
            "actor": { "type": "verifier", "id": GATE },
            "body": { "name": TEST, "candidate": candidate.tree, "verdict": "pass" },
        });
        let path = format!("/v1/runs/{}/frames", self.agent.run());
        let posted: Result<(_, Value), ClientError> =
            self.agent.client().post(&path, &verdict).await;
        match posted {
            Err(error) if error.code() == Some("actor_not_yours") => {
                self.screen.frames(
                    &[],
                    "(gate_result)",
                    Ink::Plain,
                    "refused: the agent posts a PASS of its own",
                )?;
                self.screen.more("403 actor_not_yours")
            }
            Err(error) => Err(error.into()),
            Ok(_) => bail!("the agent could post a verdict of its own"),
        }
    }

    /// The choice between the candidates, the commit, and the outcome.
    async fn finish(&self, failed: &Candidate, passed: &Candidate) -> anyhow::Result<u64> {
        let decision = self
            .agent
            .append(Entry {
                kind: "decision",
                body: json!({
                    "alternatives": [failed.tree, passed.tree],
                    "selected": passed.tree,
                    "reason_code": "GATE_PASSED",
                    "policy_version": "demo-1",
                }),
                payloads: json!([{ "name": "state", "json": { "gates": { "failed": failed.gate, "passed": passed.gate } } }]),
                links: json!([{ "rel": "derived_from", "seq": failed.gate }, { "rel": "derived_from", "seq": passed.gate }]),
                ..Entry::default()
            })
            .await?;
        let tree = short(&passed.tree);
        self.screen.frames(
            &[decision],
            "decision",
            Ink::Plain,
            &format!("{tree} rather than {}", short(&failed.tree)),
        )?;
        let message = "Centuries are leap years if 400 divides them";
        let committed = self
            .tool(
                "commit",
                json!({ "message": message }),
                self.workspace.commit(message),
            )
            .await?;
        let state = self.workspace.state().await?;
        ensure!(
            committed.answer.exit == 0 && state.dirty + state.untracked == 0,
            "the repair was not committed: {}",
            committed.answer.output
        );
        let commit = short(&state.commit);
        self.show(&committed, Ink::Plain, &format!("commit {commit}"))?;
        let outcome = self
            .agent
            .append(Entry {
                kind: "outcome",
                body: json!({
                    "status": "completed",
                    "candidate": passed.tree,
                    "commit": state.commit,
                }),
                links: json!([
                    { "rel": "verified_by", "seq": passed.gate },
                    { "rel": "selected_by", "seq": decision },
                ]),
                run_level: true,
                ..Entry::default()
            })
            .await?;
        self.screen.frames(
            &[outcome],
            "outcome",
            Ink::Green,
            &format!("completed: {tree}, verified by {}", passed.gate),
        )?;
        Ok(outcome + 1)
    }
}
