//! Writing frames: one statement moves the heads of runs and adds their frames and payloads.
//!
//! The head is compared and swapped: a run whose head is not where the writer left it gets nothing, and the others
//! get all of theirs. The statement is its own transaction, so that a batch takes one round trip; or it is part of
//! one, where a run is opened or sealed.

use super::facts::{field_no, kind_no, verdict_no};
use super::frames::NewFrame;
use super::id::Uuid;
use super::payloads::NewPayload;
use super::run_nodes::Node;
use super::runs::{self, RunRow};
use super::time::Time;
use super::{Store, StoreError, Tx, contradiction, signed};
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::facts::Fact;
use onrecord_core::id::{RunId, TenantId};
use onrecord_core::timestamp::Timestamp;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::{Arguments as _, ConnectOptions as _, Executor as _, PgConnection, Row as _};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What is to be added to one run.
pub(crate) struct RunWrite<'a> {
    /// Size and head that the writer found.
    pub(crate) before: (u64, Hash),
    /// The chain with the frames.
    pub(crate) chain: &'a Chain,
    pub(crate) frames: &'a [NewFrame],
    pub(crate) payloads: &'a [NewPayload<'a>],
    /// What the frames complete of the run's tree, of what is kept ([`super::run_nodes::completed`]).
    pub(crate) nodes: &'a [Node],
    /// What the frames say of the run and no frame before them did, as far as is known. What is there already stays.
    pub(crate) facts: Vec<&'a Fact>,
    /// Version of the run's keys that the payloads were wrapped with: where the run has a newer one, nothing is written,
    /// since what is wrapped with a key that is destroyed could never be read. `None` where there are none.
    pub(crate) key_version: Option<i16>,
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Written {
    /// Runs that have their frames now. The others have none of them.
    pub(crate) runs: Vec<RunId>,
    /// Runs that have a frame with one of the keys already.
    pub(crate) known: Vec<RunId>,
    /// The database's clock.
    pub(crate) now: Timestamp,
}

/// The connection that batches are written on, opened when it is needed.
pub(crate) struct Writer {
    options: Arc<PgConnectOptions>,
    session: Option<Session>,
}

/// How long it may take to connect.
const CONNECT: Duration = Duration::from_secs(5);

impl Writer {
    pub(crate) fn new(store: &Store) -> Self {
        Self {
            options: store.options().clone(),
            session: None,
        }
    }

    /// The open session, or a new one. It is the caller's, and comes back by [`Writer::keep`] only if all went well:
    /// one that failed, or that was dropped in the midst of something, is closed, and its transaction with it.
    pub(crate) async fn session(&mut self) -> Result<Session, StoreError> {
        match self.session.take() {
            Some(session) => Ok(session),
            None => tokio::time::timeout(CONNECT, Session::open(&self.options))
                .await
                .unwrap_or(Err(sqlx::Error::PoolTimedOut.into())),
        }
    }

    /// Keeps a session for the next batch.
    pub(crate) fn keep(&mut self, session: Session) {
        self.session = Some(session);
    }
}

/// A session of a writer.
pub(crate) struct Session {
    connection: PgConnection,
    /// The tenants that it sees.
    tenants: String,
    /// The database's clock at its beginning.
    pub(crate) began_at: Timestamp,
}

impl Session {
    async fn open(options: &PgConnectOptions) -> Result<Self, StoreError> {
        let mut connection = options.connect().await?;
        super::set_up(&mut connection).await?;
        connection.execute(sqlx::raw_sql(PLANS)).await?;
        let now: Time = sqlx::query_scalar("select clock_timestamp()")
            .fetch_one(&mut connection)
            .await?;
        Ok(Self {
            connection,
            tenants: String::new(),
            began_at: now.0,
        })
    }

