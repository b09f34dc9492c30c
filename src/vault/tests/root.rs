//! Root keys of every provider, from each to each other. The transit engine is a stub of its documented protocol.

use super::super::{VaultError, cipher, files};
use super::{RootSource, TransitSource, Vault, new_run_id, wait};
use axum::Router;
use axum::extract::{Path as Route, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::id::{Origin, TenantId};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// What a stub does, and what it saw.
struct Engine {
    /// The one key that it has.
    key: &'static str,
    token: &'static str,
    sealed: bool,
    /// Whether it is of before there was associated data, and ignores it.
    old: bool,
    /// Calls that it answers before it is sealed by itself.
    calls: u32,
    seen: Vec<String>,
}

type Shared = Arc<Mutex<Engine>>;

fn refused(status: u16, said: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    let errors: Vec<&str> = [said].into_iter().filter(|said| !said.is_empty()).collect();
    (status, axum::Json(json!({ "errors": errors }))).into_response()
}

async fn answer(
    State(engine): State<Shared>,
    Route((verb, key)): Route<(String, String)>,
    headers: HeaderMap,
    axum::Json(request): axum::Json<Value>,
) -> Response {
    let mut engine = engine.lock().unwrap();
    engine.seen.push(format!("{verb} {request}"));
    if engine.sealed || engine.calls == 0 {
        return refused(503, "Vault is sealed");
    }
    engine.calls -= 1;
    if headers.get("x-vault-token").map(|token| token.as_bytes()) != Some(engine.token.as_bytes())
        || headers.get("x-vault-request").is_none()
    {
        return refused(403, "permission denied");
    }
    if key != engine.key {
        return refused(400, "encryption key not found");
    }
    let secret = Zeroizing::new([7; 32]);
    let bytes = |name: &str| STANDARD.decode(request[name].as_str().unwrap_or_default());
    let label = match engine.old {
        true => String::new(),
        false => format!("{:?}", bytes("associated_data").unwrap()),
    };
    let data = match verb.as_str() {
        "encrypt" => {
            let wrapped = cipher::wrap(&secret, &label, &bytes("plaintext").unwrap()).unwrap();
            json!({"ciphertext": format!("vault:v1:{}", STANDARD.encode(wrapped)), "key_version": 1})
        }
        "decrypt" => {
            let text = request["ciphertext"].as_str().unwrap();
            let Some(text) = text.strip_prefix("vault:v1:") else {
                return refused(400, "invalid ciphertext: no prefix");
            };
            match cipher::unwrap(&secret, &label, &STANDARD.decode(text).unwrap()) {
                Ok(plain) => json!({"plaintext": STANDARD.encode(&plain[..])}),
                Err(_) => return refused(400, "cipher: message authentication failed"),
            }
        }
        _ => return refused(404, "unsupported path"),
    };
    axum::Json(json!({"request_id": "x", "lease_duration": 0, "data": data})).into_response()
}

/// A transit engine that serves as long as the process does.
fn engine() -> (Shared, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let engine = Arc::new(Mutex::new(Engine {
        key: "onrecord",
        token: "s.token",
        sealed: false,
        old: false,
        calls: u32::MAX,
        seen: Vec::new(),
    }));
    let routes = Router::new()
        .route("/v1/transit/{verb}/{key}", post(answer))
        .fallback(|| async { refused(404, "no handler for route") })
        .with_state(engine.clone());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        wait(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, routes).await.unwrap();
        });
    });
    (engine, address)
}

fn transit(folder: &Path, url: &str) -> RootSource {
    let token_file = folder.join("transit.token");
    std::fs::write(&token_file, "s.token\n").unwrap();
    RootSource::Transit(TransitSource {
        url: url.to_owned(),
        key: "onrecord".to_owned(),
        token_file,
    })
}

fn given(digit: &str) -> RootSource {
    RootSource::Given(digit.repeat(64).into())
}

fn tenant() -> (TenantId, Origin) {
    (
        "t_7f3k9q2m4x8w".parse().unwrap(),
        "localhost/t/x".parse().unwrap(),
    )
}

fn opened(keys: &Path, source: &RootSource, create: bool) -> Result<Vault, VaultError> {
    wait(Vault::open(keys, source, create))
}

fn said(result: Result<Vault, VaultError>) -> String {
    result
        .map(|_| ())
        .expect_err("it does not open")
        .to_string()
}

/// A folder with two tenants under a root key, and the public key of the first.
fn filled(keys: &Path, source: &RootSource) -> String {
    let vault = opened(keys, source, true).unwrap();
    let (first, origin) = tenant();
    let second = "t_000000000000".parse().unwrap();
    wait(vault.create_tenant(&second, &origin)).unwrap();
    wait(vault.new_seal_key(&second)).unwrap();
    wait(vault.create_tenant(&first, &origin)).unwrap();
    wait(vault.new_seal_key(&first)).unwrap().spki
}

