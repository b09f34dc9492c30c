//! Time stamps by an authority that `openssl ts` plays.

use crate::anchors::sealed;
use crate::api::audit::{check, export, trust};
use crate::api::bundle::Bundle;
use crate::running::Server;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord::anchor::Config;
use onrecord_core::statement::Signed;
use onrecord_verify::{Code, TimeStamp};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;

/// An authority: a certificate of its own, under one that certifies it.
struct Authority {
    folder: TempDir,
}

fn openssl(folder: &Path, args: &[&str]) -> (bool, String) {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(folder)
        .env_remove("OPENSSL_CONF")
        .output()
        .expect("openssl runs");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

impl Authority {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let conf = "[req]\ndistinguished_name = dn\n[dn]\n[tsa]\ndefault_tsa = t\n[t]\nserial = serial\nsigner_cert = tsa.pem\ncerts = ca.pem\n\
             signer_key = tsa.key\nsigner_digest = sha256\ndefault_policy = 1.2.3.4.1\ndigests = sha256\naccuracy = secs:1\n\
             ess_cert_id_alg = sha256\n";
        fs::write(folder.path().join("conf"), conf).unwrap();
        fs::write(folder.path().join("serial"), "01\n").unwrap();
        let stamper =
            "extendedKeyUsage = critical,timeStamping\nkeyUsage = critical,digitalSignature\n";
        fs::write(folder.path().join("ext"), stamper).unwrap();
        for args in [
            "req -x509 -config conf -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=ca -days 30 -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign",
            "req -config conf -newkey rsa:3072 -nodes -keyout tsa.key -out tsa.csr -subj /CN=tsa",
            "x509 -req -in tsa.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -sha384 -extfile ext -out tsa.pem",
        ] {
            let args: Vec<&str> = args.split(' ').collect();
            let (done, text) = openssl(folder.path(), &args);
            assert!(done, "{args:?}: {text}");
        }
        Self { folder }
    }

    /// The line of a trust file that pins one of its certificates.
    fn line(&self, file: &str) -> String {
        let pem = fs::read_to_string(self.path(file)).unwrap();
        let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        format!("time-authority {base64}\n")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn reply(&self, query: &[u8]) -> Vec<u8> {
        fs::write(self.path("query"), query).unwrap();
        let args = [
            "ts",
            "-reply",
            "-config",
            "conf",
            "-queryfile",
            "query",
            "-out",
            "reply",
        ];
        let (done, text) = openssl(self.folder.path(), &args);
        assert!(done, "{text}");
        fs::read(self.path("reply")).unwrap()
    }

    /// It over HTTP, its address.
    async fn serve(self: &Arc<Self>) -> String {
        let router = Router::new()
            .route("/", post(answer))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }
}

async fn answer(
    State(authority): State<Arc<Authority>>,
    headers: HeaderMap,
    query: Bytes,
) -> (StatusCode, Vec<u8>) {
    assert_eq!(headers["content-type"], "application/timestamp-query");
    (StatusCode::OK, authority.reply(&query))
}

/// A server that has an authority stamp, and a run that it stamped.
async fn stamped(authority: &Arc<Authority>) -> (Server, String) {
    let config = Config {
        authority: Some(authority.serve().await),
        ..Config::default()
    };
    let server = Server::anchored(config).await;
    let run = sealed(&server).await;
    server.app.anchors.round().await;
    (server, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stamp_is_in_the_bundle_and_believed_by_whoever_pins_its_authority() {
    let authority = Arc::new(Authority::new());
    let (server, run) = stamped(&authority).await;
    let path = format!("/v1/runs/{run}/seal");
    let seal = server.api.get(&path).await.is(200).json();
    let at = seal["stamped_at"].as_str().unwrap();
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    assert_eq!(state["stamped_seal"]["at"], at);
    assert!(state["stamped_checkpoint"]["number"].is_u64(), "{state}");

    let bytes = export(&server.api, &run).await;
    let bundle = Bundle::read(&bytes);
    let reply = bundle.member("seal.tsr");
    // openssl says the same of it, over the 64 bytes of the signature.
    let signed = Signed::parse(bundle.member("seal.dsse.json")).unwrap();
    fs::write(authority.path("signature"), signed.sig).unwrap();
    fs::write(authority.path("seal.tsr"), reply).unwrap();
    let args = "ts -verify -in seal.tsr -data signature -CAfile ca.pem";
    let (done, text) = openssl(
        authority.folder.path(),
        &args.split(' ').collect::<Vec<_>>(),
    );
    assert!(done, "{text}");
    assert_eq!(TimeStamp::parse(reply).unwrap().time.to_string(), at);

    // Nobody pinned it: named as not checked, and the verdict is as it was.
    let own = trust(&server.api).await;
    let report = check(&bytes, &own, &[]);
    assert_eq!(report.verdict.code, Code::Verified);
    assert!(
        report
            .not_checked
            .iter()
            .any(|one| one.contains("seal.tsr")),
        "{:?}",
        report.not_checked
    );
    assert_eq!(report.facts.stamped_at, None);

    // Pinned by the certificate that certifies it, or by its own.
    for file in ["ca.pem", "tsa.pem"] {
        for anchor in ["", "time-anchor 86400\n"] {
            let trust = format!("{own}{}{anchor}", authority.line(file));
            let report = check(&bytes, &trust, &[]);
            assert_eq!(
                report.verdict.code,
                Code::Verified,
                "{:#?}",
                report.findings
            );
            assert_eq!(report.facts.stamped_at.unwrap().to_string(), at);
            assert!(
                !report
                    .not_checked
                    .iter()
                    .any(|one| one.contains("seal.tsr"))
            );
        }
    }
    // Another authority than the one that is pinned.
    let other = Authority::new();
    let report = check(&bytes, &format!("{own}{}", other.line("ca.pem")), &[]);
    assert_eq!(
        (report.verdict.code, report.verdict.exit_code),
        (Code::TimeAuthority, 2)
    );
    // Without a log that is pinned it anchors all the same.
    let seal_key = own
        .lines()
        .find(|line| line.starts_with("seal-key"))
        .unwrap();
    let alone = format!(
        "{seal_key}\n{}time-anchor 86400\n",
        authority.line("ca.pem")
    );
    assert_eq!(check(&bytes, &alone, &[]).verdict.code, Code::Verified);
    // The audit that every story is followed by.
    server.audit(&run, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_false_stamp_is_found() {
    let authority = Arc::new(Authority::new());
    let (server, run) = stamped(&authority).await;
    let next = sealed(&server).await;
    server.app.anchors.round().await;
    let bytes = export(&server.api, &run).await;
    let of_next = Bundle::read(&export(&server.api, &next).await);
    let pinned = format!("{}{}", trust(&server.api).await, authority.line("ca.pem"));
    let reply = Bundle::read(&bytes).member("seal.tsr").to_vec();
    let verdict = |stamp: &[u8], trust: &str| {
        let mut bundle = Bundle::read(&bytes);
        bundle.set("seal.tsr", stamp);
        // Whoever forges a stamp makes the manifest anew; the export's signature is another matter.
        let manifest = bundle.manifest();
        bundle.set("MANIFEST.sha256", manifest);
        check(&bundle.write(), trust, &[]).verdict.code
    };
    assert_eq!(
        verdict(of_next.member("seal.tsr"), &pinned),
        Code::TimeStamp
    );
    assert_eq!(verdict(b"nonsense", &pinned), Code::TimeStamp);
    assert_eq!(verdict(&[], &pinned), Code::TimeStamp);
    // No byte may be another of what is stamped, or of the signature, which is the end of the reply.
    let signed = Signed::parse(Bundle::read(&bytes).member("seal.dsse.json")).unwrap();
    let imprint = onrecord_core::digest::Hash::of(&[&signed.sig]).0;
    let place = reply.windows(32).position(|at| at == imprint).unwrap();
    let time = reply.windows(2).rposition(|at| at == [0x18, 0x0f]).unwrap();
    for at in (place..place + 32)
        .chain(time..time + 17)
        .chain(reply.len() - 64..reply.len())
    {
        let mut changed = reply.clone();
        changed[at] ^= 1;
        assert_eq!(verdict(&changed, &pinned), Code::TimeStamp, "byte {at}");
    }
    // And nothing makes more of it than it is.
    for at in (0..reply.len()).step_by(7) {
        let mut changed = reply.clone();
        changed[at] ^= 0x20;
        assert_ne!(verdict(&changed, &pinned), Code::Verified, "byte {at}");
    }
    let stripped = {
        let mut bundle = Bundle::read(&bytes);
        bundle.0.retain(|(name, _)| name != "seal.tsr");
        bundle.write()
    };
    let report = check(&stripped, &pinned, &[]);
    assert_eq!(
        report.verdict.code,
        Code::MemberMissing,
        "{:#?}",
        report.findings
    );
    let report = check(&stripped, &format!("{pinned}time-anchor 86400\n"), &[]);
    assert!(
        report
            .findings
            .iter()
            .any(|found| found.code == Code::TimeAnchor)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_is_away_holds_nothing_up() {
    // Nobody listens at the address of a listener that is gone.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let config = Config {
        authority: Some(url),
        ..Config::default()
    };
    let mut server = Server::anchored(config).await;
    let run = sealed(&server).await;
    server.app.anchors.round().await;
    let state = server.api.get("/v1/ledger/anchors").await.is(200).json();
    assert!(state["authority"]["problem"].is_string(), "{state}");
    server.api.get("/health/ready").await.is(200);
    let bytes = export(&server.api, &run).await;
    assert!(!Bundle::read(&bytes).has("seal.tsr"));
    assert_eq!(
        check(&bytes, &trust(&server.api).await, &[]).verdict.code,
        Code::Verified
    );

    // Another one answers after a start: what waited is stamped.
    let authority = Arc::new(Authority::new());
    server.anchors.authority = Some(authority.serve().await);
    let server = server.restart().await;
    server.app.anchors.round().await;
    let seal = server
        .api
        .get(&format!("/v1/runs/{run}/seal"))
        .await
        .is(200)
        .json();
    assert!(seal["stamped_at"].is_string(), "{seal}");
    assert_eq!(seal["cosigned_by"], json!([]));
    // Stamped once.
    server.app.anchors.round().await;
    let again = server
        .api
        .get(&format!("/v1/runs/{run}/seal"))
        .await
        .is(200)
        .json();
    assert_eq!(again["stamped_at"], seal["stamped_at"]);
}

#[test]
fn what_is_no_certificate_pins_nothing() {
    let authority = Authority::new();
    let line = authority.line("ca.pem");
    let refused = |text: &str| onrecord_verify::Trust::parse(text).unwrap_err().to_string();
    assert!(onrecord_verify::Trust::parse(&line).is_ok());
    assert!(refused(&format!("{line}{line}")).contains("second time"));
    assert!(refused("time-authority AAAA\n").contains("certificate"));
    assert!(refused("time-authority\n").contains("expected"));
    let der = STANDARD
        .decode(line.trim().rsplit(' ').next().unwrap())
        .unwrap();
    let longer = STANDARD.encode([der, vec![0]].concat());
    assert!(refused(&format!("time-authority {longer}\n")).contains("certificate"));
}