    /// Sees these tenants from now on, and no other.
    pub(crate) async fn see(&mut self, tenants: &BTreeSet<&TenantId>) -> Result<(), StoreError> {
        let names: Vec<&str> = tenants.iter().map(|tenant| tenant.as_str()).collect();
        let names = names.join(" ");
        if names != self.tenants {
            sqlx::query("select set_config('onrecord.tenant', $1, false)")
                .bind(&names)
                .execute(&mut self.connection)
                .await?;
            self.tenants = names;
        }
        Ok(())
    }

    /// Begins a transaction and waits for the locks of runs. Those that are not there, or are another tenant's, are
    /// left out; a row that contradicts the model is its run's affair alone.
    pub(crate) async fn lock(
        &mut self,
        runs: &[&RunId],
    ) -> Result<Vec<(RunId, Result<RunRow, StoreError>)>, StoreError> {
        self.connection.execute("begin").await?;
        let ids: Vec<Uuid> = runs.iter().map(|run| Uuid::from(*run)).collect();
        let rows = sqlx::query("select * from runs where run = any($1) order by run for update")
            .bind(ids)
            .fetch_all(&mut self.connection)
            .await?;
        rows.iter()
            .map(|row| Ok((row.try_get::<Uuid, _>("run")?.into(), runs::read(row))))
            .collect()
    }

    /// Commits the transaction that [`Session::lock`] began.
    pub(crate) async fn commit(&mut self) -> Result<(), StoreError> {
        self.connection.execute("commit").await?;
        Ok(())
    }

