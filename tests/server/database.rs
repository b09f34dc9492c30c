//! The database keeps what it was given, even from those who have its password.

use crate::running::Server;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

const APPEND_ONLY: [&str; 15] = [
    "frames",
    "ledger_entries",
    "ledger_nodes",
    "checkpoints",
    "redaction_rules",
    "retention_policies",
    "erased_payloads",
    "run_facts",
    "run_nodes",
    "cosignatures",
    "cosigned_checkpoints",
    "cosigned_proofs",
    "time_stamps",
    "rewinds",
    "accepted_rewinds",
];

/// What a witness, an authority and somebody who put a backup back would have left, of an early size.
async fn anchored(server: &Server) {
    let line = format!(
        "\u{2014} witness.example/w1 {}",
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [1; 76])
    );
    let rows = format!(
        "insert into cosignatures (tenant, size, witness, line) select tenant, 1, 'witness.example/w1+3f5d39a7+BKaKYv/Zvr81vI6YxCnujEsvRZdKZp2MI+Ns2kjLeKl8', '{line}' from tenants;
         insert into cosigned_checkpoints (tenant, size) select tenant, 1 from tenants;
         insert into cosigned_proofs (run, tenant, proof) select gen_random_uuid(), tenant, 'p' from tenants;
         insert into time_stamps (tenant, subject, number, stamped_at, reply) select tenant, 'checkpoint', 1, now(), '' from tenants;
         insert into rewinds (tenant, told_by, told_size, size, root) select tenant, 'published', 9, 8, decode(repeat('00', 32), 'hex') from tenants;
         insert into accepted_rewinds (id, tenant, ledger_index) select id, tenant, 8 from rewinds"
    );
    let mut owner = server.sql().await;
    owner
        .execute(sqlx::raw_sql(sqlx::AssertSqlSafe(rows)))
        .await
        .unwrap();
}

