//! The formats that can be imported: their names, and the modules that read them.

use std::path::{Path, PathBuf};

use super::sample::Sample;
use super::{ImportError, Transcript};
use super::{
    antigravity, chat, claude, codex, codex_exec, copilot, cursor, droid, gemini, grok, inspect,
    langfuse, mini_swe, opencode, openhands, swe,
};

/// A format that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A session of Claude Code: JSON lines.
    ClaudeCode,
    /// A rollout of Codex: JSON lines.
    Codex,
    /// What `codex exec --json` prints: JSON lines.
    CodexExec,
    /// A session of Gemini CLI: one JSON object or JSON lines; or the recorded answers of its model.
    GeminiCli,
    /// A session of Copilot CLI: JSON lines.
    Copilot,
    /// A transcript of Cursor: JSON lines.
    Cursor,
    /// A session of Factory's Droid: JSON lines.
    Droid,
    /// A chat of Grok's command line: JSON lines.
    Grok,
    /// A session of OpenCode: a folder of small JSON files, named by the session's own.
    OpenCode,
    /// A transcript of Antigravity: JSON lines or Markdown.
    Antigravity,
    /// A trajectory of SWE-agent: one JSON object.
    SweAgent,
    /// A trajectory of mini-swe-agent: one JSON object.
    MiniSweAgent,
    /// Histories, events and completions of OpenHands.
    OpenHands,
    /// A log of Inspect: one JSON object, or an `.eval` archive.
    Inspect,
    /// A trace exported from Langfuse: one JSON object.
    Langfuse,
    /// A plain chat: a list of messages as the APIs of OpenAI and Anthropic have them, or Markdown.
    Chat,
}

impl Format {
    /// Every format, in the order in which detection tries them: those that are told by members of
    /// their own before those that much could be.
    pub const ALL: [Self; 16] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::CodexExec,
        Self::GeminiCli,
        Self::Copilot,
        Self::Cursor,
        Self::Droid,
        Self::Grok,
        Self::OpenCode,
        Self::Antigravity,
        Self::OpenHands,
        Self::SweAgent,
        Self::MiniSweAgent,
        Self::Inspect,
        Self::Langfuse,
        Self::Chat,
    ];

    /// The format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name)
    }

    /// The name on the command line and in `session` frames.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::CodexExec => "codex-exec",
            Self::GeminiCli => "gemini-cli",
            Self::Copilot => "copilot",
            Self::Cursor => "cursor",
            Self::Droid => "droid",
            Self::Grok => "grok",
            Self::OpenCode => "opencode",
            Self::Antigravity => "antigravity",
            Self::SweAgent => "swe-agent",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::OpenHands => "openhands",
            Self::Inspect => "inspect",
            Self::Langfuse => "langfuse",
            Self::Chat => "chat",
        }
    }

    /// Whether the file that this sample was taken from is of the format.
    pub(super) fn fits(self, sample: &Sample) -> bool {
        match self {
            Self::ClaudeCode => claude::fits(sample),
            Self::Codex => codex::fits(sample),
            Self::CodexExec => codex_exec::fits(sample),
            Self::GeminiCli => gemini::fits(sample),
            Self::Copilot => copilot::fits(sample),
            Self::Cursor => cursor::fits(sample),
            Self::Droid => droid::fits(sample),
            Self::Grok => grok::fits(sample),
            Self::OpenCode => opencode::fits(sample),
            Self::Antigravity => antigravity::fits(sample),
            Self::SweAgent => swe::fits(sample),
            Self::MiniSweAgent => mini_swe::fits(sample),
            Self::OpenHands => openhands::fits(sample),
            Self::Inspect => inspect::fits(sample),
            Self::Langfuse => langfuse::fits(sample),
            Self::Chat => chat::fits(sample),
        }
    }

    /// Opens a file of the format; `session` replaces the session id that the file or its name gives.
    pub(super) fn open(
        self,
        path: &Path,
        session: Option<&str>,
    ) -> Result<Box<dyn Transcript>, ImportError> {
        match self {
            Self::ClaudeCode => claude::open(path, session),
            Self::Codex => codex::open(path, session),
            Self::CodexExec => codex_exec::open(path, session),
            Self::GeminiCli => gemini::open(path, session),
            Self::Copilot => copilot::open(path, session),
            Self::Cursor => cursor::open(path, session),
            Self::Droid => droid::open(path, session),
            Self::Grok => grok::open(path, session),
            Self::OpenCode => opencode::open(path, session),
            Self::Antigravity => antigravity::open(path, session),
            Self::SweAgent => swe::open(path, session),
            Self::MiniSweAgent => mini_swe::open(path, session),
            Self::OpenHands => openhands::open(path, session),
            Self::Inspect => inspect::open(path, session),
            Self::Langfuse => langfuse::open(path, session),
            Self::Chat => chat::open(path, session),
        }
    }

    /// The folders whose files are read along with a session's own file, and may grow without it; `session` is
    /// the id that its `session` frame has.
    pub fn folders(self, path: &Path, session: Option<&str>) -> Vec<PathBuf> {
        match self {
            Self::OpenCode => opencode::folders(path, session),
            Self::OpenHands => openhands::folders(path),
            _ => Vec::new(),
        }
    }

    /// Why a file is not of the format that was asked for.
    pub(super) fn refused(self, path: &Path, why: impl Into<String>) -> ImportError {
        ImportError::NotThisFormat {
            path: path.to_owned(),
            format: self,
            why: why.into(),
        }
    }
}
