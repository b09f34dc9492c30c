//! The load: connections that send as fast as they are answered, on a thread of their own, and what came
//! of it.

use super::connection::{Broken, Connection, Place, acknowledged};
use super::process;
use super::request::{Destination, Prepared, Shape};
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause after a connection that broke, so that a server that is gone is not run over when it comes back.
const PAUSE: Duration = Duration::from_millis(20);

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The server.
    pub place: Place,
    /// What its requests name.
    pub to: Destination,
    /// The runs, shared out among the connections.
    pub runs: Arc<Vec<String>>,
    /// Connections.
    pub connections: u32,
    /// Frames of one request.
    pub frames: usize,
    /// The frames.
    pub shape: Shape,
    /// When the last request is sent, from the beginning.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Requests that were answered.
    pub requests: u64,
    /// Frames that the server acknowledged as new and durable.
    pub acknowledged: u64,
    /// How long each answered request took, in microseconds.
    pub micros: Vec<u32>,
    /// Frames that were refused, by status and code.
    pub refused: BTreeMap<String, u64>,
    /// Requests without an answer, by what happened.
    pub errors: BTreeMap<String, u64>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Processor time of the load itself.
    pub cpu: Option<Duration>,
}

impl Load {
    /// Sends it, on a new thread.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made, or no connection can.
    pub async fn send(self) -> anyhow::Result<Tally> {
        let (done, result) = tokio::sync::oneshot::channel();
        std::thread::Builder::new()
            .name("load".to_owned())
            .spawn(move || {
                let _ = done.send(self.run());
            })
            .context("no thread for the load")?;
        result.await.context("the load's thread ended")?
    }

    fn run(self) -> anyhow::Result<Tally> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let connections = self.connect().await?;
            let load = Arc::new(self);
            let began = Instant::now();
            let cpu = process::of_this_thread();
            let mut tasks = JoinSet::new();
            for (number, connection) in (0_u32..).zip(connections) {
                let producer = Producer::new(&load, number, connection, began + load.time);
                tasks.spawn(producer.produce());
            }
            let mut tally = Tally::default();
            while let Some(one) = tasks.join_next().await {
                tally.add(one?);
            }
            tally.elapsed = began.elapsed();
            tally.cpu = process::of_this_thread()
                .zip(cpu)
                .map(|(after, before)| after.saturating_sub(before));
            tally.micros.sort_unstable();
            Ok(tally)
        })
    }

    /// All connections, before the clock runs.
    async fn connect(&self) -> anyhow::Result<Vec<Connection>> {
        let mut connections = Vec::new();
        for number in 0..self.connections {
            let connection = Connection::open(&self.place).await;
            connections.push(connection.with_context(|| {
                format!("no connection to {}, after {number} of them", self.place)
            })?);
        }
        Ok(connections)
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.acknowledged += other.acknowledged;
        self.micros.extend(other.micros);
        for (name, count) in other.refused {
            *self.refused.entry(name).or_default() += count;
        }
        for (name, count) in other.errors {
            *self.errors.entry(name).or_default() += count;
        }
    }
}

/// One connection's work.
struct Producer {
    load: Arc<Load>,
    prepared: Prepared,
    connection: Option<Connection>,
    /// The place of the next run.
    run: usize,
    until: Instant,
    tally: Tally,
}

impl Producer {
    fn new(load: &Arc<Load>, number: u32, connection: Connection, until: Instant) -> Self {
        Self {
            prepared: Prepared::new(&load.to, load.shape, load.frames, number),
            load: Arc::clone(load),
            connection: Some(connection),
            run: number as usize,
            until,
            tally: Tally::default(),
        }
    }

    async fn produce(mut self) -> Tally {
        while Instant::now() < self.until {
            if let Err(broken) = self.request().await {
                *self.tally.errors.entry(broken).or_default() += 1;
                self.connection = None;
                tokio::time::sleep(PAUSE).await;
            }
        }
        self.tally
    }

    /// Sends one request; an error by its name.
    async fn request(&mut self) -> Result<(), String> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            closed => closed.insert(
                Connection::open(&self.load.place)
                    .await
                    .map_err(|broken| broken.to_string())?,
            ),
        };
        // With as many runs as connections each has its own; with fewer they share, with more they take turns.
        let run = &self.load.runs[self.run % self.load.runs.len()];
        self.run += self.load.connections as usize;
        let request = self.prepared.next(run);
        let began = Instant::now();
        let answer = tokio::time::timeout(PATIENCE, connection.ask(request)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(Broken::Io(std::io::ErrorKind::TimedOut.into())))
            .map_err(|broken| broken.to_string())?;
        let micros = began.elapsed().as_micros();
        self.tally.requests += 1;
        self.tally
            .micros
            .push(u32::try_from(micros).unwrap_or(u32::MAX));
        self.tally.acknowledged +=
            acknowledged(&answer, self.load.frames as u64, &mut self.tally.refused);
        if answer.closes {
            self.connection = None;
        }
        Ok(())
    }
}
