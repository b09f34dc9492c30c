//! `onrecord tail RUN`: a run as it grows.

use super::show::{header, session};
use super::terminal::{BOLD, GOOD, Line, Screen, seconds, show, tell};
use super::timeline::Timeline;
use super::which_run::RunArg;
use crate::client::{Client, ClientError, Event};
use onrecord_core::id::RunId;
use serde_json::Value;
use std::time::Duration;

/// Frames that are shown of what was there before, unless `--from` says otherwise.
const BEFORE: u64 = 10;
/// The pause before the first attempt to follow again, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Arguments of `onrecord tail`.
#[derive(Clone, Debug, clap::Args)]
pub struct TailArgs {
    #[command(flatten)]
    run: RunArg,
    /// Begin with this frame [default: the last ten]
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Whole frames, as `show --full` prints them
    #[arg(long)]
    full: bool,
    /// Print frames as JSON lines in their canonical bytes, and the seal as the last one
    #[arg(long)]
    json: bool,
}

/// Runs the command until the run is sealed.
pub async fn run(args: TailArgs, client: Client) -> anyhow::Result<()> {
    let id = args.run.resolve(&client).await?;
    let run: Value = client.read(&format!("/v1/runs/{id}")).await?;
    let screen = Screen::stdout();
    let session = session(&client, &id).await?;
    if !args.json {
        show(&header(screen, &run, &session))?;
    }
    let size = run["size"].as_u64().unwrap_or(0);
    let from = args.from.unwrap_or(size.saturating_sub(BEFORE));
    let mut tail = Tail {
        timeline: Timeline::new(screen, args.full, &session),
        json: args.json,
        screen,
        next: from,
    };
    let (mut pause, mut connected) = (PAUSE, false);
    loop {
        let before = tail.next;
        let error = match tail.follow(&client, &id).await {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(error) => match error.downcast::<ClientError>() {
                // What was never there is not waited for.
                Ok(error) if is_passing(&error) && (connected || tail.next > before) => Some(error),
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            },
        };
        connected = true;
        if tail.next > before {
            pause = PAUSE;
        }
        let why = error.map_or("the server ended the stream".to_owned(), |error| {
            error.to_string()
        });
        tell(format!("{why}; following again from frame {}", tail.next));
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

/// Whether it may be otherwise in a moment.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::Broken { .. } => true,
        ClientError::Problem(problem) => problem.status >= 500,
        ClientError::Foreign { status, .. } => status.is_server_error(),
        _ => false,
    }
}

struct Tail {
    timeline: Timeline,
    json: bool,
    screen: Screen,
    next: u64,
}

impl Tail {
    /// Follows one stream to its end; true where the run is sealed.
    async fn follow(&mut self, client: &Client, run: &RunId) -> anyhow::Result<bool> {
        let path = format!("/v1/runs/{run}/events?from={}", self.next);
        let mut events = client.events(&path).await?;
        while let Some(Event { id, name, data }) = events.next().await? {
            match name.as_str() {
                "frame" => {
                    self.frame(&data)?;
                    self.next = id.map_or(self.next, |id| id + 1);
                }
                "sealed" => {
                    show(&self.sealed(&data)?)?;
                    return Ok(true);
                }
                // A later server may tell more.
                _ => {}
            }
        }
        Ok(false)
    }

    fn frame(&mut self, data: &str) -> anyhow::Result<()> {
        show(&if self.json {
            format!("{data}\n")
        } else {
            self.timeline.lines(&serde_json::from_str(data)?)
        })
    }

    fn sealed(&self, data: &str) -> anyhow::Result<String> {
        if self.json {
            return Ok(format!("{data}\n"));
        }
        let seal: Value = serde_json::from_str(data)?;
        let text = |name: &str| seal[name].as_str().unwrap_or("");
        let mut line = Line::default();
        line.add(GOOD, "sealed")
            .text(&format!(
                " {}, {}, outcome ",
                seconds(&seal["sealed_at"]),
                text("completeness")
            ))
            .add(BOLD, text("outcome"))
            .text(&format!(
                ", {} frames, ledger entry {}",
                seal["size"], seal["index"]
            ));
        Ok(line.render(self.screen))
    }
}
