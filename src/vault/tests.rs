//! The vault against the golden payloads, and its keys against each other.

mod root;

use super::cipher::Place;
use super::*;
use serde::Deserialize;

fn unhex(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; text.len() / 2];
    assert!(onrecord_core::digest::unhex(text, &mut bytes), "{text}");
    bytes
}

#[derive(Deserialize)]
struct Vectors {
    payloads: Vec<Vector>,
    invalid: Vec<Vector>,
    fingerprints: Vec<Fingerprint>,
}

#[derive(Deserialize)]
struct Fingerprint {
    key: String,
    run: RunId,
    secret: String,
    fingerprint: Hash,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    tenant: TenantId,
    run: RunId,
    media: String,
    dek: String,
    commit: Hash,
    ciphertext: Option<String>,
    ciphertext_sha256: Option<Hash>,
    payload: Option<String>,
    length: Option<usize>,
}

impl Vector {
    fn dek(&self) -> Key {
        Zeroizing::new(unhex(&self.dek).try_into().unwrap())
    }

    fn place(&self) -> Place<'_> {
        Place {
            tenant: &self.tenant,
            run: &self.run,
            media: &self.media,
        }
    }
}

#[test]
fn secrets_have_the_golden_fingerprints() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/vectors/payload/payloads.json"
    );
    let vectors: Vectors = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(vectors.fingerprints.len() > 3);
    for one in vectors.fingerprints {
        let key = Zeroizing::new(unhex(&one.key).try_into().unwrap());
        let key = cipher::fingerprint_key(&key, &one.run).unwrap();
        let found = cipher::secret_fingerprint(&key, one.secret.as_bytes()).unwrap();
        assert_eq!(found, one.fingerprint, "{}", one.secret);
    }
}

#[test]
fn golden_payloads_are_sealed_byte_for_byte_and_altered_ones_do_not_open() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/vectors/payload/payloads.json"
    );
    let vectors: Vectors = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(vectors.payloads.len() > 3 && vectors.invalid.len() > 3);
    for vector in &vectors.payloads {
        let plaintext = match &vector.payload {
            Some(payload) => unhex(payload),
            None => (0..vector.length.unwrap())
                .map(|index| (index % 251) as u8)
                .collect(),
        };
        let (commit, ciphertext) =
            cipher::seal_payload(&vector.dek(), &vector.place(), plaintext.clone()).unwrap();
        assert_eq!(commit, vector.commit, "{}", vector.name);
        assert_eq!(
            Hash::of(&[&ciphertext]),
            vector.ciphertext_sha256.unwrap(),
            "{}",
            vector.name
        );
        assert_eq!(
            cipher::open_payload(&vector.dek(), &vector.place(), &commit, &ciphertext).unwrap(),
            plaintext
        );
    }
    for vector in &vectors.invalid {
        let ciphertext = unhex(vector.ciphertext.as_ref().unwrap());
        assert!(
            cipher::open_payload(&vector.dek(), &vector.place(), &vector.commit, &ciphertext)
                .is_err(),
            "{}",
            vector.name
        );
    }
}

/// What comes of it, on this thread.
fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(work)
}

/// A vault whose root key is in its folder.
fn open(folder: &Path, create: bool) -> Result<Vault, VaultError> {
    wait(Vault::open(folder, &RootSource::File(None), create))
}

fn vault(folder: &Path) -> (Vault, TenantId, Origin) {
    (
        open(folder, true).unwrap(),
        "t_7f3k9q2m4x8w".parse().unwrap(),
        "localhost/t/x".parse().unwrap(),
    )
}

#[test]
fn keys_survive_a_restart_and_open_nothing_of_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let (first, tenant, origin) = vault(folder.path());
    let run = new_run_id(1).unwrap();
    let keys = wait(first.create_tenant(&tenant, &origin)).unwrap();
    let (run_keys, wrapped) = keys.new_run(&run).unwrap();
    let sealed = run_keys.seal(2, "text/plain", b"yes".to_vec()).unwrap();

    let (again, ..) = vault(folder.path());
    let keys = wait(again.tenant(&tenant, &origin)).unwrap();
    let opened = keys
        .open_run(&run, &wrapped)
        .unwrap()
        .open(
            2,
            0,
            "text/plain",
            &sealed.commit,
            &sealed.wrapped_dek,
            &sealed.ciphertext,
        )
        .unwrap();
    assert_eq!(opened.plaintext, b"yes");
    assert_eq!(
        onrecord_core::payload::commitment(&opened.salt.0, b"yes"),
        sealed.commit
    );

    assert!(keys.open_run(&new_run_id(2).unwrap(), &wrapped).is_err());
    assert!(
        run_keys
            .open(
                1,
                0,
                "text/plain",
                &sealed.commit,
                &sealed.wrapped_dek,
                &sealed.ciphertext
            )
            .is_err()
    );
    assert!(
        run_keys
            .open(
                2,
                0,
                "text/html",
                &sealed.commit,
                &sealed.wrapped_dek,
                &sealed.ciphertext
            )
            .is_err()
    );
    assert!(
        wait(again.create_tenant(&tenant, &origin)).is_err(),
        "a key is never overwritten"
    );
}