    /// The connection, to read on.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// The statement is planned once, since planning it for each batch costs more than carrying it out, and its plan is kept
/// however the tables grow. It has to go from the batch to the tables, row by row: for that is the order in which runs
/// are locked, and a scan that is cheap while a table is small would become slower with every run. A bitmap scan is the
/// one that cannot be without a key.
const PLANS: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_indexscan = off;
  set enable_indexonlyscan = off; set enable_hashjoin = off; set enable_mergejoin = off";

/// The same, as long as a transaction lasts.
const PLANS_OF_ONE: &str = "set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; set local enable_indexscan = off;
  set local enable_indexonlyscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off";

/// Writes the frames of runs in a transaction that holds their locks, or made them. It has asked for the database's clock behind
/// these locks, so that it may take however long it takes.
pub(crate) async fn write_locked(tx: &mut Tx, runs: &mut [RunWrite<'_>]) -> Result<(), StoreError> {
    if runs.is_empty() {
        return Ok(());
    }
    if runs.len() > 1 {
        (&mut **tx).execute(sqlx::raw_sql(PLANS_OF_ONE)).await?;
    }
    let written = write(tx, None, runs, Keys::New).await?;
    // Nobody else can have moved a head under its lock.
    let is_left = |run: &&RunWrite<'_>| !written.runs.contains(run.chain.run());
    match runs.iter().find(is_left) {
        Some(run) => Err(contradiction("runs", "head", run.chain.run())),
        None => Ok(()),
    }
}

/// Whether the keys of a batch are looked for before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// A key that was used fails the whole batch with [`super::Failure::KeyUsed`]. The index that finds it is the one that
    /// takes the new key anyway, so that this costs nothing where keys are new, and nearly all are.
    New,
    /// Runs that have a frame with one of the keys get nothing, and are named; all others are written.
    Sought,
}

// `coalesce` of `in`: keeps it a hashed lookup among a few runs, where a join would compare each frame with each.
// `coalesce` of `sealed_at`: the index of open runs is not to be used. `lateral`: each key is looked up by itself.
macro_rules! write_sql {
    (known: $known:literal, version: $version:literal, named: $named:literal, current: $current:literal, kept: $kept:literal, derived: $derived:literal) => {
        concat!("
with v as (
  select * from unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bytea[], $6::timestamptz[], $7::bytea[], $8::text[], $9::bool[]", $version, ")
    as v (run, was_size, was_head, size, head, last_at, chain, outcome, ended", $named, ")
), known as (", $known, "
), moved as (
  update runs set size = v.size, head = v.head, last_at = v.last_at, chain = v.chain, outcome = v.outcome, ended = v.ended
  from v where runs.run = v.run and runs.size = v.was_size and runs.head = v.was_head
    and coalesce(runs.sealed_at, '-infinity') = '-infinity'
    and not coalesce(v.run in (select run from known), false)", $current, "
    and coalesce(clock_timestamp() between $10 - interval '2 s' and $10 + interval '2 s', true)
  returning runs.run
), added as (
  insert into frames (seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, name, verdict)
  select f.seq, f.at, f.answers, f.turn, f.kind_no, f.run, f.tenant, f.key, f.mac, f.bytes, f.name, f.verdict
  from unnest($11::bigint[], $12::timestamptz[], $13::bigint[], $14::int[], $15::smallint[], $16::uuid[], $17::text[], $18::text[], $19::bytea[], $20::bytea[], $21::text[], $22::smallint[])
    as f (seq, at, answers, turn, kind_no, run, tenant, key, mac, bytes, name, verdict)
  where coalesce(f.run in (select run from moved), false)
)", $kept, $derived, "
select clock_timestamp() as now, array(select run from moved) as moved, array(select run from known) as known")
    };
    (known: $known:literal, derived: $derived:literal) => {
        write_sql!(known: $known, version: ", $35::smallint[]", named: ", key_version", current: "
    and coalesce(v.key_version, runs.key_version) >= runs.key_version", kept: ", kept as (
  insert into payloads (run, tenant, commit, seq, place, media, tier, size, wrapped_dek, ciphertext, key_version, subjects)
  select p.* from unnest($23::uuid[], $24::text[], $25::bytea[], $26::bigint[], $27::smallint[], $28::text[], $29::smallint[], $30::bigint[], $31::bytea[], $32::bytea[], $33::smallint[], $34::bytea[])
    as p (run, tenant, commit, seq, place, media, tier, size, wrapped_dek, ciphertext, key_version, subjects)
  where coalesce(p.run in (select run from moved), false)
)", derived: $derived)
    };
    (known: $known:literal) => {
        [
            write_sql!(known: $known, version: "", named: "", current: "", kept: "", derived: ""),
            write_sql!(known: $known, derived: ""),
            // What follows from the frames may not hinder them, whoever wrote it before.
            write_sql!(known: $known, derived: ", noded as (
  insert into run_nodes (run, tenant, level, idx, hash)
  select n.* from unnest($36::uuid[], $37::text[], $38::smallint[], $39::bigint[], $40::bytea[]) as n (run, tenant, level, idx, hash)
  where coalesce(n.run in (select run from moved), false)
  on conflict do nothing
), said as (
  insert into run_facts (run, tenant, field, value)
  select s.* from unnest($41::uuid[], $42::text[], $43::smallint[], $44::text[]) as s (run, tenant, field, value)
  where coalesce(s.run in (select run from moved), false)
  on conflict do nothing
)"),
        ]
    };
}

/// The statement for each choice of [`Keys`]: without payloads, with them, and with nodes of the runs' trees and facts too. Keys that
/// the store chose are of their place, and need not be looked for.
const WRITE: [[&str; 3]; 2] = [
    write_sql!(known: "select null::uuid as run where false"),
    write_sql!(known: "
  select wanted.run from unnest($16::uuid[], $18::text[]) as wanted (run, key),
    lateral (select from frames where frames.run = wanted.run and frames.key = wanted.key limit 1) as found
  where not starts_with(wanted.key, 'onrecord/')"),
];

/// The same for one frame of one run that has no payload, a new key and nothing new to say of its run, as an agent that is alone sends them: arrays of one
/// element cost more than the frame.
const WRITE_ONE: &str = "
with moved as (
  update runs set size = $3, head = $4, last_at = $5, chain = $6, outcome = $7, ended = $8
  where run = $1 and size = $2 and head = $9 and coalesce(sealed_at, '-infinity') = '-infinity'
    and coalesce(clock_timestamp() between $10 - interval '2 s' and $10 + interval '2 s', true)
  returning run
), added as (
  insert into frames (seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, name, verdict)
  select $2, $5, $11, $12, $13, run, $14, $15, $16, $17, $18, $19 from moved
)
select clock_timestamp() as now, array(select run from moved) as moved, '{}'::uuid[] as known";

/// Writes to runs, each at most once; to several only in a [`Session`], whose plans lock them in order. `now` is what
/// the writer took the database's clock for, where it did not ask: nothing is written where that is more than 2 s wrong.
pub(crate) async fn write(
    connection: &mut PgConnection,
    now: Option<Timestamp>,
    runs: &mut [RunWrite<'_>],
    keys: Keys,
) -> Result<Written, StoreError> {
    if let ([run], Keys::New) = (&*runs, keys)
        && let ([frame], [], [], []) = (run.frames, run.payloads, run.nodes, &*run.facts)
    {
        return write_one(connection, now, run, frame).await;
    }
    // In one order everywhere, so that two processes which write to the same runs wait for each other and never both.
    runs.sort_unstable_by(|one, other| one.chain.run().cmp(other.chain.run()));
    let ids: Vec<Uuid> = runs.iter().map(|run| run.chain.run().into()).collect();
    let mut last = Vec::with_capacity(runs.len());
    for run in &*runs {
        let at = run.chain.last_at();
        last.push(Time(at.ok_or_else(|| {
            contradiction("runs", "last_at", run.chain.run())
        })?));
    }
    let frames = || {
        let pairs = runs.iter().zip(&ids);
        pairs.flat_map(|(run, id)| run.frames.iter().map(|frame| (run.chain, *id, frame)))
    };
    let payloads = || {
        let pairs = runs.iter().zip(&ids);
        pairs.flat_map(|(run, id)| run.payloads.iter().map(|one| (run.chain, *id, one)))
    };
    let nodes = || {
        let pairs = runs.iter().zip(&ids);
        pairs.flat_map(|(run, id)| run.nodes.iter().map(|one| (run.chain, *id, one)))
    };
    let facts = || {
        let pairs = runs.iter().zip(&ids);
        pairs.flat_map(|(run, id)| run.facts.iter().map(|one| (run.chain, *id, *one)))
    };
    macro_rules! column {
        ($rows:expr, $row:pat => $value:expr) => {
            $rows.map(|$row| $value).collect::<Vec<_>>()
        };
    }
    let with_derived = nodes().next().is_some() || facts().next().is_some();
    let with_payloads = with_derived || payloads().next().is_some();
    let parts = usize::from(with_payloads) + usize::from(with_derived);
    let statement = WRITE[usize::from(keys == Keys::Sought)][parts];
    let mut arguments = PgArguments::default();
    // About what the rest of a row takes; a buffer that grows as it is filled copies everything several times.
    let bytes = frames().map(|(.., frame)| frame.bytes.len() + frame.key.len() + 192);
    let ciphertexts = payloads().map(|(.., one)| one.ciphertext.len() + 384);
    arguments.reserve(
        44,
        1_024 * runs.len() + bytes.chain(ciphertexts).sum::<usize>(),
    );
    let query = sqlx::query_with(statement, arguments)
        .bind(&ids)
        .bind(column!(runs.iter(), run => signed(run.before.0)))
        .bind(column!(runs.iter(), run => &run.before.1.0[..]))
        .bind(column!(runs.iter(), run => signed(run.chain.size())))
        .bind(column!(runs.iter(), run => run.chain.head().0))
        .bind(last)
        .bind(column!(runs.iter(), run => run.chain.to_bytes()))
        .bind(column!(runs.iter(), run => run.chain.outcome().map(|status| status.as_str())))
        .bind(column!(runs.iter(), run => run.chain.ended()))
        .bind(now.map(Time))
        .bind(column!(frames(), (.., frame) => signed(frame.seq)))
        .bind(column!(frames(), (.., frame) => Time(frame.at)))
        .bind(column!(frames(), (.., frame) => frame.answers.map(signed)))
        .bind(column!(frames(), (.., frame) => frame.turn.map(turn)))
        .bind(column!(frames(), (.., frame) => kind_no(frame.kind)))
        .bind(column!(frames(), (_, run, _) => run))
        .bind(column!(frames(), (chain, ..) => chain.tenant().as_str()))
        .bind(column!(frames(), (.., frame) => frame.key.as_str()))
        .bind(column!(frames(), (.., frame) => frame.request_mac.as_ref().map(|mac| &mac[..])))
        .bind(column!(frames(), (.., frame) => frame.bytes.as_slice()))
        .bind(column!(frames(), (.., frame) => frame.facts.name.as_deref()))
        .bind(column!(frames(), (.., frame) => frame.facts.verdict.map(verdict_no)));
    let query = if with_payloads {
        query
            .bind(column!(payloads(), (_, run, _) => run))
            .bind(column!(payloads(), (chain, ..) => chain.tenant().as_str()))
            .bind(column!(payloads(), (.., one) => &one.commit.0[..]))
            .bind(column!(payloads(), (.., one) => signed(one.seq)))
            .bind(column!(payloads(), (.., one) => one.place))
            .bind(column!(payloads(), (.., one) => one.media))
            .bind(column!(payloads(), (.., one) => one.tier))
            .bind(column!(payloads(), (.., one) => signed(one.size)))
            .bind(column!(payloads(), (.., one) => one.wrapped_dek))
            .bind(column!(payloads(), (.., one) => one.ciphertext))
            .bind(column!(payloads(), (.., one) => one.key_version))
            .bind(column!(payloads(), (.., one) => one.subjects))
            .bind(column!(runs.iter(), run => run.key_version))
    } else {
        query
    };
    let query = if with_derived {
        query
            .bind(column!(nodes(), (_, run, _) => run))
            .bind(column!(nodes(), (chain, ..) => chain.tenant().as_str()))
            .bind(column!(nodes(), (.., (level, ..)) => i16::from(*level)))
            .bind(column!(nodes(), (.., (_, index, _)) => signed(*index)))
            .bind(column!(nodes(), (.., (.., hash)) => &hash.0[..]))
            .bind(column!(facts(), (_, run, _) => run))
            .bind(column!(facts(), (chain, ..) => chain.tenant().as_str()))
            .bind(column!(facts(), (.., fact) => field_no(fact.field)))
            .bind(column!(facts(), (.., fact) => &*fact.value))
    } else {
        query
    };
    written(&query.fetch_one(connection).await?)
}

/// Writes one frame; see [`WRITE_ONE`].
async fn write_one(
    connection: &mut PgConnection,
    now: Option<Timestamp>,
    run: &RunWrite<'_>,
    frame: &NewFrame,
) -> Result<Written, StoreError> {
    let chain = run.chain;
    let query = sqlx::query(WRITE_ONE)
        .bind(Uuid::from(chain.run()))
        .bind(signed(run.before.0))
        .bind(signed(chain.size()))
        .bind(chain.head().0)
        .bind(Time(frame.at))
        .bind(chain.to_bytes())
        .bind(chain.outcome().map(|status| status.as_str()))
        .bind(chain.ended())
        .bind(&run.before.1.0[..])
        .bind(now.map(Time))
        .bind(frame.answers.map(signed))
        .bind(frame.turn.map(turn))
        .bind(kind_no(frame.kind))
        .bind(chain.tenant().as_str())
        .bind(frame.key.as_str())
        .bind(frame.request_mac.as_ref().map(|mac| &mac[..]))
        .bind(frame.bytes.as_slice())
        .bind(frame.facts.name.as_deref())
        .bind(frame.facts.verdict.map(verdict_no));
    written(&query.fetch_one(connection).await?)
}

/// No run has two thousand million turns.
fn turn(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn written(row: &PgRow) -> Result<Written, StoreError> {
    let runs_of = |column: &str| {
        let ids: Vec<Uuid> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(ids.into_iter().map(RunId::from).collect())
    };
    Ok(Written {
        runs: runs_of("moved")?,
        known: runs_of("known")?,
        now: row.try_get::<Time, _>("now")?.0,
    })
}