fn public(keys: &Path, source: &RootSource) -> String {
    let vault = opened(keys, source, false).unwrap();
    let (tenant, origin) = tenant();
    let keys = wait(vault.tenant(&tenant, &origin)).unwrap();
    keys.new_run(&new_run_id(1).unwrap()).unwrap();
    let seals = wait(vault.read_seal_keys(&tenant)).unwrap();
    seals[0].1.public().spki.clone()
}

fn moved(keys: &Path, old: &RootSource, new: &RootSource) -> Result<usize, VaultError> {
    wait(Vault::rewrap_root(keys, old, new, |_, _| ()))
}

#[test]
fn keys_go_from_every_provider_to_every_other_and_stay_the_same() {
    let (_engine, url) = engine();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let file = |name: &str| RootSource::File(Some(folder.path().join(name)));
    let in_folder = RootSource::File(None);
    let public_key = filled(&keys, &in_folder);
    let way = [
        in_folder,
        given("a"),
        transit(folder.path(), &url),
        file("one"),
        file("two"),
        transit(folder.path(), &url),
        given("b"),
        given("c"),
    ];
    for pair in way.windows(2) {
        let [old, new] = pair else { unreachable!() };
        // Two tenants of four keys each.
        let mut told = Vec::new();
        let done = wait(Vault::rewrap_root(&keys, old, new, |done, of| {
            told.push((done, of))
        }));
        assert_eq!(done.unwrap(), 8, "{old:?} to {new:?}");
        assert_eq!(told.last(), Some(&(8, 8)));
        assert_eq!(public(&keys, new), public_key, "{new:?}");
        let error = said(opened(&keys, old, true));
        assert!(
            error.contains("rewrap-root") && error.contains("No key was touched"),
            "{error}"
        );
        // Once more, there is nothing to be done.
        assert_eq!(moved(&keys, old, new).unwrap(), 0);
    }
    // Nothing of a key is in what is printed.
    let text = format!("{way:?}");
    assert!(
        !text.contains(&"a".repeat(64)) && text.contains("[secret]"),
        "{text}"
    );
}

#[test]
fn a_move_that_was_cut_off_goes_on_and_no_server_starts_in_between() {
    let (engine, url) = engine();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let (old, new) = (given("a"), transit(folder.path(), &url));
    let public_key = filled(&keys, &old);
    let mut left = 8;
    // Each key costs two calls of the service, or one where it is done; it fails after ever more of them.
    for calls in [0, 1, 2, 5, 9] {
        engine.lock().unwrap().calls = calls;
        let error = moved(&keys, &old, &new)
            .expect_err("the service fails")
            .to_string();
        assert!(error.contains("sealed"), "{error}");
        if calls == 0 {
            // Nothing was begun yet.
            assert_eq!(public(&keys, &old), public_key);
            continue;
        }
        for source in [&old, &new] {
            engine.lock().unwrap().calls = u32::MAX;
            let error = said(opened(&keys, source, true));
            assert!(error.contains("rewrap-root"), "{error}");
        }
    }
    // Another one cannot be moved to in the middle.
    let error = moved(&keys, &old, &given("b"))
        .expect_err("another")
        .to_string();
    assert!(
        error.contains("on their way to transit:onrecord"),
        "{error}"
    );
    engine.lock().unwrap().calls = u32::MAX;
    left -= moved(&keys, &old, &new).unwrap();
    assert!((1..8).contains(&left), "some were moved before: {left}");
    assert_eq!(public(&keys, &new), public_key);

    // A crash before the check value is that of the new one: all is moved, and it is told from the files.
    let back = given("c");
    assert_eq!(moved(&keys, &new, &back).unwrap(), 8);
    let check = keys.join("root.check");
    let next = keys.join("root.check.next");
    let newest = std::fs::read(&check).unwrap();
    std::fs::rename(&check, &next).unwrap();
    std::fs::write(&check, newest).unwrap();
    assert_eq!(moved(&keys, &new, &back).unwrap(), 0);
    assert!(!next.exists());
    assert_eq!(public(&keys, &back), public_key);
}

#[test]
fn a_server_that_was_left_running_makes_no_key_by_the_old_root_key() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    filled(&keys, &given("a"));
    let running = opened(&keys, &given("a"), false).unwrap();
    moved(&keys, &given("a"), &given("b")).unwrap();
    let made = wait(running.make_epoch(&tenant().0, 2));
    assert!(matches!(made, Err(VaultError::RootMoved)), "{made:?}");
    assert!(files::epochs(&keys.join(tenant().0.as_str())).unwrap() == [1]);
}

