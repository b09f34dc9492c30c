//! `onrecord audit`: whatever somebody with the database's password does to it is named, and nothing is that is as it was
//! recorded.

use crate::api::Api;
use crate::api::audit::trust;
use crate::running::Server;
use crate::signing_agent::{Agent, Run, kept, text};
use onrecord::audit::{Audit, Finding, State, Summary, Told};
use onrecord::start::HeadsEvery;
use onrecord_verify::{Status, Trust};
use serde_json::{Value, json};
use sqlx::{Executor as _, PgConnection};
use std::process::Stdio;
use tokio::process::Command;

/// A database with everything that there is to record.
struct Filled {
    server: Server,
    /// Sealed, with frames that an agent signed, a payload that it kept, and one that is erased.
    sealed: String,
    /// Open in a turn, held.
    open: String,
    /// A tier of it is erased.
    forensic: String,
    trust: Trust,
}

async fn observe(api: &Api, run: &str, key: &str, tier: u8) {
    let payload = json!({"name": "said", "text": format!("said {key}"), "tier": tier});
    let frame = json!({"kind": "observation", "key": key, "payloads": [payload]});
    api.frame(run, &frame).await.is(201);
}

async fn filled() -> Filled {
    let server = Server::start().await;
    let api = &server.api;
    let smith = Agent::new("smith", 1);
    smith.register(api).await;
    let run = Run::open(api).await;
    let sealed = run.id();
    let signed = json!({"kind": "observation", "payloads": [text("said", "signed", [5; 32])]});
    smith.post(api, &run, 1, &signed).await.is(201);
    api.frame(&sealed, &json!({"kind": "turn"})).await.is(201);
    let call = json!({"kind": "tool_call", "body": {"name": "sh"}, "payloads": [kept("input", "kept", [7; 32])],
        "result": {"payloads": [{"name": "output", "text": "came out"}]}});
    api.frame(&sealed, &call).await.is(201);
    observe(api, &sealed, "gone", 2).await;
    observe(api, &sealed, "stays", 2).await;
    let path = format!("/v1/runs/{sealed}/frames/6");
    let frame = api.get(&path).await.is(200).json();
    let gone = &frame["payloads"][0]["commit"];
    let erasure = json!({"run": sealed, "commits": [gone], "reason": "request-17"});
    api.post("/v1/erasures", &erasure).await.is(201);
    let rotation = json!({"reason": "rotation"});
    api.post("/v1/keys/seal/rotation", &rotation).await.is(201);
    let outcome = json!({"kind": "outcome", "turn": null, "body": {"status": "failed"}});
    api.frame(&sealed, &outcome).await.is(201);
    api.post(&format!("/v1/runs/{sealed}/seal"), &json!({}))
        .await
        .is(201);

    let opening = json!({"key": "second", "session": {"agent": "coder"}});
    let open = api.open(&opening).await.run.to_string();
    api.frame(&open, &json!({"kind": "turn"})).await.is(201);
    observe(api, &open, "k", 2).await;
    let hold = json!({"matter": "case-7", "run": open});
    api.post("/v1/holds", &hold).await.is(201);
    let forensic = api.any_run().await.run.to_string();
    for (key, tier) in [("a", 3), ("b", 1), ("c", 3)] {
        observe(api, &forensic, key, tier).await;
    }
    let lines: String = (0..70)
        .map(|n| format!("{{\"kind\":\"decision\",\"key\":\"n{n}\"}}\n"))
        .collect();
    api.frames(&forensic, lines).await;
    let erasure = json!({"run": forensic, "tier": 3, "reason": "window"});
    api.post("/v1/erasures", &erasure).await.is(201);
    observe(api, &forensic, "d", 3).await;
    let rules = api
        .request(reqwest::Method::PUT, "/v1/redaction/rules")
        .header("content-type", "application/json")
        .body("{}");
    crate::api::Answer::of(rules).await.is(201);
    let all = HeadsEvery {
        frames: 1,
        seconds: 0,
    };
    assert_eq!(server.app.recorder.state_heads(all).await.unwrap(), 2);
    let second = api.new_tenant().await;
    let other = second.any_run().await.run.to_string();
    observe(&second, &other, "k", 2).await;
    for filter in ["agent%20%3D%20%22coder%22", "status%20%3D%20open"] {
        let path = format!("/v1/runs?filter={filter}&purpose=case-7");
        api.get(&path).await.is(200);
    }
    let trust = Trust::parse(&trust(api).await).unwrap();
    Filled {
        server,
        sealed,
        open,
        forensic,
        trust,
    }
}

