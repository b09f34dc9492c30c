//! Whoever holds the database, the seal key and the ledger's key, and does with them whatever can be done: live SQL as a
//! superuser, triggers off, and everything that follows made to fit again.

use crate::running::Server;
use onrecord::vault::{RootSource, SealKey, TenantKeys, Vault};
use onrecord_core::chain::Chain;
use onrecord_core::coverage::Known;
use onrecord_core::digest::{Hash, leaf_hash};
use onrecord_core::facts::{Fact, FactField, Facts};
use onrecord_core::frame::{Frame, Rel};
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::json::to_canonical;
use onrecord_core::merkle::{Frontier, inclusion_path};
use onrecord_core::note::{Checkpoint, TlogProof};
use onrecord_core::statement::{Predicate, Previous, Signed, State};
use onrecord_core::timestamp::Timestamp;
use serde_json::Value;
use sqlx::{Executor as _, PgConnection, Row as _};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

pub struct Operator {
    pub sql: PgConnection,
    pub tenant: TenantId,
    origin: Origin,
    seal: Arc<SealKey>,
    keys: Arc<TenantKeys>,
}

/// The number of a field, as the comment of the column has it.
fn field_no(field: FactField) -> i16 {
    use FactField::{
        Actor, Agent, FailedGate, File, Gate, Kind, Label, Missing, Model, Profile, Redaction,
        Release, Tier, Tool, Verdict,
    };
    let fields = [
        Agent, Release, Profile, Label, Model, Tool, Gate, Verdict, FailedGate, Kind, Redaction,
        Tier, Actor, File, Missing,
    ];
    let place = fields.iter().position(|one| *one == field).unwrap();
    i16::try_from(place + 1).unwrap()
}

impl Operator {
    /// Whoever has the data folder and the database of a server. The seal key is that of now, also after a rotation.
    pub async fn of(server: &Server) -> Self {
        let mut sql = server.sql().await;
        sql.execute("set session_replication_role = replica")
            .await
            .unwrap();
        let row =
            sqlx::query("select tenant, origin, seal_key from tenants order by created_at limit 1")
                .fetch_one(&mut sql)
                .await
                .unwrap();
        let tenant: TenantId = row.get::<String, _>("tenant").parse().unwrap();
        let origin: Origin = row.get::<String, _>("origin").parse().unwrap();
        let keyid = Hash::from_slice(&row.get::<Vec<u8>, _>("seal_key")).unwrap();
        let folder = server.data_dir.path().join("keys");
        let vault = Vault::open(&folder, &RootSource::File(None), false)
            .await
            .unwrap();
        Self {
            seal: vault.seal_key(&tenant, &keyid).await.unwrap(),
            keys: vault.tenant(&tenant, &origin).await.unwrap(),
            sql,
            tenant,
            origin,
        }
    }