#[test]
fn a_retry_is_told_from_another_request_until_a_payload_is_erased() {
    let folder = tempfile::tempdir().unwrap();
    let (vault, tenant, origin) = vault(folder.path());
    let (keys, _) = wait(vault.create_tenant(&tenant, &origin))
        .unwrap()
        .new_run(&new_run_id(1).unwrap())
        .unwrap();
    let sealed = keys.seal(2, "text/plain", b"yes".to_vec()).unwrap();
    let mac = keys
        .request_mac(std::slice::from_ref(&sealed), b"request")
        .unwrap();
    let stored = [(2, 0, sealed.commit, sealed.wrapped_dek)];
    assert!(keys.same_request(&stored, b"request", &mac).unwrap());
    assert!(!keys.same_request(&stored, b"another", &mac).unwrap());
    assert!(!keys.same_request(&[], b"request", &mac).unwrap());
}

#[test]
fn a_renewed_key_wraps_what_is_new_and_what_survives() {
    let folder = tempfile::tempdir().unwrap();
    let (vault, tenant, origin) = vault(folder.path());
    let keys = wait(vault.create_tenant(&tenant, &origin)).unwrap();
    let run = new_run_id(1).unwrap();
    let (first, mut wrapped) = keys.new_run(&run).unwrap();
    assert_eq!((first.version(), first.tier_version(2)), (0, Some(0)));
    let old = first.seal(2, "text/plain", b"kept".to_vec()).unwrap();
    assert_eq!(old.key_version, 0);

    let (renewed, row) = keys.renew(&first, 2, first.version() + 1).unwrap();
    assert_eq!((row.tier, row.version, row.epoch), (2, 1, 1));
    assert_eq!(renewed.version(), 1);
    assert_eq!(
        [1, 2, 4].map(|tier| renewed.tier_version(tier)),
        [Some(0), Some(1), None]
    );
    let new = renewed.seal(2, "text/plain", b"new".to_vec()).unwrap();
    assert_eq!(new.key_version, 1);
    let (again, to) = renewed.rewrap(2, &old.commit, 0, &old.wrapped_dek).unwrap();
    assert_eq!(to, 1);

    // Of the rows the old key's is gone; what it wrapped opens by the new one, and by nothing else.
    wrapped.retain(|key| key.tier != 2);
    wrapped.push(row.clone());
    let left = keys.open_run(&run, &wrapped).unwrap();
    let open = |version, sealed: &SealedPayload, dek: &[u8]| {
        let (commit, ciphertext) = (&sealed.commit, &sealed.ciphertext);
        left.open(2, version, "text/plain", commit, dek, ciphertext)
    };
    assert_eq!(open(1, &old, &again).unwrap().plaintext, b"kept");
    assert_eq!(open(1, &new, &new.wrapped_dek).unwrap().plaintext, b"new");
    assert!(matches!(
        open(0, &old, &old.wrapped_dek),
        Err(VaultError::NoRunKey {
            tier: 2,
            version: 0
        })
    ));
    assert!(open(1, &old, &old.wrapped_dek).is_err());
    // Neither a fingerprint nor a request's MAC hangs on a tier's key.
    let (secret, request) = (b"the secret words", b"request");
    assert_eq!(
        left.secret_fingerprint(secret).unwrap(),
        first.secret_fingerprint(secret).unwrap()
    );
    let mac = first.request_mac([], request).unwrap();
    assert!(left.same_request(&[], request, &mac).unwrap());
    let mac = first.request_mac([&old], request).unwrap();
    let stored = [(2, 1, old.commit, again)];
    assert!(left.same_request(&stored, request, &mac).unwrap());
    // A version is bound to its place.
    let moved = WrappedRunKey { version: 2, ..row };
    assert!(keys.open_run(&run, &[moved]).is_err());
}

#[test]
fn an_epoch_that_another_process_destroyed_is_gone_from_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let (this, tenant, origin) = vault(folder.path());
    let run = new_run_id(1).unwrap();
    let keys = wait(this.create_tenant(&tenant, &origin)).unwrap();
    let (_, wrapped) = keys.new_run(&run).unwrap();
    assert!(!wait(this.refresh(&tenant, &origin)).unwrap());
    let (other, ..) = vault(folder.path());
    assert!(matches!(
        other.destroy_epoch(&tenant, 1),
        Err(VaultError::EpochInUse { epoch: 1 })
    ));
    assert!(wait(other.make_epoch(&tenant, 2)).unwrap());
    assert!(!wait(other.make_epoch(&tenant, 2)).unwrap());
    let newer = wait(other.tenant(&tenant, &origin)).unwrap();
    let moved = newer.rewrap(&run, &wrapped[0]).unwrap();
    assert_eq!((moved.epoch, moved.tier, moved.version), (2, 0, 0));
    assert!(other.destroy_epoch(&tenant, 1).unwrap());
    assert!(!other.destroy_epoch(&tenant, 1).unwrap());
    assert!(wait(this.refresh(&tenant, &origin)).unwrap());
    let keys = this.known(&tenant).unwrap();
    assert_eq!(keys.epoch(), 2);
    keys.open_run(&run, &[moved]).unwrap();
    assert!(matches!(
        keys.open_run(&run, &wrapped).map(|_| ()),
        Err(VaultError::Epoch { epoch: 1 })
    ));
}