async fn audited(url: &str, trusts: Vec<Trust>, state: &mut State) -> (Summary, Vec<Finding>) {
    let audit = Audit {
        url: url.to_owned(),
        trusts,
        jobs: 2,
    };
    let mut findings = Vec::new();
    let summary = audit.run(state, |told| {
        if let Told::Finding(finding) = told {
            findings.push(finding);
        }
    });
    let summary = summary.await.unwrap();
    assert_eq!(summary.findings, findings.len() as u64);
    (summary, findings)
}

impl Filled {
    async fn audit(&self) -> (Summary, Vec<Finding>) {
        let trusts = vec![self.trust.clone()];
        audited(&self.server.database.url, trusts, &mut State::none()).await
    }

    fn with_runs(&self, sql: &str) -> String {
        let id = |run: &str| format!("run_uuid('{run}')");
        sql.replace("SEALED", &id(&self.sealed))
            .replace("OPEN", &id(&self.open))
            .replace("FORENSIC", &id(&self.forensic))
            .replace(
                "TENANT",
                &format!("(select tenant from runs where run = {})", id(&self.sealed)),
            )
    }
}

async fn execute(sql: &mut PgConnection, text: &str) {
    let done = sql
        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())))
        .await;
    done.unwrap_or_else(|error| panic!("{text}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_found_where_everything_is_as_it_was_recorded() {
    let filled = filled().await;
    let (summary, findings) = filled.audit().await;
    assert_eq!(findings, []);
    assert_eq!(summary.status, Status::Verified);
    assert_eq!((summary.ledgers, summary.progress.runs), (2, 4));
    assert!(summary.progress.frames > 15 && summary.progress.bytes > 5_000);
    // Nor without a trust file, by the keys that the ledger names.
    let url = &filled.server.database.url;
    let (_, findings) = audited(url, Vec::new(), &mut State::none()).await;
    assert_eq!(findings, []);
}

/// What is done, and code, table and column of a finding that there has to be.
type Alteration = (&'static str, (&'static str, &'static str, &'static str));

const FRAMES: [Alteration; 16] = [
    (
        "update frames set name = 'rm' where run = SEALED and seq = 3",
        ("column", "frames", "name"),
    ),
    (
        "update frames set name = null where run = SEALED and seq = 3",
        ("column", "frames", "name"),
    ),
    (
        "update frames set verdict = 1 where run = OPEN and seq = 2",
        ("column", "frames", "verdict"),
    ),
    (
        "update frames set bytes = replace(convert_from(bytes, 'UTF8'), '\"name\":\"sh\"', '\"name\":\"rm\"')::bytea where run = SEALED and seq = 3",
        ("frame_prev", "frames", "bytes"),
    ),
    (
        "update frames set bytes = bytes || ' ' where run = SEALED and seq = 3",
        ("frame_canonical", "frames", "bytes"),
    ),
    (
        "delete from frames where run = SEALED and seq = 3",
        ("row_missing", "frames", "seq"),
    ),
    (
        "delete from frames where run = OPEN and seq = 2",
        ("row_missing", "frames", "seq"),
    ),
    (
        "update frames set seq = 40 where run = OPEN and seq = 2",
        ("row_surplus", "frames", "seq"),
    ),
    (
        "update frames set seq = -1 where run = OPEN and seq = 2",
        ("row_surplus", "frames", "seq"),
    ),
    (
        "update frames set kind_no = 10 where run = OPEN and seq = 2",
        ("column", "frames", "kind_no"),
    ),
    (
        "update frames set turn = 2 where run = OPEN and seq = 2",
        ("column", "frames", "turn"),
    ),
    (
        "update frames set key = 'other' where run = OPEN and seq = 2",
        ("column", "frames", "key"),
    ),
    (
        "update frames set at = at + interval '1 us' where run = OPEN and seq = 2",
        ("column", "frames", "at"),
    ),
    (
        "update frames set at = 'infinity' where run = OPEN and seq = 2",
        ("column", "frames", "at"),
    ),
    (
        "update frames set answers = null where run = SEALED and seq = 4",
        ("column", "frames", "answers"),
    ),
    (
        "insert into frames select seq, at, answers, turn, kind_no, gen_random_uuid(), tenant, key, request_mac, bytes from frames where run = OPEN",
        ("row_surplus", "frames", "run"),
    ),
];