/// A server with a sealed run that has a payload, and an open one.
async fn filled() -> (Server, String) {
    let server = Server::start().await;
    let run = server.api.any_run().await.run.to_string();
    let frame = json!({"kind": "observation", "key": "k", "payloads": [{"name": "p", "text": "private words"}]});
    server.api.frame(&run, &frame).await.is(201);
    let more = |n| {
        format!(
            "{}\n",
            json!({"kind": "observation", "key": format!("k{n}")})
        )
    };
    server
        .api
        .frames(&run, (0..64).map(more).collect::<String>())
        .await;
    let rules = server
        .api
        .request(reqwest::Method::PUT, "/v1/redaction/rules")
        .header("content-type", "application/json")
        .body("{}");
    crate::api::Answer::of(rules).await.is(201);
    let policy = server
        .api
        .request(reqwest::Method::PUT, "/v1/retention/policy")
        .header("content-type", "application/json")
        .body(r#"{"schedules": [{"name": "s"}]}"#);
    crate::api::Answer::of(policy).await.is(201);
    let forgotten = json!({"kind": "observation", "payloads": [{"name": "p", "text": "soon erased", "tier": 3}]});
    server.api.frame(&run, &forgotten).await.is(201);
    let erasure = json!({"run": run, "tier": 3, "reason": "r"});
    server.api.post("/v1/erasures", &erasure).await.is(201);
    server.api.any_run().await;
    server
        .api
        .post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    (server, run)
}

async fn refused(connection: &mut PgConnection, sql: &str) -> String {
    let mut tx = connection.begin().await.unwrap();
    let error = tx
        .execute(sqlx::AssertSqlSafe(sql.to_owned()))
        .await
        .expect_err(sql);
    tx.rollback().await.unwrap();
    let error = error.into_database_error().expect("the database's");
    assert_eq!(error.code().as_deref(), Some("42501"), "{sql}: {error}");
    error.message().to_owned()
}

async fn number(connection: &mut PgConnection, sql: &str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
        .fetch_one(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_changes_what_is_recorded() {
    let (server, run) = filled().await;
    anchored(&server).await;
    let mut owner = server.sql().await;
    let mut app = server.sql().await;
    let tenant: String = sqlx::query_scalar("select tenant from tenants")
        .fetch_one(&mut owner)
        .await
        .unwrap();
    let set = format!("set role onrecord_app; set onrecord.tenant = '{tenant}'");
    app.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(set)))
        .await
        .unwrap();
    for table in APPEND_ONLY {
        let rows = number(&mut owner, &format!("select count(*) from {table}")).await;
        assert!(rows > 0, "{table} has rows to be protected");
        let visible = number(&mut app, &format!("select count(*) from {table}")).await;
        assert_eq!(visible, rows, "{table}: the runtime role sees them");
        for change in [
            format!("update {table} set tenant = tenant"),
            format!("delete from {table}"),
            format!("truncate {table}"),
            format!("truncate {table} cascade"),
        ] {
            refused(&mut app, &change).await;
            // The owner is stopped by a trigger, which says why.
            let message = refused(&mut owner, &change).await;
            assert!(message.contains("append-only"), "{change}: {message}");
        }
        assert_eq!(
            number(&mut owner, &format!("select count(*) from {table}")).await,
            rows
        );
    }
    refused(&mut owner, "truncate runs cascade").await;
    for sql in [
        "delete from runs",
        "delete from tenants",
        "delete from tokens",
        "truncate payloads",
        "update runs set run_no = 7",
        "update runs set run = run",
        "update runs set opened_at = now()",
        "update tenants set origin = 'x/t/y'",
        "update tokens set roles = '{admin}'",
        "update tokens set secret_hash = ''",
        "update payloads set ciphertext = ''",
        "update keys.run_keys set run = gen_random_uuid()",
        "update keys.run_keys set tenant = 't_0000000000000000'",
        "truncate keys.run_keys",
        "delete from keys.epochs",
        "update keys.epochs set epoch = 7",
        "drop schema keys cascade",
        "update signing_keys set spki = ''",
        "update signing_keys set revoked_index = null",
        "delete from signing_keys",
        "truncate signing_keys",
        "alter table frames disable trigger all",
        "drop trigger frames_append_only on frames",
        "alter table frames disable row level security",
        "drop table frames",
        "create or replace function refuse_change() returns trigger language plpgsql as 'begin return new; end'",
        "set session_replication_role = replica",
        "create table more (word text)",
        "create role other superuser",
    ] {
        refused(&mut app, sql).await;
    }
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_seen_by_their_tenant_alone() {
    let (server, _) = filled().await;
    let other = server.api.new_tenant().await;
    let theirs = other.open(&json!({"session": {}})).await;
    anchored(&server).await;
    let mut owner = server.sql().await;
    let protected: Vec<String> = sqlx::query_scalar(
        "select oid::regclass::text from pg_class where relrowsecurity order by 1",
    )
    .fetch_all(&mut owner)
    .await
    .unwrap();
    let expected = [
        "checkpoints",
        "cosignatures",
        "cosigned_checkpoints",
        "cosigned_proofs",
        "erased_payloads",
        "erasure_parts",
        "erasures",
        "frames",
        "hold_order_runs",
        "hold_orders",
        "hold_releases",
        "holds",
        "keys.epochs",
        "keys.run_keys",
        "ledger_entries",
        "ledger_nodes",
        "payloads",
        "people",
        "queries",
        "redaction_rules",
        "retention_policies",
        "retention_sweeps",
        "run_facts",
        "run_flags",
        "run_heads",
        "run_nodes",
        "run_retention",
        "runs",
        "saved_queries",
        "settings",
        "signing_keys",
        "time_stamps",
    ];
    assert_eq!(protected, expected);
    let tenants: Vec<String> = sqlx::query_scalar("select tenant from tenants order by created_at")
        .fetch_all(&mut owner)
        .await
        .unwrap();
    let mut app = server.sql().await;
    app.execute("set role onrecord_app").await.unwrap();
    for table in &protected {
        let count = format!("select count(*) from {table}");
        assert_eq!(
            number(&mut app, &count).await,
            0,
            "{table} without a tenant"
        );
        app.execute("set onrecord.tenant = 't_0000000000000000'")
            .await
            .unwrap();
        assert_eq!(number(&mut app, &count).await, 0, "{table} for nobody");
        let mut sum = 0;
        for tenant in &tenants {
            let set = format!("set onrecord.tenant = '{tenant}'");
            app.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
            let strangers = format!("select count(*) from {table} where tenant <> '{tenant}'");
            assert_eq!(number(&mut app, &strangers).await, 0, "{table} of others");
            sum += number(&mut app, &count).await;
        }
        assert_eq!(
            sum,
            number(&mut owner, &count).await,
            "{table}: each sees its own"
        );
        app.execute("reset onrecord.tenant").await.unwrap();
    }
    // Nor is anything written into another tenant.
    let set = format!("set onrecord.tenant = '{}'", tenants[0]);
    app.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
    let insert = format!(
        "insert into frames (run, seq, tenant, kind_no, key, at, bytes) values (run_uuid('{}'), 1, '{}', 9, 'x', now(), '')",
        theirs.run, tenants[1]
    );
    refused(&mut app, &insert).await;
    // Another's run is not to be updated, though the columns may be.
    let update = format!(
        "update runs set size = 99 where run = run_uuid('{}')",
        theirs.run
    );
    let done = app.execute(sqlx::AssertSqlSafe(update)).await.unwrap();
    assert_eq!(done.rows_affected(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_role_owns_nothing() {
    let (server, run) = filled().await;
    let mut owner = server.sql().await;
    let powers = "select count(*) from pg_roles where rolname = 'onrecord_app'
        and not (rolsuper or rolcanlogin or rolbypassrls or rolcreaterole or rolcreatedb or rolreplication)";
    assert_eq!(number(&mut owner, powers).await, 1);
    for (table, column) in [
        ("pg_class", "relowner"),
        ("pg_proc", "proowner"),
        ("pg_type", "typowner"),
        ("pg_namespace", "nspowner"),
        ("pg_database", "datdba"),
    ] {
        let owned =
            format!("select count(*) from {table} where {column} = 'onrecord_app'::regrole");
        assert_eq!(number(&mut owner, &owned).await, 0, "{table}");
    }
    let member = "select count(*) from pg_auth_members where member = 'onrecord_app'::regrole";
    assert_eq!(
        number(&mut owner, member).await,
        0,
        "it may become nobody else"
    );
    // The server does work as that role: a trigger of ours notes who inserts.
    owner
        .execute(sqlx::raw_sql(
            "create table seen (who text default current_user);
             grant insert on seen to public;
             create function note() returns trigger language plpgsql as 'begin insert into seen default values; return new; end';
             create trigger note before insert on frames for each row execute function note();",
        ))
        .await
        .unwrap();
    server.api.any_run().await;
    let seen: Vec<String> = sqlx::query_scalar("select who from seen")
        .fetch_all(&mut owner)
        .await
        .unwrap();
    assert_eq!(seen, ["onrecord_app"]);
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_the_database_or_in_the_log() {
    let server = Server::start().await;
    let api = server.api.clone();
    let words = "the launch code is 7-tango-4711";
    let token = json!({"name": "n", "roles": ["agent"]});
    let agent = api.make_token(&token).await;
    let opened = agent
        .open(&json!({"session": {"agent": "marker-of-this-test"}, "payloads": [{"name": "task", "text": words}]}))
        .await;
    let bytes = [0xde_u8, 0xad, 0xbe, 0xef].repeat(8);
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let frame = json!({"kind": "tool_call", "body": {"name": "shell"},
        "payloads": [{"name": "arguments", "json": {"say": words}}],
        "result": {"payloads": [{"name": "output", "base64": base64}]}});
    agent.frame(&opened.run, &frame).await.is(201);
    // What is refused and what goes wrong is not logged with its content either.
    let refused = json!({"kind": "observation", "body": {"n": 1}, "payloads": [{"name": "p", "text": words, "x": words}]});
    agent
        .frame(&opened.run, &refused)
        .await
        .problem(422, "unknown_member");
    agent
        .with(format!("{}x", agent.token.as_deref().unwrap()))
        .get("/v1/runs")
        .await
        .is(401);
    agent
        .frames(&opened.run, format!("{words}\n{refused}\n"))
        .await;
    api.post(&format!("/v1/runs/{}/seal", opened.run), &json!({}))
        .await
        .is(201);
    let bundle = server
        .audit(&opened.run, std::slice::from_ref(&opened))
        .await
        .1;
    assert!(
        bundle
            .0
            .iter()
            .any(|(_, member)| member == words.as_bytes())
    );

    let root_key = std::fs::read_to_string(server.data_dir.path().join("keys/root.key")).unwrap();
    let mut secrets: Vec<String> = vec![words.to_owned(), base64, root_key.trim().to_owned()];
    for api in [&api, &agent] {
        let secret = api.token.as_deref().unwrap().rsplit('_').next().unwrap();
        assert!(secret.len() >= 50);
        secrets.push(secret.to_owned());
    }
    let hex = |text: &[u8]| onrecord_core::digest::hex(text);
    let mut needles: Vec<String> = secrets.clone();
    needles.extend(secrets.iter().map(|secret| hex(secret.as_bytes())));
    needles.push(hex(&bytes));
    // As Rust would show bytes.
    let listed = |bytes: &[u8]| format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
    needles.extend(secrets.iter().map(|secret| listed(secret.as_bytes())));
    needles.push(listed(&bytes));
    let log = crate::log::text();
    assert!(log.contains(opened.run.as_str()), "the log is captured");
    for needle in &needles {
        assert!(!log.contains(needle.as_str()), "{needle} is in the log");
    }
    let mut sql = server.sql().await;
    let tables: Vec<String> = sqlx::query_scalar("select oid::regclass::text from pg_class where relkind = 'r' and relnamespace in ('public'::regnamespace, 'keys'::regnamespace)")
        .fetch_all(&mut sql)
        .await
        .unwrap();
    assert!(tables.len() >= 9, "{tables:?}");
    let mut found_marker = false;
    for table in tables {
        let rows: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(format!(
            "select t::text from {table} t"
        )))
        .fetch_all(&mut sql)
        .await
        .unwrap();
        for row in rows {
            found_marker |= row.contains("marker-of-this-test");
            for needle in &needles {
                assert!(!row.contains(needle.as_str()), "{needle} is in {table}");
            }
        }
    }
    assert!(found_marker, "rows are read as text");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_alters_behind_the_triggers_shows() {
    let (server, run) = filled().await;
    let receipt = server
        .api
        .frame(
            &run,
            &json!({"kind": "observation", "key": "k",
        "payloads": [{"name": "p", "text": "private words"}]}),
        )
        .await
        .is(200)
        .receipt();
    let mut owner = server.sql().await;
    owner
        .execute(sqlx::raw_sql(
            "alter table frames disable trigger user;
             update frames set bytes = convert_to(replace(convert_from(bytes, 'UTF8'), '\"key\":\"k\"', '\"key\":\"q\"'), 'UTF8') where seq = 1;
             alter table frames enable trigger user;",
        ))
        .await
        .unwrap();
    let bytes = crate::api::audit::export(&server.api, &run).await;
    let trust = crate::api::audit::trust(&server.api).await;
    for receipts in [&[][..], &[receipt]] {
        let report = crate::api::audit::check(&bytes, &trust, receipts);
        assert_eq!(report.verdict.exit_code, 1, "{:#?}", report.findings);
        assert_eq!(report.verdict.first_bad_seq, Some(1));
    }
    let path = format!("/v1/runs/{run}/verification");
    let own = server.api.get(&path).await.is(200).json();
    assert_eq!(own["verdict"]["exit_code"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncation_before_the_seal_shows_by_a_receipt() {
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let mut owner = server.sql().await;
    let frame = |key: &str| json!({"kind": "observation", "key": key});
    let first = server
        .api
        .frame(&opened.run, &frame("1"))
        .await
        .is(201)
        .receipt();
    owner
        .execute("create table kept as select * from runs")
        .await
        .unwrap();
    let second = server
        .api
        .frame(&opened.run, &frame("2"))
        .await
        .is(201)
        .receipt();
    server
        .audit(
            &opened.run,
            &[opened.clone(), first.clone(), second.clone()],
        )
        .await;
    owner
        .execute(sqlx::raw_sql(
            "alter table frames disable trigger user;
             delete from frames where seq = 2;
             update runs set size = kept.size, head = kept.head, last_at = kept.last_at, chain = kept.chain from kept;
             alter table frames enable trigger user;",
        ))
        .await
        .unwrap();
    // To whoever kept nothing it is an open run; the receipt proves that there was more.
    server.audit(&opened.run, &[opened.clone(), first]).await;
    let bytes = crate::api::audit::export(&server.api, &opened.run).await;
    let trust = crate::api::audit::trust(&server.api).await;
    let report = crate::api::audit::check(&bytes, &trust, &[second]);
    assert_eq!(report.verdict.code, onrecord_verify::Code::Receipt);
    assert_eq!(report.verdict.exit_code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_reads_its_own_run_and_no_other() {
    const OTHERS: i64 = 3_000;
    const APPENDS: i64 = 200;
    let server = Server::start().await;
    let opened = server.api.any_run().await;
    let mut owner = server.sql().await;
    // One frame has a statement of its own, two have that of batches; both are planned while the table has one row, as
    // tables begin.
    let append = async |key: String| {
        let frame = |part: &str| json!({"kind": "observation", "key": format!("{key}{part}")});
        server.api.frame(&opened.run, &frame("")).await.is(201);
        let lines = format!("{}\n{}\n", frame("/1"), frame("/2"));
        let answers = server.api.frames(&opened.run, lines).await;
        assert_eq!(answers[2], json!({"done": 2, "failed": 0}));
    };
    append("first".to_owned()).await;
    let others = format!(
        "insert into runs (run, tenant, run_no, opened_at, open_index, size, head, last_at, chain)
         select gen_random_uuid(), tenant, 100 + n, opened_at, open_index, size, head, last_at, chain
         from runs, generate_series(1, {OTHERS}) as n"
    );
    owner.execute(sqlx::AssertSqlSafe(others)).await.unwrap();
    for number in 0..APPENDS {
        append(format!("k{number}")).await;
    }
    server
        .audit(&opened.run, std::slice::from_ref(&opened))
        .await;
    let database = server.database.clone();
    // Sessions tell what they read when they end.
    server.stop().await;
    let mut owner = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let read = number(
        &mut owner,
        "select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'runs'",
    )
    .await;
    assert!(
        read < OTHERS + 20 * APPENDS,
        "{read} rows of runs were read"
    );
}