#[test]
fn what_a_service_refuses_is_told_with_what_to_do() {
    let (engine, url) = engine();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let source = transit(folder.path(), &url);
    let public_key = filled(&keys, &source);
    let token = |text: &str| std::fs::write(folder.path().join("transit.token"), text).unwrap();
    let other = |change: &dyn Fn(&mut TransitSource)| {
        let RootSource::Transit(mut source) = source.clone() else {
            unreachable!()
        };
        change(&mut source);
        said(opened(&keys, &RootSource::Transit(source), true))
    };
    token("s.revoked");
    let error = said(opened(&keys, &source, true));
    assert!(
        error.contains("403") && error.contains("transit.token"),
        "{error}"
    );
    assert!(!error.contains("s.revoked"), "{error}");
    token("");
    assert!(said(opened(&keys, &source, true)).contains("holds no token"));
    // A renewed token counts at once.
    token("  s.token\n");
    assert_eq!(public(&keys, &source), public_key);
    let error = other(&|source| source.key = "another".to_owned());
    assert!(
        error.contains("no key \"another\"") && error.contains("vault write"),
        "{error}"
    );
    let error = other(&|source| source.url.push_str("/v1/elsewhere"));
    assert!(
        error.contains("404") && error.contains("mounted"),
        "{error}"
    );
    let error = other(&|source| source.token_file = PathBuf::from("/nonexistent/token"));
    assert!(error.contains("/nonexistent/token"), "{error}");
    for (url, word) in [
        ("http://vault.example:8200", "https"),
        ("https://s.token@vault.example", "into a file"),
        ("vault.example", "expected https"),
    ] {
        let error = other(&|source| source.url = url.to_owned());
        assert!(
            error.contains(word) && !error.contains("s.token"),
            "{error}"
        );
    }
    let error = other(&|source| source.key = "../sys/seal".to_owned());
    assert!(error.contains("name of the key"), "{error}");
    engine.lock().unwrap().sealed = true;
    let error = said(opened(&keys, &source, true));
    assert!(error.contains("503") && error.contains("unseal"), "{error}");
    // Nobody there.
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = other(&|source| source.url = format!("http://{free}"));
    assert!(error.contains(&free.port().to_string()), "{error}");
}

#[test]
fn a_key_opens_in_its_place_alone_whether_or_not_the_service_knows_associated_data() {
    for old in [false, true] {
        let (engine, url) = engine();
        engine.lock().unwrap().old = old;
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        let source = transit(folder.path(), &url);
        let public_key = filled(&keys, &source);
        assert_eq!(public(&keys, &source), public_key);
        let (first, origin) = tenant();
        let name = |tenant: &str| keys.join(tenant).join("ledger.key");
        std::fs::copy(name("t_000000000000"), name(first.as_str())).unwrap();
        let vault = opened(&keys, &source, false).unwrap();
        let refused = wait(vault.tenant(&first, &origin)).map(|_| ());
        assert!(
            matches!(refused, Err(VaultError::Wrong { .. })),
            "{refused:?}"
        );
        let engine = engine.lock().unwrap();
        let label = STANDARD.encode("onrecord/root-check/1");
        assert!(
            engine
                .seen
                .iter()
                .all(|one| one.contains("associated_data"))
        );
        assert!(engine.seen[0].starts_with("encrypt") && engine.seen[0].contains(&label));
    }
}

#[test]
fn what_is_no_root_key_or_no_check_value_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let short = RootSource::Given("abc".to_owned().into());
    assert!(matches!(
        opened(&keys, &short, true),
        Err(VaultError::Given)
    ));
    filled(&keys, &given("a"));
    // The file of the folder is not made beside keys of another provider, which is named.
    let error = said(opened(&keys, &RootSource::File(None), true));
    assert!(error.contains("provider: environment"), "{error}");
    assert!(!keys.join("root.key").exists());
    for text in [
        "",
        "onrecord/root-check/1 file",
        "onrecord/root-check/2 file 00\n",
        "onrecord/root-check/1 file zz\n",
    ] {
        std::fs::write(keys.join("root.check"), text).unwrap();
        let error = said(opened(&keys, &given("a"), true));
        assert!(error.contains("no check value"), "{text:?}: {error}");
    }
    std::fs::remove_file(keys.join("root.check")).unwrap();
    let survey = wait(Vault::survey(&keys, &given("a"))).unwrap();
    assert!(!survey.checked && survey.tenants.len() == 2);
    public(&keys, &given("a"));
    assert!(wait(Vault::survey(&keys, &given("a"))).unwrap().checked);
    assert!(wait(Vault::survey(&keys, &given("b"))).is_err());
}
