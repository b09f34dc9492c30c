//! A new epoch: everything opens before, in the midst of and after it, and the old key is gone.

use crate::running::Server;
use onrecord::rotation::{self, Report};
use onrecord::start::RootSource;
use onrecord::store::Store;
use onrecord::vault::Vault;
use onrecord_core::id::TenantId;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};
use sqlx::Executor as _;
use std::path::PathBuf;

pub const ROTATIONS: &str = "/v1/keys/rotations";

/// What another process has: the same database and the same keys.
struct Process {
    store: Store,
    vault: Vault,
    tenant: TenantId,
}

impl Process {
    async fn beside(server: &Server) -> Self {
        let keys = server.data_dir.path().join("keys");
        let key_url = server.keys.as_ref().map(|keys| keys.url.as_str());
        let store = Store::connect(&server.database.url, key_url, 4).await;
        let tenant: String = sqlx::query_scalar("select tenant from tenants")
            .fetch_one(&mut server.sql().await)
            .await
            .unwrap();
        Self {
            store: store.unwrap(),
            vault: Vault::open(&keys, &RootSource::File(None), false)
                .await
                .unwrap(),
            tenant: tenant.parse().unwrap(),
        }
    }

    async fn rotate(&self) -> Result<Report, String> {
        let done = rotation::epoch(&self.store, &self.vault, &self.tenant).await;
        done.map_err(|error| error.to_string())
    }

    fn file(&self, server: &Server, name: &str) -> PathBuf {
        let keys = server.data_dir.path().join("keys");
        keys.join(self.tenant.as_str()).join(name)
    }
}

async fn said(server: &Server, run: &str, key: &str) -> Receipt {
    let frame = json!({"kind": "observation", "key": key, "payloads": [{"name": "p", "text": "private words", "tier": 1}]});
    server.api.frame(run, &frame).await.is(201).receipt()
}

/// A run that is open and one that is sealed, each with a payload.
async fn recorded(server: &Server) -> [Vec<Receipt>; 2] {
    let mut runs = [Vec::new(), Vec::new()];
    for receipts in &mut runs {
        let opened = server.api.any_run().await;
        let run = opened.run.to_string();
        receipts.extend([opened, said(server, &run, "k").await]);
    }
    let path = format!("/v1/runs/{}/seal", runs[1][0].run);
    server.api.post(&path, &json!({})).await.is(201);
    runs
}

async fn sql(server: &Server, sql: &'static str) {
    let mut owner = server.sql().await;
    owner.execute(sqlx::raw_sql(sql)).await.unwrap();
}

async fn epochs_of_keys(server: &Server) -> Vec<(i32, i64)> {
    sqlx::query_as("select epoch, count(*) from keys.run_keys group by epoch order by epoch")
        .fetch_all(&mut server.sql().await)
        .await
        .unwrap()
}