const RUNS: [Alteration; 31] = [
    (
        "update run_facts set value = 'rm' where run = SEALED and field = 6",
        ("row_surplus", "run_facts", "value"),
    ),
    (
        "update run_facts set value = 'rm' where run = SEALED and field = 6",
        ("row_missing", "run_facts", "value"),
    ),
    (
        "delete from run_facts where run = OPEN and field = 10 and value = 'observation'",
        ("row_missing", "run_facts", "value"),
    ),
    (
        "delete from run_facts where run = SEALED and field = 15 and value = 'verification'",
        ("row_missing", "run_facts", "value"),
    ),
    (
        "insert into run_facts (run, field, tenant, value) values (OPEN, 15, TENANT, 'outcome')",
        ("row_surplus", "run_facts", "value"),
    ),
    (
        "update run_facts set tenant = 't_0000000000000000' where run = OPEN and field = 10 and value = 'observation'",
        ("row_missing", "run_facts", "value"),
    ),
    (
        "insert into run_facts (run, field, tenant, value) values (gen_random_uuid(), 4, TENANT, 'x')",
        ("row_surplus", "run_facts", "run"),
    ),
    (
        "update run_nodes set hash = sha256('x') where run = FORENSIC",
        ("column", "run_nodes", "hash"),
    ),
    (
        "insert into run_nodes (idx, run, level, tenant, hash) select 3, run, 6, tenant, hash from run_nodes where run = FORENSIC",
        ("row_surplus", "run_nodes", "idx"),
    ),
    (
        "update run_heads set size = size - 1 where run = OPEN",
        ("column", "run_heads", "size"),
    ),
    (
        "delete from run_heads where run = OPEN",
        ("column", "run_heads", "ledger_index"),
    ),
    (
        "update runs set head = sha256('x') where run = OPEN",
        ("column", "runs", "head"),
    ),
    (
        "update runs set size = size - 1 where run = OPEN",
        ("row_surplus", "frames", "seq"),
    ),
    (
        "update runs set size = size + 1 where run = OPEN",
        ("row_missing", "frames", "seq"),
    ),
    (
        "update runs set chain = (select chain from runs where run = FORENSIC) where run = OPEN",
        ("column", "runs", "chain"),
    ),
    (
        "update runs set chain = set_byte(chain, octet_length(chain) - 1, 7) where run = OPEN",
        ("column", "runs", "chain"),
    ),
    (
        "update runs set last_at = last_at + interval '1 s' where run = OPEN",
        ("column", "runs", "last_at"),
    ),
    (
        "update runs set opened_at = opened_at - interval '1 s' where run = OPEN",
        ("column", "runs", "opened_at"),
    ),
    (
        "update runs set outcome = 'completed' where run = SEALED",
        ("column", "runs", "outcome"),
    ),
    (
        "update runs set ended = not ended where run = OPEN",
        ("column", "runs", "ended"),
    ),
    (
        "update runs set agent = 'another' where run = OPEN",
        ("column", "runs", "agent"),
    ),
    (
        "update runs set open_key = 'another' where run = OPEN",
        ("column", "runs", "open_key"),
    ),
    (
        "update runs set run_no = 17 where run = OPEN",
        ("run_gap", "runs", "run_no"),
    ),
    (
        "update runs set open_index = open_index + 1 where run = OPEN",
        ("row_missing", "runs", "open_index"),
    ),
    (
        "update runs set sealed_at = null, seal_index = null, seal_proof = null where run = SEALED",
        ("column", "runs", "seal_index"),
    ),
    (
        "update runs set sealed_at = sealed_at + interval '1 s' where run = SEALED",
        ("column", "runs", "sealed_at"),
    ),
    (
        "update runs set seal_index = 0 where run = SEALED",
        ("column", "runs", "seal_index"),
    ),
    (
        "update runs set seal_proof = replace(seal_proof, 'index ', 'index 1') where run = SEALED",
        ("ledger_inclusion", "runs", "seal_proof"),
    ),
    (
        "update runs set erased = 0 where run = SEALED",
        ("column", "runs", "erased"),
    ),
    (
        "delete from runs where run = OPEN",
        ("row_missing", "runs", "run"),
    ),
    (
        "delete from runs where run = OPEN; delete from frames where run = OPEN; delete from payloads where run = OPEN",
        ("row_missing", "runs", "run"),
    ),
];