#[test]
fn what_was_recorded_before_there_was_a_fingerprint_key_is_known_again() {
    let folder = tempfile::tempdir().unwrap();
    let (first, tenant, origin) = vault(folder.path());
    wait(first.create_tenant(&tenant, &origin)).unwrap();
    let file = folder.path().join(tenant.as_str()).join("fingerprint.key");
    std::fs::remove_file(&file).unwrap();
    let (again, ..) = vault(folder.path());
    let keys = wait(again.tenant(&tenant, &origin)).unwrap();
    assert!(file.exists(), "it is made where it is missed");
    let run = new_run_id(1).unwrap();
    let (run_keys, wrapped) = keys.new_run(&run).unwrap();
    let label = format!("onrecord/run-key/1\n{tenant}\n{run}\n0");
    let tier = cipher::unwrap_key(&keys.epochs[&1], &label, &wrapped[0].wrapped).unwrap();
    let key = cipher::request_key(&tier, &[]).unwrap();
    let mac = cipher::request_mac(&key, b"request").unwrap();
    assert!(run_keys.same_request(&[], b"request", &mac).unwrap());
    assert!(!run_keys.same_request(&[], b"another", &mac).unwrap());
    assert_ne!(run_keys.request_mac([], b"request").unwrap(), mac);
}

#[test]
fn a_root_key_that_others_may_read_or_that_is_another_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (first, tenant, origin) = vault(folder.path());
    wait(first.create_tenant(&tenant, &origin)).unwrap();
    let root = folder.path().join("root.key");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(
        open(folder.path(), true),
        Err(VaultError::Root { .. })
    ));
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&root, format!("{}\n", "0".repeat(64))).unwrap();
    assert!(matches!(
        open(folder.path(), true),
        Err(VaultError::OtherRoot { .. })
    ));
    // One of before there were check values is held against the keys themselves, and gets a value when it is right.
    let check = folder.path().join("root.check");
    let kept = std::fs::read(&check).unwrap();
    std::fs::remove_file(&check).unwrap();
    for create in [true, false] {
        assert!(matches!(
            open(folder.path(), create),
            Err(VaultError::OtherRoot { .. })
        ));
    }
    assert!(!check.exists());
    std::fs::write(&check, kept).unwrap();
}

#[test]
fn names_are_of_the_length_asked_and_differ() {
    let (one, other) = (new_name(16).unwrap(), new_name(16).unwrap());
    assert!(
        one.len() == 16
            && one != other
            && one
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
    );
}

#[test]
fn a_lost_root_key_is_not_replaced_under_evidence() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        open(folder.path(), false),
        Err(VaultError::RootMissing { .. })
    ));
    assert!(!folder.path().join("root.key").exists());
}

#[test]
fn many_that_start_at_once_have_one_root_key() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let open = || open(folder.path(), true).unwrap();
        let wrapped: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| wait(open().root.wrap("place", b"words")).unwrap()))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let kept = open().root;
        let opens = |one: &Vec<u8>| wait(kept.unwrap("place", one)).is_ok();
        assert!(wrapped.iter().all(opens));
        // The key and its check value.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}

#[test]
fn no_root_key_is_made_beside_keys_that_it_would_not_open() {
    let folder = tempfile::tempdir().unwrap();
    let (first, tenant, origin) = vault(folder.path());
    wait(first.create_tenant(&tenant, &origin)).unwrap();
    std::fs::remove_file(folder.path().join("root.key")).unwrap();
    let opened = open(folder.path(), true).map(|_| ());
    assert!(matches!(opened, Err(VaultError::RootMissing { .. })));
    assert!(!folder.path().join("root.key").exists());
}

#[test]
fn a_key_file_that_is_gone_is_named() {
    for name in ["epoch-1.key", "ledger.key"] {
        let folder = tempfile::tempdir().unwrap();
        let (first, tenant, origin) = vault(folder.path());
        wait(first.create_tenant(&tenant, &origin)).unwrap();
        let gone = folder.path().join(tenant.as_str()).join(name);
        std::fs::remove_file(&gone).unwrap();
        let again = open(folder.path(), false).unwrap();
        match wait(again.tenant(&tenant, &origin)).map(|_| ()) {
            Err(VaultError::File { path, source }) => {
                assert_eq!(path, gone);
                assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
            }
            other => panic!("{other:?}"),
        }
    }
}
