//! A session: everything that is measured, round by round.

use super::BenchArgs;
use super::baseline::Plain;
use super::connection::Place;
use super::load::Load;
use super::process;
use super::report::{Number, Report, Sample, Series, count};
use super::request::{Destination, filler};
use super::runs::{self, Sized};
use super::server::PrivateServer;
use super::workload::{Baseline, Item, Plan, Workload, items, ratios};
use crate::cli::terminal;
use crate::client::{Client, ServerArgs, unix_path};
use crate::postgres::Installation;
use crate::store::yardstick::Gauge;
use anyhow::{Context as _, bail, ensure};
use std::sync::Arc;
use std::time::Duration;

/// What is loaded, and what it is measured with.
pub(super) struct Session<'a> {
    args: &'a BenchArgs,
    client: Client,
    place: Place,
    to: Destination,
    /// The server's process, where it is known.
    server: Option<u32>,
    /// PostgreSQL's first process, where it is on this machine.
    postmaster: Option<u32>,
    gauge: Option<Gauge>,
    plain: Option<Plain>,
    /// Frames of the wanted size: without a payload, and with one.
    sizes: Option<(Sized, Sized)>,
}

/// Counters before a measurement.
struct Before {
    server: Option<Duration>,
    postgres: Option<Duration>,
}

impl<'a> Session<'a> {
    /// Looks at everything that is needed.
    ///
    /// # Errors
    /// The address or the token is of no use, or something does not answer.
    pub async fn begin(
        args: &'a BenchArgs,
        private: Option<&PrivateServer>,
    ) -> anyhow::Result<Self> {
        let (url, token) = match private {
            Some(server) => (server.url.clone(), Some(server.token.clone())),
            None => (args.url.clone().unwrap_or_default(), args.token.clone()),
        };
        let server = ServerArgs { url, token };
        let client = Client::new(&server)?;
        let (place, to) = destination(&server).await?;
        let database_url = match private {
            Some(server) => Some(&server.database_url),
            None => args.database_url.as_ref(),
        };
        ensure!(
            !args.baseline || database_url.is_some(),
            "with --url, --baseline needs --database-url: a PostgreSQL in which it may make a database of its own"
        );
        let mut gauge = match database_url {
            Some(url) => Some(Gauge::connect(url).await?),
            None => None,
        };
        let mut postmaster = None;
        if let Some(gauge) = &mut gauge {
            gauge
                .sizes()
                .await
                .context("--database-url is to name the server's own database")?;
            postmaster = gauge.backend().await?.and_then(process::postmaster);
        }
        let mut session = Self {
            args,
            client,
            place,
            to,
            server: private.and_then(PrivateServer::pid),
            postmaster,
            gauge,
            plain: None,
            sizes: None,
        };
        if private.is_none() {
            terminal::tell(format_args!(
                "loading {}: its runs stay there, sealed as interrupted, of the agent onrecord-bench",
                session.client.base()
            ));
        }
        if let (true, Some(url)) = (args.baseline, database_url) {
            let programs = match private {
                Some(server) => Some(server.postgres_bin.clone()),
                // Without programs the loop is our own, which the report says.
                None => Installation::find(args.postgres_bin.as_deref())
                    .ok()
                    .map(|found| found.bin_dir().to_owned()),
            };
            session.plain = Some(Plain::create(url, programs.as_deref()).await?);
        }
        Ok(session)
    }

    /// Measures everything in rounds.
    pub async fn measure(&mut self) -> anyhow::Result<Report> {
        self.sizes = Some(self.sized().await?);
        let mut series: Vec<Series> = Vec::new();
        for item in items(self.args) {
            let (plan, by) = match item {
                Item::Ours(workload) => (workload.plan(self.args), None),
                Item::Plain(baseline) => {
                    let insert = baseline.insert(self.args);
                    let bytes = self.row_bytes(baseline)?;
                    let by = self.plain.as_ref().map(|plain| plain.by(insert, bytes));
                    (baseline.plan(self.args), by)
                }
            };
            series.push(Series {
                item,
                plan,
                by,
                rounds: Vec::new(),
            });
        }
        for round in 1..=self.args.rounds {
            for one in &mut series {
                let sample = match one.item {
                    Item::Ours(_) => self.load(one.plan).await,
                    Item::Plain(baseline) => self.insert(baseline, one.plan).await,
                };
                let sample = sample.with_context(|| format!("measuring {}", one.plan.name))?;
                terminal::tell(format_args!(
                    "round {round}/{}  {:<17} {:>9.0} {}/s",
                    self.args.rounds,
                    one.plan.name,
                    sample.per_second.0,
                    if one.by.is_some() { "rows" } else { "frames" },
                ));
                one.rounds.push(sample);
            }
        }
        Ok(Report {
            url: self.client.base().to_owned(),
            is_private: self.args.url.is_none(),
            seconds: self.args.seconds,
            rounds: self.args.rounds,
            frame_bytes: self.args.frame_bytes,
            ratios: ratios(self.args),
            series,
        })
    }

    /// Drops what was made beside the server.
    pub async fn end(self) -> anyhow::Result<()> {
        match self.plain {
            Some(plain) => plain.remove().await,
            None => Ok(()),
        }
    }