const LEDGER: [Alteration; 19] = [
    (
        "update ledger_entries set bytes = bytes || ' ' where tenant = TENANT and idx = 3",
        ("statement", "ledger_entries", "bytes"),
    ),
    (
        "update ledger_entries set bytes = (select bytes from ledger_entries where tenant = TENANT and idx = 2) where tenant = TENANT and idx = 3",
        ("column", "ledger_entries", "leaf"),
    ),
    (
        "update ledger_entries set leaf = sha256('x') where tenant = TENANT and idx = 3",
        ("column", "ledger_entries", "leaf"),
    ),
    (
        "update ledger_entries set name = 'hold' where tenant = TENANT and name = 'run-seal'",
        ("column", "ledger_entries", "name"),
    ),
    (
        "update ledger_entries set run = null where tenant = TENANT and name = 'run-seal'",
        ("column", "ledger_entries", "run"),
    ),
    (
        "update ledger_entries set at = at - interval '1 s' where tenant = TENANT and idx = 3",
        ("column", "ledger_entries", "at"),
    ),
    (
        "delete from ledger_entries where tenant = TENANT and idx = 3",
        ("row_missing", "ledger_entries", "idx"),
    ),
    (
        "delete from ledger_entries where tenant = TENANT and idx = (select max(idx) from ledger_entries where tenant = TENANT)",
        ("row_surplus", "checkpoints", "note"),
    ),
    (
        "update ledger_nodes set hash = sha256('x') where tenant = TENANT and level = 1 and idx = 1",
        ("column", "ledger_nodes", "hash"),
    ),
    (
        "delete from ledger_nodes where tenant = TENANT and level = 2 and idx = 0",
        ("row_missing", "ledger_nodes", "hash"),
    ),
    (
        "insert into ledger_nodes select tenant, 9, 0, hash from ledger_nodes where tenant = TENANT and level = 0 and idx = 0",
        ("row_surplus", "ledger_nodes", "idx"),
    ),
    (
        "update checkpoints set note = replace(note, E'\\n\\n', E'x\\n\\n') where tenant = TENANT and size = 4",
        ("checkpoint", "checkpoints", "note"),
    ),
    (
        "update checkpoints set note = (select note from checkpoints where tenant = TENANT and size = 4) where tenant = TENANT and size = 5",
        ("column", "checkpoints", "size"),
    ),
    (
        "update checkpoints set note = left(note, -9) || E'AAAAAA==\\n' where tenant = TENANT and size = 4",
        ("checkpoint_signature", "checkpoints", "note"),
    ),
    (
        "delete from checkpoints where tenant = TENANT and size = (select max(size) from checkpoints where tenant = TENANT)",
        ("row_missing", "checkpoints", "size"),
    ),
    (
        "update signing_keys set spki = (select spki from signing_keys where role = 'agent') where role = 'seal' and revoked_index is null and tenant = TENANT",
        ("column", "signing_keys", "spki"),
    ),
    (
        "update signing_keys set revoked_index = null where role = 'seal' and revoked_index is not null",
        ("column", "signing_keys", "revoked_index"),
    ),
    (
        "delete from signing_keys where role = 'agent'",
        ("row_missing", "signing_keys", "keyid"),
    ),
    (
        "update redaction_rules set document = '{\"version\":2}'",
        ("column", "redaction_rules", "document"),
    ),
];

