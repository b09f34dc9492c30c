//! A bundle of ours checked with the tools of any machine, none of them ours.

use crate::api::audit::trust;
use crate::running::Server;
use serde_json::json;
use std::process::Command;

/// The steps of the specification, over a folder with the unpacked bundle and `trust.txt`. The run is
/// the first of its tenant, so that its seal is entry 3 of a ledger of 4.
const STEPS: &str = r#"
set -euo pipefail
sha256sum --quiet -c MANIFEST.sha256
leaf() { { printf '\0'; cat; } | sha256sum | cut -c1-64; }
node() { { printf '\001'; printf %s "$1$2" | xxd -r -p; } | sha256sum | cut -c1-64; }
same() { [ "$2" = "$3" ] || { echo "$1: $2 is not $3"; exit 1; }; }

G=$(sed -n 1p frames.ndjson | jq -r '"onrecord/genesis/1\n\(.tenant)\n\(.run)"' | sha256sum | cut -c1-64)
same genesis "$G" "$(sed -n 1p frames.ndjson | jq -r .prev)"
N=$(wc -l < frames.ndjson)
for I in $(seq 2 "$N"); do
  same "line $I" "$(sed -n "$((I - 1))p" frames.ndjson | tr -d '\n' | leaf)" "$(sed -n "${I}p" frames.ndjson | jq -r .prev)"
done

jq -r '"\(.commit) \(.salt)"' disclosures.ndjson | while read -r C S; do
  same payload "$C" "$({ printf 'onrecord/payload/1\n'; printf %s "$S" | xxd -r -p; cat "payloads/$C"; } | sha256sum | cut -c1-64)"
done

signed() { # FILE SUBJECT : checks a signed statement by the pinned key, and the digest of what it is about
  jq -r .payload "$1" | base64 -d > statement
  { printf 'DSSEv1 28 application/vnd.in-toto+json %d ' "$(wc -c < statement)"; cat statement; } > pae
  jq -r '.signatures[0].sig' "$1" | base64 -d > sig
  awk '$1 == "seal-key" {print $2; exit}' trust.txt | base64 -d > key.der
  openssl pkeyutl -verify -pubin -keyform DER -inkey key.der -rawin -in pae -sigfile sig > /dev/null
  same "$1" "$(jq -r '.subject[0].digest.sha256' statement)" "$(sha256sum "$2" | cut -c1-64)"
  same keyid "$(jq -r .predicate.signer.keyid statement)" "$(sha256sum key.der | cut -c1-64)"
}
signed export.dsse.json MANIFEST.sha256
signed seal.dsse.json frames.ndjson
same head "$(jq -r .predicate.head statement)" "$(tail -1 frames.ndjson | tr -d '\n' | leaf)"
same size "$(jq -r .predicate.size statement)" "$N"

set -- $(sed -n 3,4p seal.tlog-proof | base64 -d | xxd -p -c 32)
R=$(node "$2" "$(node "$1" "$(leaf < seal.dsse.json)")")
same ledger "$R" "$(sed -n 8p seal.tlog-proof | base64 -d | xxd -p -c 32)"
echo "all of it holds"
"#;

fn is_there(tool: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {tool}")])
        .output();
    found.is_ok_and(|output| output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn coreutils_and_openssl_check_what_we_export() {
    for tool in [
        "bash",
        "sha256sum",
        "tar",
        "awk",
        "base64",
        "openssl",
        "jq",
        "xxd",
    ] {
        if !is_there(tool) {
            eprintln!("skipped: a bundle by hand, {tool} is not installed");
            return;
        }
    }
    let server = Server::start().await;
    let api = &server.api;
    let run = api
        .open(
            &json!({"session": {"agent": "smith"}, "payloads": [{"name": "task", "text": "yes"}]}),
        )
        .await
        .run;
    api.frame(&run, &json!({"kind": "turn"})).await.is(201);
    let call = json!({"kind": "tool_call", "body": {"name": "caf\u{e9} \u{1f600}"},
        "payloads": [{"name": "arguments", "json": {"b": 1, "a": 1e-7}}],
        "result": {"payloads": [{"name": "output", "base64": "AAH//g=="}, {"name": "none", "text": ""}]}});
    api.frame(&run, &call).await.is(201);
    api.post(&format!("/v1/runs/{run}/seal"), &json!({}))
        .await
        .is(201);
    let (_, bundle) = server.audit(&run, &[]).await;

    let folder = tempfile::TempDir::new().unwrap();
    let tar = folder.path().join("bundle.tar");
    std::fs::write(&tar, bundle.write()).unwrap();
    let unpacked = Command::new("tar")
        .arg("-xf")
        .arg(&tar)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success());
    std::fs::write(folder.path().join("trust.txt"), trust(api).await).unwrap();
    let by_hand = || {
        let output = Command::new("bash")
            .args(["-c", STEPS])
            .current_dir(folder.path())
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (
            output.status.success() && text.ends_with("all of it holds\n"),
            text,
        )
    };
    let (holds, text) = by_hand();
    assert!(holds, "{text}");

    // The steps would notice: each of these is one byte.
    for name in [
        "frames.ndjson",
        "seal.dsse.json",
        "export.dsse.json",
        "seal.tlog-proof",
        "trust.txt",
    ] {
        let path = folder.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut altered = whole.clone();
        let place = match name {
            "trust.txt" => text_place(&altered, b"seal-key ") + 40,
            "seal.tlog-proof" => text_place(&altered, b"index 3\n") + 12,
            _ => altered.len() / 2,
        };
        altered[place] = if altered[place] == b'A' { b'B' } else { b'A' };
        std::fs::write(&path, &altered).unwrap();
        assert!(!by_hand().0, "{name} was altered");
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(by_hand().0);
}

fn text_place(bytes: &[u8], text: &[u8]) -> usize {
    bytes
        .windows(text.len())
        .position(|window| window == text)
        .unwrap()
}