    async fn sized(&self) -> anyhow::Result<(Sized, Sized)> {
        let run = runs::open(&self.client, 1).await?;
        let Some(id) = run.first() else {
            bail!("no run was opened");
        };
        let frame_bytes = self.args.frame_bytes;
        let bare = runs::sized(&self.client, id, frame_bytes, 0).await?;
        let with_payload = items(self.args).contains(&Item::Ours(Workload::Payload));
        let laden = if with_payload {
            let payload_bytes = self.args.payload_bytes;
            // Another run, so that the numbers of both frames have as many digits.
            let run = runs::open(&self.client, 1).await?;
            let id = run.first().context("no run was opened")?;
            let laden = runs::sized(&self.client, id, frame_bytes, payload_bytes).await?;
            self.leave(&run).await?;
            laden
        } else {
            bare
        };
        self.leave(&run).await?;
        Ok((bare, laden))
    }

    fn size(&self, plan: Plan) -> anyhow::Result<Sized> {
        let (bare, laden) = self.sizes.context("sizes are found out first")?;
        Ok(if plan.payload_bytes > 0 { laden } else { bare })
    }

    /// Bytes of a row that stands for a frame, with its payload if it has one.
    fn row_bytes(&self, baseline: Baseline) -> anyhow::Result<usize> {
        let plan = baseline.plan(self.args);
        let payload = if plan.payload_bytes > 0 {
            self.size(plan)?.stored_payload
        } else {
            0
        };
        Ok(self.args.frame_bytes + payload)
    }

    async fn load(&mut self, plan: Plan) -> anyhow::Result<Sample> {
        let shape = self.size(plan)?.shape;
        let opened = Arc::new(runs::open(&self.client, plan.runs).await?);
        let empty = runs::held(&self.client, &opened).await?;
        let load = Load {
            place: self.place.clone(),
            to: self.to.clone(),
            runs: Arc::clone(&opened),
            connections: plan.connections,
            frames: plan.frames as usize,
            shape,
            time: Duration::from_secs_f64(self.args.seconds),
        };
        let sizes = match &mut self.gauge {
            Some(gauge) => {
                gauge.checkpoint().await;
                Some(gauge.sizes().await?)
            }
            None => None,
        };
        let before = self.before();
        let mut sample = Sample::of_frames(load.send().await?);
        self.after(before, &mut sample);
        if let (Some(gauge), Some(before)) = (&mut self.gauge, sizes) {
            let after = gauge.sizes().await?;
            let grown = |after: u64, before: u64| count(after.saturating_sub(before));
            sample.stored_bytes = sample.a_frame(grown(after.stored, before.stored));
            sample.wal_bytes = sample.a_frame(grown(after.journal, before.journal));
        }
        let full = runs::held(&self.client, &opened).await?;
        let held = full.size - empty.size;
        sample.held = Some(held);
        if held > 0 {
            sample.frame_bytes = Some(Number(count(full.bytes - empty.bytes) / count(held)));
        }
        self.leave(&opened).await?;
        Ok(sample)
    }

    async fn insert(&mut self, baseline: Baseline, plan: Plan) -> anyhow::Result<Sample> {
        let bytes = filler(0, self.row_bytes(baseline)?);
        let plain = self.plain.as_ref().context("no database for it")?;
        plain.empty(plan).await?;
        let before = self.before();
        let time = Duration::from_secs_f64(self.args.seconds);
        let insert = baseline.insert(self.args);
        let mut sample = plain.measure(plan, insert, bytes, time).await?;
        self.after(before, &mut sample);
        sample.server_cpu_us = None; // It had nothing to do with it.
        plain.empty(plan).await?;
        Ok(sample)
    }

    fn before(&self) -> Before {
        Before {
            server: self.server.and_then(process::of_process),
            postgres: self.postmaster.and_then(process::of_family),
        }
    }

    fn after(&self, before: Before, sample: &mut Sample) {
        let after = self.before();
        let spent = |after: Option<Duration>, before: Option<Duration>| {
            sample.cpu(after?.saturating_sub(before?))
        };
        let (server, postgres) = (
            spent(after.server, before.server),
            spent(after.postgres, before.postgres),
        );
        sample.server_cpu_us = server;
        sample.postgres_cpu_us = postgres;
    }

    /// Leaves runs behind where the server stays.
    async fn leave(&self, runs: &[String]) -> anyhow::Result<()> {
        match self.args.url {
            Some(_) => runs::seal(&self.client, runs).await,
            None => Ok(()),
        }
    }
}

/// The address of a server's socket, and what requests to it name.
async fn destination(server: &ServerArgs) -> anyhow::Result<(Place, Destination)> {
    let token = server.token.clone().unwrap_or_default().trim().to_owned();
    if let Some(path) = unix_path(&server.url) {
        let to = Destination {
            host: "localhost".to_owned(),
            path: String::new(),
            token,
        };
        return Ok((Place::Unix(path.to_owned()), to));
    }
    let url = reqwest::Url::parse(&server.url)?;
    ensure!(
        url.scheme() == "http",
        "the load tool speaks plain HTTP only, so that encryption on this side does not count as the server's: \
         give the http:// address behind the proxy that ends TLS"
    );
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(80);
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let mut addresses = tokio::net::lookup_host((name, port))
        .await
        .with_context(|| format!("no address of {host}"))?;
    let address = addresses
        .next()
        .with_context(|| format!("no address of {host}"))?;
    let to = Destination {
        host: format!("{host}:{port}"),
        path: url.path().trim_end_matches('/').to_owned(),
        token,
    };
    Ok((Place::Tcp(address), to))
}