/// A rotation of the server's own, seen to its end.
pub async fn rotated(server: &Server) -> Value {
    let mut state = server.api.post(ROTATIONS, &json!({})).await.is(202).json();
    assert_eq!(state["state"], "rotating");
    while state["state"] == "rotating" {
        state = server.api.get(ROTATIONS).await.is(200).json();
    }
    state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_epoch_keeps_everything_and_the_old_key_is_gone() {
    let server = Server::start().await;
    let other = server.second().await;
    let process = Process::beside(&server).await;
    let [mut open, sealed] = recorded(&server).await;
    // The other server has the first epoch in memory, and a run under it.
    let run = open[0].run.to_string();
    open.push(said(&other, &run, "theirs").await);
    let ciphertexts =
        "select md5(string_agg(ciphertext || wrapped_dek, '' order by commit)) from payloads";
    let before: String = sqlx::query_scalar(ciphertexts)
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap();

    let state = rotated(&server).await;
    assert_eq!((&state["done"], &state["of"]), (&json!(8), &json!(8)));
    let epochs = state["epochs"].as_array().unwrap();
    assert_eq!(epochs.len(), 2);
    assert!(epochs[0]["destroyed_at"].is_string() && epochs[0]["keys"] == 0);
    assert!(epochs[1]["closed_at"].is_null() && epochs[1]["keys"] == 8);
    for gone in ["epoch-1.key", "epoch-1.destroyed"] {
        assert!(!process.file(&server, gone).exists(), "{gone}");
    }
    assert!(process.file(&server, "epoch-2.key").exists());
    let after: String = sqlx::query_scalar(ciphertexts)
        .fetch_one(&mut server.sql().await)
        .await
        .unwrap();
    assert_eq!(
        before, after,
        "no ciphertext and no payload's key is touched"
    );

    // Runs go on and new ones open, in both servers and in one that starts now.
    let third = server.second().await;
    for (server, key) in [(&server, "a"), (&other, "b"), (&third, "c")] {
        // The first thing that the other one does is to open a run: it has nothing but the old epoch in memory.
        let new = server.api.any_run().await;
        server.audit(&new.run.clone(), &[new]).await;
        open.push(said(server, &run, key).await);
        server.audit(&run, &open).await;
        server.audit(&sealed[0].run, &sealed).await;
    }
    assert_eq!(epochs_of_keys(&server).await, [(2, 20)]);
    // What was sent before is known again.
    let again = json!({"kind": "observation", "key": "k", "payloads": [{"name": "p", "text": "private words", "tier": 1}]});
    assert_eq!(
        server.api.frame(&run, &again).await.is(200).receipt(),
        open[1]
    );

    let done = process.rotate().await.unwrap();
    let expected = Report {
        epoch: 3,
        rewrapped: 20,
        destroyed: vec![2],
    };
    assert_eq!(done, expected);
    for server in [&server, &other] {
        server.audit(&sealed[0].run, &sealed).await;
        let new = server.api.any_run().await;
        server.audit(&new.run.clone(), &[new]).await;
    }
    let known = rotation::epochs(&process.store, &process.tenant)
        .await
        .unwrap();
    let destroyed: Vec<i32> = known
        .iter()
        .filter(|epoch| epoch.destroyed_at.is_some())
        .map(|epoch| epoch.epoch)
        .collect();
    assert_eq!(destroyed, [1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_admin_rotates_and_each_tenant_alone() {
    let server = Server::start().await;
    let other = server.api.new_tenant().await;
    let theirs = other.open(&json!({"session": {}})).await;
    server.api.any_run().await;
    let token = json!({"name": "n", "roles": ["agent", "gate", "auditor", "compliance"]});
    let token = server.api.make_token(&token).await;
    token
        .post(ROTATIONS, &json!({}))
        .await
        .problem(403, "role_missing");
    token.get(ROTATIONS).await.problem(403, "role_missing");
    rotated(&server).await;
    let state = other.get(ROTATIONS).await.is(200).json();
    assert_eq!(state["epochs"].as_array().unwrap().len(), 1);
    assert_eq!((&state["state"], &state["of"]), (&json!("idle"), &json!(4)));
    let path = format!("/v1/runs/{}/verification", theirs.run);
    other.get(&path).await.is(200);
}

/// What is in the way of a step, what takes it out of the way, and how many keys are under which epoch in between.
struct Step {
    name: &'static str,
    spoil: &'static str,
    mend: &'static str,
    said: &'static str,
    between: &'static [(i32, i64)],
}

const STEPS: [Step; 3] = [
    Step {
        name: "closing the old epoch",
        spoil: "create trigger spoil before update on keys.epochs for each row execute function spoil()",
        mend: "drop trigger spoil on keys.epochs",
        said: "spoiled",
        between: &[(1, 8)],
    },
    Step {
        name: "wrapping again",
        spoil: "create trigger spoil before update on keys.run_keys for each row when (old.tier = 3) execute function spoil()",
        mend: "drop trigger spoil on keys.run_keys",
        said: "spoiled",
        between: &[(1, 8)],
    },
    Step {
        name: "noting what is destroyed",
        spoil: "create trigger spoil before update on keys.epochs for each row when (new.destroyed_at is not null) execute function spoil()",
        mend: "drop trigger spoil on keys.epochs",
        said: "spoiled",
        between: &[(2, 8)],
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_gone_on_from() {
    for step in STEPS {
        let server = Server::start().await;
        let process = Process::beside(&server).await;
        let runs = recorded(&server).await;
        sql(&server, "create function spoil() returns trigger language plpgsql as 'begin raise exception ''spoiled''; end'").await;
        sql(&server, step.spoil).await;
        for _ in 0..2 {
            let error = process.rotate().await.expect_err(step.name);
            assert!(error.contains(step.said), "{}: {error}", step.name);
        }
        assert_eq!(epochs_of_keys(&server).await, step.between, "{}", step.name);
        goes_on(&server, &runs).await;
        // Where the new epoch is known already, a new run's keys are under it beside the others.
        server.second().await.api.any_run().await;
        sql(&server, step.mend).await;
        finished(&server, &process, &runs, step.name, 12).await;
    }
}

/// A server that has nothing in memory opens it all.
async fn goes_on(server: &Server, runs: &[Vec<Receipt>]) {
    let fresh = server.second().await;
    for receipts in runs {
        fresh.audit(&receipts[0].run, receipts).await;
        server.audit(&receipts[0].run, receipts).await;
    }
    fresh.stop().await;
}

async fn finished(
    server: &Server,
    process: &Process,
    runs: &[Vec<Receipt>],
    name: &str,
    keys: i64,
) {
    let report = process.rotate().await.expect(name);
    assert_eq!(
        report.epoch, 2,
        "{name}: it goes on, and does not begin anew"
    );
    assert_eq!(epochs_of_keys(server).await, [(2, keys)], "{name}");
    for gone in ["epoch-1.key", "epoch-1.destroyed"] {
        assert!(!process.file(server, gone).exists(), "{name}: {gone}");
    }
    let epochs = rotation::epochs(&process.store, &process.tenant)
        .await
        .unwrap();
    assert!(epochs[0].destroyed_at.is_some(), "{name}");
    goes_on(server, runs).await;
    server.api.any_run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_made_or_destroyed_stops_it_and_it_goes_on() {
    let server = Server::start().await;
    let process = Process::beside(&server).await;
    let runs = recorded(&server).await;
    // A key that does not open from the disk gets nothing under it.
    let next = process.file(&server, "epoch-2.key");
    std::fs::write(&next, format!("{}\n", "00".repeat(60))).unwrap();
    let error = process.rotate().await.expect_err("no key");
    assert!(error.contains("epoch-2.key does not open"), "{error}");
    assert_eq!(epochs_of_keys(&server).await, [(1, 8)]);
    std::fs::remove_file(&next).unwrap();
    goes_on(&server, &runs).await;

    let in_the_way = process.file(&server, "epoch-1.destroyed");
    std::fs::create_dir(&in_the_way).unwrap();
    let error = process.rotate().await.expect_err("it is not destroyed");
    assert!(error.contains("epoch-1"), "{error}");
    let epochs = rotation::epochs(&process.store, &process.tenant)
        .await
        .unwrap();
    assert!(epochs[0].closed_at.is_some() && epochs[0].destroyed_at.is_none());
    let state = server.api.get(ROTATIONS).await.is(200).json();
    assert_eq!(state["state"], "rotating");
    goes_on(&server, &runs).await;
    std::fs::remove_dir(&in_the_way).unwrap();
    // As a crash in the midst of it leaves it: under another name, and overwritten in part.
    std::fs::rename(process.file(&server, "epoch-1.key"), &in_the_way).unwrap();
    std::fs::write(&in_the_way, "000000").unwrap();
    goes_on(&server, &runs).await;
    finished(&server, &process, &runs, "files", 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_rotations_and_openings_at_once_leave_no_key_behind() {
    let server = Server::start().await;
    let other = server.second().await;
    let processes = [
        Process::beside(&server).await,
        Process::beside(&server).await,
    ];
    let mut runs = Vec::new();
    for _ in 0..130 {
        runs.push(server.api.any_run().await);
    }
    let opened = async {
        let mut opened = Vec::new();
        for number in 0..40 {
            let server = if number % 2 == 0 { &server } else { &other };
            opened.push(server.api.any_run().await);
        }
        opened
    };
    let (one, two, opened) = tokio::join!(processes[0].rotate(), processes[1].rotate(), opened);
    let (one, two) = (one.unwrap(), two.unwrap());
    runs.extend(opened);
    let newest = one.epoch.max(two.epoch);
    assert!(newest <= 3, "{one:?} {two:?}");
    let keys = 4 * i64::try_from(runs.len()).unwrap();
    // Whoever opened runs after the last of them has the newest; at most those before are to be moved.
    let left = processes[0].rotate().await.unwrap();
    assert_eq!(left.epoch, newest + 1);
    assert_eq!(epochs_of_keys(&server).await, [(newest + 1, keys)]);
    for receipt in [&runs[0], &runs[129], &runs[169]] {
        server
            .audit(&receipt.run, std::slice::from_ref(receipt))
            .await;
        other
            .audit(&receipt.run, std::slice::from_ref(receipt))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_of_the_keys_folder_is_refused() {
    let server = Server::start().await;
    let process = Process::beside(&server).await;
    recorded(&server).await;
    let kept = std::fs::read(process.file(&server, "epoch-1.key")).unwrap();
    process.rotate().await.unwrap();
    std::fs::write(process.file(&server, "epoch-1.key"), kept).unwrap();
    let newest = process.file(&server, "epoch-2.key");
    let aside = process.file(&server, "aside");
    std::fs::rename(&newest, &aside).unwrap();
    let error = process.rotate().await.expect_err("an old folder");
    assert!(error.contains("old copy"), "{error}");
    let started = onrecord::start::start(&server.database.config(server.data_dir.path())).await;
    let error = started.err().expect("an old folder").to_string();
    assert!(error.contains("old copy"), "{error}");
    std::fs::rename(&aside, &newest).unwrap();
    // A key that came back from a backup is destroyed again.
    let report = process.rotate().await.unwrap();
    assert_eq!((report.epoch, report.destroyed), (2, vec![1]));
}

/// The program, with the server's address and token; what it printed, and what it said beside.
fn program(server: &Server, args: &[&str], env: &[(&str, &str)]) -> (bool, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_onrecord"))
        .args(args)
        .env_clear()
        .env("ONRECORD_URL", &server.api.base)
        .env("ONRECORD_TOKEN", server.api.token.as_deref().unwrap())
        .envs(env.iter().copied())
        .output()
        .unwrap();
    (
        output.status.success(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_rotates_and_moves_to_another_root_key() {
    let server = Server::start().await;
    let runs = recorded(&server).await;
    let (done, status, _) = program(&server, &["keys", "status", "--json"], &[]);
    let status: Value = serde_json::from_str(&status).unwrap();
    assert!(done && status["state"] == "idle" && status["of"] == 8);
    let (done, table, told) = program(&server, &["keys", "rotate"], &[]);
    assert!(done, "{told}");
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(lines, [["EPOCH", "KEYS"], ["1", "0"], ["2", "8"]]);
    // What cannot be done is not said to be.
    let process = Process::beside(&server).await;
    let next = process.file(&server, "epoch-3.key");
    std::fs::write(&next, "zz\n").unwrap();
    let (done, _, told) = program(&server, &["keys", "rotate"], &[]);
    assert!(!done && told.contains("it stopped"), "{told}");
    std::fs::remove_file(&next).unwrap();

    // A root key elsewhere: by a variable, which nothing prints, and then by a file that is made.
    let (database, data_dir) = (server.database.clone(), server.data_dir.clone());
    let (keys, folder) = (data_dir.path().join("keys"), data_dir.path().to_owned());
    let keys = keys.to_str().unwrap();
    let digits = "5eed".repeat(16);
    let variables = [("ONRECORD_NEXT_ROOT_KEY", digits.as_str())];
    let to_variable = ["keys", "rewrap-root", "--keys", keys, "--to-variable"];
    let (done, printed, told) = program(&server, &to_variable, &variables);
    assert!(done && printed.starts_with("4 key files"), "{told}");
    let file = folder.join("elsewhere.key");
    let to_file = [
        "keys",
        "rewrap-root",
        "--keys",
        keys,
        "--json",
        "--to-file",
        file.to_str().unwrap(),
    ];
    let (done, _, error) = program(&server, &to_file, &[]);
    assert!(!done && error.contains("provider: environment"), "{error}");
    let variables = [("ONRECORD_ROOT_KEY", digits.as_str())];
    let doctor = [
        "doctor",
        "--data-dir",
        folder.to_str().unwrap(),
        "--database-url",
        &database.url,
    ];
    let (_, found, _) = program(&server, &doctor, &variables);
    assert!(found.contains("of provider environment"), "{found}");
    let (done, printed, told) = program(&server, &to_file, &variables);
    assert!(done, "{told}");
    assert_eq!(printed, "{\"wrapped\":4}\n");
    for text in [&found, &printed, &told, &error] {
        assert!(!text.contains("5eed5eed"), "{text}");
    }
    // The server that was left running signs and opens what it has, and the next one starts with the new root key alone.
    let mut config = database.config(&folder);
    let error = onrecord::start::start(&config)
        .await
        .err()
        .expect("the old root key");
    assert!(error.to_string().contains("rewrap-root"), "{error}");
    config.root_key = RootSource::File(Some(file));
    onrecord::start::start(&config)
        .await
        .expect("the new root key");
    for receipts in &runs {
        server.audit(&receipts[0].run, receipts).await;
    }
}