const OTHERS: [Alteration; 20] = [
    ("update tenants set ledger_size = ledger_size - 1 where tenant = TENANT", ("column", "tenants", "ledger_size")),
    ("update tenants set ledger_nodes = '' where tenant = TENANT", ("column", "tenants", "ledger_nodes")),
    ("update tenants set ledger_at = '-infinity' where tenant = TENANT", ("column", "tenants", "ledger_at")),
    ("update tenants set next_run_no = 2 where tenant = TENANT", ("column", "tenants", "next_run_no")),
    ("update tenants set last_seal_run = null where tenant = TENANT", ("column", "tenants", "last_seal_run")),
    ("update tenants set last_seal_leaf = sha256('x') where tenant = TENANT", ("column", "tenants", "last_seal_leaf")),
    ("update tenants set seal_key = (select keyid from signing_keys where role = 'seal' and revoked_index is not null) where tenant = TENANT", ("column", "tenants", "seal_key")),
    ("delete from payloads where run = OPEN", ("payload_missing", "payloads", "commit")),
    ("delete from payloads where run = SEALED and ciphertext = ''", ("row_missing", "payloads", "commit")),
    ("update payloads set commit = sha256('x') where run = OPEN", ("column", "payloads", "commit")),
    ("update payloads set media = 'text/html' where run = OPEN", ("column", "payloads", "media")),
    ("update payloads set tier = 0 where run = OPEN", ("column", "payloads", "tier")),
    ("update payloads set size = 512 where run = OPEN", ("column", "payloads", "size")),
    ("update payloads set ciphertext = substr(ciphertext, 2) where run = OPEN", ("payload_commit", "payloads", "ciphertext")),
    ("update payloads set wrapped_dek = '' where run = OPEN", ("erasure_uncertified", "payloads", "wrapped_dek")),
    ("update payloads set place = 1 where run = OPEN", ("row_surplus", "payloads", "commit")),
    ("update payloads set seq = 77 where run = OPEN", ("row_surplus", "payloads", "commit")),
    ("insert into payloads (run, commit, tenant, seq, place, media, tier, size, wrapped_dek, ciphertext) select run, sha256('x'), tenant, seq, 1, media, tier, size, wrapped_dek, ciphertext from payloads where run = OPEN", ("row_surplus", "payloads", "commit")),
    ("insert into payloads (run, commit, tenant, seq, place, media, tier, size, wrapped_dek, ciphertext)
        select run, decode(substr(convert_from(bytes, 'UTF8'), strpos(convert_from(bytes, 'UTF8'), '\"commit\":\"') + 10, 64), 'hex'), tenant, seq, 0, 'text/plain; charset=utf-8', 3, 256, 'x', convert_to(repeat('x', 272), 'UTF8')
        from frames where run = FORENSIC and seq = 1", ("not_erased", "payloads", "ciphertext")),
    ("insert into payloads (run, commit, tenant, seq, place, media, tier, size, wrapped_dek, ciphertext) select gen_random_uuid(), commit, tenant, seq, 0, media, tier, size, wrapped_dek, ciphertext from payloads where run = OPEN", ("row_surplus", "payloads", "run")),
];

const QUERIES: [Alteration; 6] = [
    (
        "update queries set text = convert_to(replace(convert_from(text, 'UTF8'), 'coder', 'tester'), 'UTF8')",
        ("column", "queries", "text"),
    ),
    (
        "update queries set at = at + interval '1 s'",
        ("column", "queries", "at"),
    ),
    (
        "update queries set resource = 'frames'",
        ("column", "queries", "resource"),
    ),
    (
        "update queries set purpose = 'case-8'",
        ("column", "queries", "purpose"),
    ),
    (
        "update queries set actor_id = 'p_0000000000000000'",
        ("column", "queries", "actor_id"),
    ),
    (
        "update queries set ledger_index = 0 where ledger_index = (select max(ledger_index) from queries)",
        ("row_surplus", "queries", "ledger_index"),
    ),
];

const TABLES: [&str; 13] = [
    "run_facts",
    "frames",
    "runs",
    "payloads",
    "ledger_entries",
    "ledger_nodes",
    "checkpoints",
    "signing_keys",
    "redaction_rules",
    "tenants",
    "run_nodes",
    "run_heads",
    "queries",
];

/// What is inserted of a table: what is generated is generated again.
fn columns(table: &str) -> &'static str {
    match table {
        "frames" => {
            "(seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, verdict, name)
             select seq, at, answers, turn, kind_no, run, tenant, key, request_mac, bytes, verdict, name"
        }
        _ => "select *",
    }
}

