//! Measurements, which assert nothing: what is found of other scanners' samples, what in a folder that is named, and how
//! fast.
//!
//! `ONRECORD_SAMPLES=DIR cargo test --release --test redaction measure -- --ignored --nocapture`

use super::files;
use crate::shared::shared;
use onrecord::redact::{RuleSet, Shape};
use onrecord_core::digest::Hash;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// What scanners report and is no secret: numbers of accounts and ids of tenants and clients, a binary key store, and what
/// the rules of their users say.
const NO_SECRETS: [&str; 5] = [
    "AWSAccountID",
    "AzureClientId",
    "AzureTenantId",
    "PrivateKeyP12",
    "PATTERN",
];

#[test]
#[ignore = "reads a folder that the environment names"]
fn measure() {
    let rules = RuleSet::builtin().unwrap();
    recall(&rules);
    folder(&rules);
    clean(&rules);
    hostile(&rules);
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}

/// What is found of the samples that secretlint reports, by rule and by half: a sample is in the one or the other by the
/// hash of its name, and rules may be written from those of the first half alone.
fn recall(rules: &RuleSet) {
    let Some(folder) = shared("vectors/secret-scanning/secretlint") else {
        return;
    };
    let mut families: BTreeMap<(String, bool), (usize, usize)> = BTreeMap::new();
    for path in files(&folder) {
        if path.file_name().is_none_or(|name| name != "output.json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let output: Value = serde_json::from_str(&text).unwrap_or_default();
        let content = output["sourceContent"].as_str().unwrap_or_default();
        let name = path.strip_prefix(&folder).unwrap().display().to_string();
        let held = Hash::of(&[name.as_bytes()]).0[0] % 2 == 1;
        let found = rules.find(content.as_bytes(), Shape::Text);
        for message in output["messages"].as_array().into_iter().flatten() {
            let code = message["messageId"].as_str().unwrap_or_default();
            if NO_SECRETS.iter().any(|other| code.starts_with(other)) {
                continue;
            }
            // Their places are in characters of UTF-16, and the samples are ASCII.
            let place = |index: usize| message["range"][index].as_u64().unwrap_or(0);
            let (from, to) = (place(0), place(1));
            let hit = found
                .iter()
                .any(|one| (one.start as u64) < to && one.end as u64 > from);
            let family = message["ruleId"].as_str().unwrap_or_default();
            let family = family.rsplit("rule-").next().unwrap_or_default().to_owned();
            let entry = families.entry((family, held)).or_default();
            entry.0 += usize::from(hit);
            entry.1 += 1;
            if !hit {
                println!("missed: {name}: {code}");
            }
        }
    }
    let mut sums = [(0, 0); 2];
    for ((family, held), (hits, all)) in &families {
        let half = if *held { "held" } else { "seen" };
        println!("{half} {family}: {hits} of {all}");
        let sum = &mut sums[usize::from(*held)];
        *sum = (sum.0 + hits, sum.1 + all);
    }
    println!(
        "seen {} of {}, held {} of {}",
        sums[0].0, sums[0].1, sums[1].0, sums[1].1
    );
}

/// What is found in the files of a folder, without the secrets.
fn folder(rules: &RuleSet) {
    #[expect(
        clippy::disallowed_methods,
        reason = "a measurement names its folder so"
    )]
    let Some(folder) = std::env::var_os("ONRECORD_SAMPLES") else {
        return;
    };
    let (mut bytes, mut count, mut time) = (0, 0, Duration::ZERO);
    for path in files(Path::new(&folder)) {
        let content = std::fs::read(&path).unwrap();
        let begun = Instant::now();
        let found = rules.find(&content, Shape::Text);
        time += begun.elapsed();
        bytes += content.len();
        count += found.len();
        for one in found {
            println!(
                "{}: {} to {}: {}",
                path.display(),
                one.start,
                one.end,
                one.rule
            );
        }
    }
    println!(
        "{count} findings in {bytes} bytes, {:.0} MB/s",
        rate(bytes, time)
    );
}

/// How long a clean payload of 8 KiB takes.
fn clean(rules: &RuleSet) {
    let line =
        "the build of module 17 took 231 ms and wrote 4 files below out/, none of which changed\n";
    let text = json!({"output": line.repeat(8_192 / line.len())}).to_string();
    const TIMES: u32 = 10_000;
    let begun = Instant::now();
    for _ in 0..TIMES {
        assert!(rules.redact(text.as_bytes(), Shape::Json).is_none());
    }
    println!("clean, 8 KiB: {:?}", begun.elapsed() / TIMES);
}

/// What is hard to look through, a MB of each.
fn hostile(rules: &RuleSet) {
    const BYTES: usize = 1_000_000;
    let again = |piece: &str| piece.repeat(BYTES / piece.len());
    let numbered = |piece: &str| {
        let lines = (0..BYTES / (piece.len() + 5)).map(|n| piece.replace('#', &format!("{n:05}")));
        lines.collect::<String>()
    };
    let base64 =
        |piece: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, piece);
    let nested = (0..6).fold(
        again("password=hunter2x ")[..300_000].to_owned(),
        |text, _| base64(&text)[..300_000].to_owned(),
    );
    let mut texts = vec![
        ("names", again("pwd=")),
        ("names and figures", again("pwd=1")),
        ("names without values", again("password")),
        ("names of many words", again("a-password-")),
        ("names in quotes", again("\"password\":\"")),
        ("escaped quotes", again("\\\"token\\\":\\\"")),
        ("secrets, all different", numbered("password=Qz7#xk\n")),
        ("secrets, all the same", again("password=Qz7xk9a\n")),
        (
            "tokens, all different",
            numbered("ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7#\n"),
        ),
        ("anchors of tokens", again("SK1")),
        (
            "anchors at the ends of lines",
            again(&format!("{}\n", "SK1".repeat(130))),
        ),
        ("anchors behind", again("-us1")),
        ("curl", again("curl ")),
        ("curl with options", again("curl -u a ")),
        ("bearer", again("bearer ")),
        ("tokens of web", again("eyJaaaaaaaaaa.")),
        ("addresses", again("a://b:")),
        ("keys in PEM", again("-----BEGIN PRIVATE KEY-----\n")),
        ("colours", again("\u{1b}[0m")),
        ("base64 of names", base64(&again("password="))),
        ("base64 of base64", nested),
        ("cookies", again("cookie: a=1;")),
        ("headers", again("authorization: bearer\n")),
    ];
    let members: Vec<String> = (0..BYTES / 20)
        .map(|n| format!("\"k{n}_token\":{n}"))
        .collect();
    texts.push(("members", format!("{{{}}}", members.join(","))));
    texts.push((
        "strings of JSON",
        json!(json!([again("{\"password\":\"a1b2c3d4\"},")]).to_string()).to_string(),
    ));
    texts.push((
        "arrays",
        format!("[{}\"password=Qz7xk9a\"]", again("[\"a\"],")),
    ));
    for (name, text) in texts {
        let shape = if text.starts_with(['{', '[']) {
            Shape::Json
        } else {
            Shape::Text
        };
        let begun = Instant::now();
        let found = rules.redact(text.as_bytes(), shape);
        let time = begun.elapsed();
        let count = found.map_or(0, |found| found.marks.len());
        println!(
            "hostile, {name}: {:.0} ms a MB, {count} found",
            1e3 / rate(text.len(), time)
        );
    }
}
