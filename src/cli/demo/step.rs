//! The steps that work is made of, each recorded as it is done and shown as it was recorded.

use super::journal::{Entry, Journal};
use super::screen::{Ink, Screen};
use super::workspace::{Answer, PROGRAM, TEST, Workspace, run_test};
use anyhow::ensure;
use serde_json::{Value, json};
use std::fs;

/// The agent and the gate at work on one run.
pub(super) struct Session<'a> {
    /// Where it is shown.
    pub screen: &'a Screen,
    /// Where it is done.
    pub workspace: &'a Workspace,
    /// Who works.
    pub agent: Journal,
    /// Who judges.
    pub gate: Journal,
}

/// What a tool call left on record.
pub(super) struct Call {
    /// Number of the call.
    pub call: u64,
    /// Number of the result.
    pub result: u64,
    /// What the tool answered.
    pub answer: Answer,
}

impl Session<'_> {
    /// Opens a turn, which ends the one before.
    pub async fn turn(&self, number: u64, label: &str, prompt: &str) -> anyhow::Result<()> {
        let turn = self
            .agent
            .append(Entry {
                kind: "turn",
                body: json!({ "label": label, "model": "scripted" }),
                payloads: json!([{ "name": "prompt", "text": prompt }]),
                ..Entry::default()
            })
            .await?;
        let (seqs, kinds) = if number == 1 {
            (vec![turn], "turn")
        } else {
            (vec![turn - 1, turn], "turn_end, turn")
        };
        self.screen
            .frames(&seqs, kinds, Ink::Bold, &format!("turn {number}: {label}"))
    }

    /// Asks the scripted model, which says so.
    pub async fn think(&self, message: &str, thought: &str) -> anyhow::Result<()> {
        let call = self
            .agent
            .append(Entry {
                kind: "model_call",
                body: json!({ "provider": "onrecord-demo", "model": "scripted", "scripted": true, "attempt": 1 }),
                payloads: json!([{ "name": "messages", "json": [{ "role": "user", "content": message }] }]),
                ..Entry::default()
            })
            .await?;
        let result = self
            .agent
            .append(Entry {
                kind: "model_result",
                body: json!({ "finish_reason": "tool_use", "scripted": true }),
                payloads: json!([{ "name": "response", "text": thought }]),
                links: json!([{ "rel": "answers", "seq": call }]),
                ..Entry::default()
            })
            .await?;
        self.screen.frames(
            &[call, result],
            "model_call, model_result",
            Ink::Plain,
            &format!("\"{thought}\""),
        )
    }

    /// The agent's own run of the test.
    pub async fn test(&self, passes: bool) -> anyhow::Result<()> {
        let repository = self.workspace.repository();
        let arguments = json!({ "command": ["sh", TEST] });
        let test = self
            .tool("run_test", arguments, run_test(&repository))
            .await?;
        let exit = test.answer.exit;
        ensure!(
            (exit == 0) == passes,
            "sh {TEST} ended with {exit}: {}",
            test.answer.output
        );
        let ink = if passes { Ink::Green } else { Ink::Red };
        self.show(&test, ink, &format!("sh {TEST}: exit {exit}"))?;
        let failures = test.answer.output.lines();
        for line in failures.filter(|line| line.starts_with("FAILED")) {
            self.screen.more(line)?;
        }
        Ok(())
    }

    /// Records a call before it is made and its result after: if this process were killed between, the
    /// record would show a call of unknown outcome.
    pub async fn tool(
        &self,
        name: &str,
        arguments: Value,
        run: impl Future<Output = anyhow::Result<Answer>>,
    ) -> anyhow::Result<Call> {
        let call = self
            .agent
            .append(Entry {
                kind: "tool_call",
                body: json!({ "name": name, "attempt": 1 }),
                payloads: json!([{ "name": "arguments", "json": arguments }]),
                ..Entry::default()
            })
            .await?;
        let answer = run.await?;
        let result = self
            .agent
            .append(Entry {
                kind: "tool_result",
                body: json!({ "exit": answer.exit }),
                payloads: json!([{ "name": "result", "text": answer.output }]),
                links: json!([{ "rel": "answers", "seq": call }]),
                tool: Some(name),
                ..Entry::default()
            })
            .await?;
        Ok(Call {
            call,
            result,
            answer,
        })
    }

    pub fn show(&self, call: &Call, ink: Ink, text: &str) -> anyhow::Result<()> {
        self.screen.frames(
            &[call.call, call.result],
            "tool_call, tool_result",
            ink,
            text,
        )
    }

    /// The program as it is now, and what it was before.
    pub async fn file_version(
        &self,
        by: &Call,
        before: Option<u64>,
        text: &str,
    ) -> anyhow::Result<u64> {
        let content = fs::read_to_string(self.workspace.repository().join(PROGRAM))?;
        // A version that was found was seen by the call, a new one was made by it.
        let links = match before {
            None => json!([{ "rel": "observed_by", "seq": by.result }]),
            Some(before) => {
                json!([{ "rel": "caused", "seq": by.result }, { "rel": "replaced", "seq": before }])
            }
        };
        let version = self
            .agent
            .append(Entry {
                kind: "file_version",
                body: json!({ "path": PROGRAM }),
                payloads: json!([{ "name": "content", "text": content }]),
                links,
                ..Entry::default()
            })
            .await?;
        self.screen
            .frames(&[version], "file_version", Ink::Plain, text)?;
        Ok(version)
    }

    /// The gate: it takes the candidate by its digest into a folder of its own, and tests it there.
    pub async fn judge(
        &self,
        attempt: u64,
        tree: &str,
        file: u64,
        right: bool,
    ) -> anyhow::Result<u64> {
        let folder = self.workspace.folder().join(format!("gate-{attempt}"));
        self.workspace.checkout(tree, &folder).await?;
        let answer = run_test(&folder).await?;
        let passed = answer.exit == 0;
        let verdict = if passed { "pass" } else { "fail" };
        let gate = self
            .gate
            .append(Entry {
                kind: "gate_result",
                body: json!({
                    "name": TEST,
                    "verifier": "sh",
                    "candidate": tree,
                    "attempt": attempt,
                    "exit": answer.exit,
                    "verdict": verdict,
                }),
                payloads: json!([{ "name": "evidence", "text": answer.output }]),
                links: json!([{ "rel": "uses", "seq": file }]),
                ..Entry::default()
            })
            .await?;
        ensure!(
            passed == right,
            "the gate said {verdict}: {}",
            answer.output
        );
        let (ink, word) = if passed {
            (Ink::Green, "PASS")
        } else {
            (Ink::Red, "FAIL")
        };
        self.screen.frames(
            &[gate],
            "gate_result",
            ink,
            &format!("{word}: the gate's own test of {}", short(tree)),
        )?;
        Ok(gate)
    }
}

/// The beginning of a digest, for people.
pub(super) fn short(digest: &str) -> &str {
    digest.get(..10).unwrap_or(digest)
}