    pub async fn execute(&mut self, text: &str) {
        let done = self
            .sql
            .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())))
            .await;
        done.unwrap_or_else(|error| panic!("{text}: {error}"));
    }

    pub async fn frames(&mut self, run: &str) -> Vec<Value> {
        let rows = self.frames_as_they_are(run).await;
        rows.iter()
            .map(|bytes| serde_json::from_slice(bytes).unwrap())
            .collect()
    }

    async fn frames_as_they_are(&mut self, run: &str) -> Vec<Vec<u8>> {
        sqlx::query_scalar("select bytes from frames where run = run_uuid($1) order by seq")
            .bind(run)
            .fetch_all(&mut self.sql)
            .await
            .unwrap()
    }

    /// Puts other frames in the place of a run's, linked anew, and makes its row fit.
    pub async fn put_frames(&mut self, run: &str, frames: Vec<Value>) -> Chain {
        let mut chain = Chain::new(self.tenant.clone(), run.parse().unwrap());
        self.execute(&format!("delete from frames where run = run_uuid('{run}')"))
            .await;
        for (seq, mut frame) in frames.into_iter().enumerate() {
            frame["seq"] = seq.into();
            frame["prev"] = chain.head().hex().into();
            let bytes = to_canonical(&frame).unwrap();
            chain.extend(&bytes, None).unwrap();
            self.put_frame(run, seq, &bytes).await;
        }
        sqlx::query(
            "update runs set size = $2, head = $3, chain = $4, last_at = $5::timestamptz, opened_at = $6::timestamptz, ended = $7
             where run = run_uuid($1)",
        )
        .bind(run)
        .bind(i64::try_from(chain.size()).unwrap())
        .bind(chain.head().0)
        .bind(chain.to_bytes())
        .bind(chain.last_at().unwrap().to_string())
        .bind(chain.opened().unwrap().at.to_string())
        .bind(chain.ended())
        .execute(&mut self.sql)
        .await
        .unwrap();
        self.put_facts(run, &chain).await;
        chain
    }

    /// Makes what a run is found by fit its frames.
    async fn put_facts(&mut self, run: &str, chain: &Chain) {
        let mut known = Known::of(chain.kinds());
        let mut facts = BTreeSet::new();
        for bytes in self.frames_as_they_are(run).await {
            let frame = Frame::parse(&bytes).unwrap();
            let body = frame.body.as_bytes();
            let said = Facts::of(frame.kind, frame.actor.kind, body, frame.payloads());
            facts.extend(said.of_run);
        }
        for fact in &facts {
            known.add(fact.field, &fact.value);
        }
        let sealed = "select sealed_at is not null from runs where run = run_uuid($1)";
        let sealed = sqlx::query_scalar(sealed).bind(run);
        if sealed.fetch_one(&mut self.sql).await.unwrap() {
            facts.extend(known.missing().map(Fact::missing));
        }
        self.execute(&format!(
            "delete from run_facts where run = run_uuid('{run}')"
        ))
        .await;
        for fact in facts {
            sqlx::query("insert into run_facts (run, field, tenant, value) values (run_uuid($1), $2, $3, $4)")
                .bind(run)
                .bind(field_no(fact.field))
                .bind(self.tenant.as_str())
                .bind(&fact.value)
                .execute(&mut self.sql)
                .await
                .unwrap();
        }
    }

    pub async fn put_frame(&mut self, run: &str, seq: usize, bytes: &[u8]) {
        let frame = Frame::parse(bytes).unwrap();
        let answers = frame.links().iter().find(|link| link.rel == Rel::Answers);
        sqlx::query(
            "insert into frames (seq, at, answers, turn, kind_no, run, tenant, key, bytes)
             values ($2, $3::timestamptz, $4, $5, (select no from generate_series(1, 18) as no where frame_kind(no::smallint) = $6), run_uuid($1), $7, $8, $9)",
        )
        .bind(run)
        .bind(i64::try_from(seq).unwrap())
        .bind(frame.at.to_string())
        .bind(
            answers
                .and_then(|link| link.seq)
                .map(|seq| i64::try_from(seq).unwrap()),
        )
        .bind(frame.turn.map(|turn| i32::try_from(turn).unwrap()))
        .bind(frame.kind.as_str())
        .bind(self.tenant.as_str())
        .bind(&*frame.key)
        .bind(bytes)
        .execute(&mut self.sql)
        .await
        .unwrap();
    }

    pub async fn entries(&mut self) -> Vec<Vec<u8>> {
        sqlx::query_scalar("select bytes from ledger_entries where tenant = $1 order by idx")
            .bind(self.tenant.as_str())
            .fetch_all(&mut self.sql)
            .await
            .unwrap()
    }

    /// Signs a statement as the tenant's.
    pub fn sign(&self, predicate: &Predicate, digest: Option<Hash>) -> Vec<u8> {
        let subject = digest.map(|digest| ("frames.ndjson", digest));
        self.seal.sign(&self.tenant, predicate, subject).unwrap()
    }

    /// Signs a statement about a subject as the tenant's.
    pub fn sign_of(&self, predicate: &Predicate, subject: (&str, Hash)) -> Vec<u8> {
        self.seal
            .sign(&self.tenant, predicate, Some(subject))
            .unwrap()
    }

    /// The seal of a run as it has to be for other frames, signed.
    pub fn seal_of(&self, entry: &[u8], chain: &Chain, sealed_at: Option<Timestamp>) -> Vec<u8> {
        let Predicate::RunSeal(mut seal) = says(entry) else {
            panic!("no seal")
        };
        seal.state = State {
            head: chain.head(),
            root: chain.root(),
            run: chain.run().clone(),
            size: chain.size(),
        };
        seal.kinds = chain.kinds().clone();
        seal.payloads.count = chain.payloads();
        seal.opened_at = chain.opened().unwrap().at;
        seal.sealed_at = sealed_at.unwrap_or(seal.sealed_at);
        if !chain.ended() {
            seal.completeness = onrecord_core::statement::Completeness::Interrupted;
        }
        self.sign(&Predicate::RunSeal(seal), Some(chain.file_digest()))
    }

    /// Puts another ledger in the place of the old one: each seal names the one before it, every table fits, the checkpoint is
    /// signed, and seals of runs have their proofs.
    pub async fn put_ledger(&mut self, mut entries: Vec<Vec<u8>>) {
        self.link_seals(&mut entries);
        let tenant = self.tenant.to_string();
        for table in ["ledger_entries", "ledger_nodes", "checkpoints"] {
            self.execute(&format!("delete from {table} where tenant = '{tenant}'"))
                .await;
        }
        let (mut tree, mut nodes) = (Frontier::new(), HashMap::new());
        for (index, entry) in entries.iter().enumerate() {
            tree.push_with(leaf_hash(entry), |level, at, hash| {
                nodes.insert((level, at), hash);
            });
            let (signed, says) = (Signed::parse(entry).unwrap(), says(entry));
            sqlx::query(
                "insert into ledger_entries (tenant, idx, name, run, at, leaf, bytes)
                 values ($1, $2, $3, run_uuid($4), $5::timestamptz, $6, $7)",
            )
            .bind(&tenant)
            .bind(i64::try_from(index).unwrap())
            .bind(&signed.name)
            .bind(says.run().map(ToString::to_string))
            .bind(says.at().to_string())
            .bind(signed.leaf.0)
            .bind(entry)
            .execute(&mut self.sql)
            .await
            .unwrap();
        }
        for ((level, index), hash) in &nodes {
            sqlx::query("insert into ledger_nodes values ($1, $2, $3, $4)")
                .bind(&tenant)
                .bind(i16::from(*level))
                .bind(i64::try_from(*index).unwrap())
                .bind(hash.0)
                .execute(&mut self.sql)
                .await
                .unwrap();
        }
        let checkpoint = Checkpoint {
            origin: self.origin.to_string(),
            size: tree.size(),
            root: tree.root(),
        };
        let note = self.keys.ledger().sign(&checkpoint).unwrap();
        let edge: Vec<u8> = tree.nodes().iter().flat_map(|node| node.0).collect();
        sqlx::query("insert into checkpoints (tenant, size, note) values ($1, $2, $3)")
            .bind(&tenant)
            .bind(i64::try_from(tree.size()).unwrap())
            .bind(&note)
            .execute(&mut self.sql)
            .await
            .unwrap();
        let last = entries
            .iter()
            .rev()
            .find(|entry| matches!(says(entry), Predicate::RunSeal(_)));
        sqlx::query(
            "update tenants set ledger_size = $2, ledger_nodes = $3, ledger_at = $4::timestamptz, last_seal_run = run_uuid($5),
               last_seal_leaf = $6, next_run_no = $7 where tenant = $1",
        )
        .bind(&tenant)
        .bind(i64::try_from(tree.size()).unwrap())
        .bind(edge)
        .bind(says(entries.last().unwrap()).at().to_string())
        .bind(last.and_then(|entry| says(entry).run().map(ToString::to_string)))
        .bind(last.map(|entry| leaf_hash(entry).0))
        .bind(1 + i64::try_from(entries.iter().filter(|entry| matches!(says(entry), Predicate::RunOpen(_))).count()).unwrap())
        .execute(&mut self.sql)
        .await
        .unwrap();
        self.place_runs(&entries, &nodes, &note).await;
    }

    fn link_seals(&self, entries: &mut [Vec<u8>]) {
        let mut opened = HashMap::new();
        let mut previous: Option<Previous> = None;
        for (index, entry) in entries.iter_mut().enumerate() {
            match says(entry) {
                Predicate::RunOpen(open) => {
                    opened.insert(open.state.run, index as u64);
                }
                Predicate::RunSeal(mut seal) => {
                    let place = opened.get(&seal.state.run).copied();
                    let place = place.unwrap_or(seal.ledger.open_index);
                    if seal.previous != previous || seal.ledger.open_index != place {
                        seal.previous = previous;
                        seal.ledger.open_index = place;
                        let digest = Signed::parse(entry).unwrap().digest;
                        *entry = self.sign(&Predicate::RunSeal(seal.clone()), Some(digest));
                    }
                    previous = Some(Previous {
                        hash: leaf_hash(entry),
                        run: seal.state.run,
                    });
                }
                _ => {}
            }
        }
    }

    async fn place_runs(
        &mut self,
        entries: &[Vec<u8>],
        nodes: &HashMap<(u8, u64), Hash>,
        note: &str,
    ) {
        for (index, entry) in (0_u64..).zip(entries) {
            let place = i64::try_from(index).unwrap();
            match says(entry) {
                Predicate::RunOpen(open) => {
                    sqlx::query(
                        "update runs set open_index = $2, run_no = $3 where run = run_uuid($1)",
                    )
                    .bind(open.state.run.to_string())
                    .bind(place)
                    .bind(i64::try_from(open.run_no).unwrap())
                    .execute(&mut self.sql)
                    .await
                    .unwrap();
                }
                Predicate::RunSeal(seal) => {
                    let path = inclusion_path(index, entries.len() as u64, |level, at| {
                        nodes.get(&(level, at)).copied().ok_or(())
                    });
                    let proof = TlogProof {
                        index,
                        path: path.unwrap(),
                        checkpoint: note.to_owned(),
                    };
                    sqlx::query("update runs set sealed_at = $2::timestamptz, seal_index = $3, seal_proof = $4 where run = run_uuid($1)")
                        .bind(seal.state.run.to_string())
                        .bind(seal.sealed_at.to_string())
                        .bind(place)
                        .bind(proof.to_string())
                        .execute(&mut self.sql)
                        .await
                        .unwrap();
                }
                _ => {}
            }
        }
    }
}

pub fn says(entry: &[u8]) -> Predicate {
    Signed::parse(entry).unwrap().predicate().unwrap().unwrap()
}