/// Does each of some things to the database, looks whether it is found, and undoes it.
async fn each(alterations: &[Alteration]) {
    let filled = filled().await;
    let mut sql = filled.server.sql().await;
    // Without triggers and foreign keys, as who may do everything can.
    execute(&mut sql, "set session_replication_role = replica").await;
    for table in TABLES {
        execute(
            &mut sql,
            &format!("create table kept_{table} as select * from {table}"),
        )
        .await;
    }
    for (alteration, (code, table, column)) in alterations {
        execute(&mut sql, &filled.with_runs(alteration)).await;
        let (summary, findings) = filled.audit().await;
        let is_named =
            |one: &Finding| (one.code, one.table, one.column) == (*code, *table, *column);
        assert!(
            findings.iter().any(is_named),
            "{alteration}: {code} in {table}.{column} is not among {findings:#?}"
        );
        assert_ne!(summary.status, Status::Verified);
        for table in TABLES {
            let restored = format!(
                "delete from {table}; insert into {table} {} from kept_{table}",
                columns(table)
            );
            execute(&mut sql, &restored).await;
        }
    }
    assert_eq!(filled.audit().await.1, [], "everything was undone");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_frames_is_found() {
    each(&FRAMES).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_the_rows_of_runs_is_found() {
    each(&RUNS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_the_ledger_is_found() {
    each(&LEDGER).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_tenants_and_payloads_is_found() {
    each(&OTHERS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_questions_is_found_and_their_removal_is_not() {
    each(&QUERIES).await;
    let filled = filled().await;
    let asked = filled.server.api.get("/v1/queries").await.is(200).json();
    let asked = asked["queries"].as_array().unwrap();
    assert_eq!(asked.len(), 2);
    let path = format!("/v1/queries/{}", asked[0]["index"]);
    filled.server.api.delete(&path).await.is(204);
    assert_eq!(filled.audit().await.1, []);
}

fn command(filled: &Filled, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onrecord"));
    command
        .arg("audit")
        .args(args)
        .env_clear()
        .env("DATABASE_URL", &filled.server.database.url)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_says_it_in_words_in_json_and_by_its_exit_code() {
    let filled = filled().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trust.txt");
    std::fs::write(&file, trust(&filled.server.api).await).unwrap();
    let (file, state) = (file.to_str().unwrap(), folder.path().join("state"));
    let state = state.to_str().unwrap();
    let run = async |args: &[&str]| {
        let output = command(&filled, args).output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text, errors)
    };
    let (code, text, errors) = run(&["--trust", file, "--state", state]).await;
    assert_eq!((code, &*errors), (Some(0), ""), "{text}");
    assert!(
        text.starts_with("everything fits: 0 findings in 2 ledgers and 4 runs of"),
        "{text}"
    );
    // What has not changed is not read again where nobody asks for it.
    let json = ["--state", state, "--json"];
    let last = |text: &str| serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap();
    let (_, text, _) = run(&["--incremental", "--state", state, "--json"]).await;
    assert_eq!(
        (&last(&text)["runs"], &last(&text)["skipped"]),
        (&json!(0), &json!(4))
    );
    observe(&filled.server.api, &filled.open, "more", 2).await;
    let (_, text, _) = run(&["--incremental", "--state", state, "--json"]).await;
    assert_eq!(
        (&last(&text)["runs"], &last(&text)["skipped"]),
        (&json!(1), &json!(3))
    );
    let (_, text, _) = run(&json).await;
    assert_eq!(
        (&last(&text)["runs"], &last(&text)["skipped"]),
        (&json!(4), &json!(0))
    );

    let mut sql = filled.server.sql().await;
    execute(&mut sql, "set session_replication_role = replica").await;
    execute(
        &mut sql,
        &filled.with_runs("update frames set kind_no = 10 where run = OPEN and seq = 2"),
    )
    .await;
    let (code, text, _) = run(&json).await;
    assert_eq!(code, Some(1));
    let finding: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (
            &finding["code"],
            &finding["status"],
            &finding["run"],
            &finding["seq"],
            &finding["table"],
            &finding["column"]
        ),
        (
            &json!("column"),
            &json!("altered"),
            &json!(filled.open),
            &json!(2),
            &json!("frames"),
            &json!("kind_no")
        )
    );
    // One that was not clean is read again.
    let (code, text, _) = run(&["--incremental", "--state", state]).await;
    assert_eq!(code, Some(1));
    assert!(
        text.starts_with(&format!(
            "column {} frame 2 frames.kind_no: 10, by the evidence it is 9",
            filled.open
        )),
        "{text}"
    );
    execute(&mut sql, &filled.with_runs("update frames set kind_no = 9 where run = OPEN and seq = 2; delete from payloads where run = OPEN and seq = 2")).await;
    assert_eq!(run(&[]).await.0, Some(2));
    let (code, _, errors) = run(&["--database-url", "postgres://nobody@127.0.0.1:1/none"]).await;
    assert_eq!(code, Some(3));
    assert!(
        errors.starts_with("error: no answer from PostgreSQL"),
        "{errors}"
    );
    std::fs::write(state, "{}").unwrap();
    assert_eq!(run(&json).await.0, Some(3));
}

/// It reads, whatever the role may do, and a role that may only read will do.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_read_will_do() {
    let filled = filled().await;
    let mut sql = filled.server.sql().await;
    let role = format!("reader_{}", filled.server.database.name);
    execute(
        &mut sql,
        &format!("create role {role} login in role pg_read_all_data"),
    )
    .await;
    let url = &filled.server.database.url;
    let url = url.replace("user=postgres", &format!("user={role}"));
    let (summary, findings) = audited(&url, vec![filled.trust.clone()], &mut State::none()).await;
    assert_eq!((findings, summary.progress.runs), (Vec::new(), 4));
    execute(&mut sql, &format!("drop role {role}")).await;
}

/// Each run is read as it is at one moment.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_meanwhile_is_no_contradiction() {
    let filled = filled().await;
    let api = filled.server.api.clone();
    let writer = tokio::spawn(async move {
        for round in 0.. {
            let run = api.any_run().await.run.to_string();
            for frame in 0..4 {
                observe(&api, &run, &format!("{round}/{frame}"), 2).await;
            }
            let erasure = json!({"run": run, "tier": 2, "reason": "window"});
            api.post("/v1/erasures", &erasure).await.is(201);
            let path = format!("/v1/runs/{run}/seal");
            api.post(&path, &json!({})).await.is(201);
        }
    });
    for _ in 0..6 {
        assert_eq!(filled.audit().await.1, []);
    }
    assert!(!writer.is_finished());
    writer.abort();
}
