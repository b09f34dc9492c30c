//! How a call went, as a session says it in its many ways.

use serde_json::Value;

use crate::import::request::{FrameRequest, label};

/// How results begin where a person, or a rule, did not let the tool run.
const DENIED: [&str; 4] = [
    "exec command rejected by user",
    "patch rejected by user",
    "rejected by user",
    "user rejected MCP tool call",
];

/// How a call went.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// `ok`, `error`, `denied` or `not stated`.
    pub status: &'static str,
    /// The exit code of a command.
    pub exit: Option<Value>,
    /// How long it took.
    pub duration_ms: Option<Value>,
}

impl Outcome {
    const UNKNOWN: Self = Self {
        status: "not stated",
        exit: None,
        duration_ms: None,
    };

    /// As the members of a record say it.
    pub fn of(value: &Value) -> Self {
        let flag = |pointer: &str| value.pointer(pointer).and_then(Value::as_bool);
        let member = |name: &str| value.get(name);
        let exit = ["exit_code", "exitCode"].into_iter().find_map(member);
        let exit = exit.filter(|exit| exit.is_i64());
        let said = member("status").and_then(Value::as_str).unwrap_or("");
        let failed = flag("/success") == Some(false)
            || flag("/result/Ok/isError") == Some(true)
            || flag("/result/isError") == Some(true)
            || value.pointer("/result/Err").is_some()
            || said == "failed"
            || exit.is_some_and(|exit| exit.as_i64() != Some(0));
        let done = flag("/success") == Some(true)
            || value.pointer("/result/Ok").is_some()
            || said == "completed"
            || exit.is_some();
        Self {
            status: match () {
                () if said == "declined" => "denied",
                () if failed => "error",
                () if done => "ok",
                () => "not stated",
            },
            exit: exit.cloned(),
            duration_ms: duration(value).and_then(|value| label(&value)),
        }
    }

    /// As the text that the model was shown says it.
    fn of_text(text: &str) -> Self {
        if DENIED.iter().any(|start| text.starts_with(start)) {
            return Self {
                status: "denied",
                ..Self::UNKNOWN
            };
        }
        if text.starts_with('{') {
            let Ok(value) = serde_json::from_str::<Value>(text) else {
                return Self::UNKNOWN;
            };
            let mut outcome = value.get("metadata").map_or(Self::UNKNOWN, Self::of);
            let seconds = value.pointer("/metadata/duration_seconds");
            outcome.duration_ms = seconds.and_then(millis);
            return outcome;
        }
        let mut outcome = Self::UNKNOWN;
        if text.starts_with("Success. Updated the following files") {
            outcome.status = "ok";
        }
        for line in text.lines().take(8).take_while(|line| *line != "Output:") {
            let exit = line
                .strip_prefix("Exit code: ")
                .or_else(|| line.strip_prefix("Process exited with code "));
            if let Some(exit) = exit.and_then(|exit| exit.trim().parse::<i64>().ok()) {
                outcome.status = if exit == 0 { "ok" } else { "error" };
                outcome.exit = Some(exit.into());
            }
            let time = line.strip_prefix("Wall time: ");
            let time = time.and_then(|time| time.strip_suffix(" seconds"));
            if let Some(time) = time.and_then(|time| time.parse::<f64>().ok()) {
                outcome.duration_ms = millis(&time.into());
            }
        }
        outcome
    }

    /// Puts it into the body of a frame.
    pub fn put(&self, frame: &mut FrameRequest) {
        frame.put("status", self.status);
        for (name, value) in [("exit", &self.exit), ("duration_ms", &self.duration_ms)] {
            if let Some(value) = value {
                frame.put(name, value.clone());
            }
        }
    }
}

fn duration(value: &Value) -> Option<Value> {
    if let Some(millis) = value.get("duration_ms") {
        return Some(millis.clone());
    }
    let duration = value.get("duration")?;
    let part = |name: &str| duration.get(name)?.as_u64();
    let seconds = part("secs")?.checked_mul(1_000)?;
    Some(seconds.checked_add(part("nanos")? / 1_000_000)?.into())
}

fn millis(seconds: &Value) -> Option<Value> {
    let millis = (seconds.as_f64()? * 1_000.0).round();
    (0.0..9e15)
        .contains(&millis)
        .then(|| (millis as u64).into())
}

/// How the call went, as the result itself says it.
pub(super) fn shown(value: &Value) -> Outcome {
    let output = value.get("output").or_else(|| value.get("result"));
    let text = match output {
        Some(Value::Array(blocks)) => blocks.iter().find_map(|block| block.get("text")?.as_str()),
        Some(Value::Object(_)) => output.and_then(|output| output.get("text")?.as_str()),
        output => output.and_then(Value::as_str),
    };
    let told = [Some(value), output].into_iter().flatten().map(Outcome::of);
    let told = told.into_iter().find(|told| told.status != "not stated");
    told.unwrap_or_else(|| text.map_or(Outcome::UNKNOWN, Outcome::of_text))
}
