//! An agent that signs its frames, as somebody would write one who has the specification and none of our code: it makes
//! the bytes, the commitments and the signatures by itself.

use crate::api::{Answer, Api};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::{Signer as _, SigningKey};
use hkdf::Hkdf;
use onrecord_core::digest::Hash;
use onrecord_core::json::to_canonical;
use onrecord_core::receipt::Receipt;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub struct Agent {
    pub actor: String,
    pub key: SigningKey,
    pub keyid: String,
    pub pem: String,
}

/// A run as the agent knows it.
#[derive(Clone)]
pub struct Run {
    pub tenant: String,
    pub opened: Receipt,
}

impl Run {
    pub async fn open(api: &Api) -> Self {
        let opened = api.any_run().await;
        let path = format!("/v1/runs/{}/frames/0", opened.run);
        let first = api.get(&path).await.is(200).json();
        let tenant = first["tenant"].as_str().unwrap().to_owned();
        Self { tenant, opened }
    }

    pub fn id(&self) -> String {
        self.opened.run.to_string()
    }
}

impl Agent {
    pub fn new(actor: &str, seed: u8) -> Self {
        let key = SigningKey::from_bytes(&[seed; 32]);
        let public = key.verifying_key();
        let der = public.to_public_key_der().unwrap();
        Self {
            actor: actor.to_owned(),
            keyid: Hash::of(&[der.as_bytes()]).hex(),
            pem: public.to_public_key_pem(LineEnding::LF).unwrap(),
            key,
        }
    }

    pub fn sign(&self, message: &[u8]) -> String {
        STANDARD.encode(self.key.sign(message).to_bytes())
    }

    pub async fn registration(&self, api: &Api) -> Value {
        let keys = api.get("/v1/keys").await.is(200).json();
        let tenant = keys["tenant"].as_str().unwrap();
        let message = format!("onrecord/agent-key/1\n{tenant}\n{}\n", self.actor);
        json!({"actor": self.actor, "spki": self.pem, "proof": self.sign(message.as_bytes())})
    }

    pub async fn register(&self, api: &Api) {
        let request = self.registration(api).await;
        let answer = api.post("/v1/agent-keys", &request).await.is(201).json();
        assert_eq!(answer["keyid"], self.keyid);
    }

    /// The request of a frame, signed as the `n`th. What is asked for stands as it will in the frame.
    pub fn frame(&self, run: &Run, n: u64, request: &Value) -> Value {
        let mut request = request.clone();
        request["actor"] = json!({"id": self.actor, "keyid": self.keyid, "type": "agent"});
        if request.get("key").is_none() {
            request["key"] = format!("n/{n}").into();
        }
        if request.get("turn").is_none() && request["kind"] != "session_end" {
            request["turn"] = Value::Null;
        }
        let sig = self.sign(&self.message(run, n, &request));
        request["submitted"] = json!({"keyid": self.keyid, "n": n, "sig": sig});
        request
    }

    /// What is signed of a frame.
    fn message(&self, run: &Run, n: u64, request: &Value) -> Vec<u8> {
        let mut frame = json!({
            "onrecord": "frame/1", "tenant": run.tenant, "run": run.id(),
            "submitted": {"keyid": self.keyid, "n": n},
        });
        let at = ["kind", "key", "actor", "links", "occurred_at", "trace"];
        for name in at {
            if let Some(value) = request.get(name) {
                frame[name] = value.clone();
            }
        }
        frame["body"] = request.get("body").cloned().unwrap_or_else(|| json!({}));
        if let Some(turn) = request.get("turn").filter(|turn| !turn.is_null()) {
            frame["turn"] = turn.clone();
        }
        if let Some(payloads) = request["payloads"].as_array() {
            frame["payloads"] = payloads.iter().map(reference).collect();
        }
        let mut message = b"onrecord/submitted/1\n".to_vec();
        if n == 1 {
            message.extend_from_slice(format!("{}\n", run.opened.hash).as_bytes());
        }
        message.extend_from_slice(&to_canonical(&frame).unwrap());
        message
    }

    pub async fn post(&self, api: &Api, run: &Run, n: u64, request: &Value) -> Answer {
        api.frame(run.id(), &self.frame(run, n, request)).await
    }
}

/// A payload as the frame has it.
fn reference(payload: &Value) -> Value {
    let mut reference = json!({
        "commit": payload["commit"], "name": payload["name"], "media": payload["media"],
        "tier": payload.get("tier").cloned().unwrap_or_else(|| json!(2)),
    });
    match payload.get("kept") {
        Some(kept) => {
            reference["kept"] = kept.clone();
            reference["size"] = payload["size"].clone();
        }
        None => reference["size"] = size(&content(payload)).into(),
    }
    reference
}

/// The bytes that a payload is stored as.
fn content(payload: &Value) -> Vec<u8> {
    match (&payload["text"], &payload["base64"]) {
        (Value::String(text), _) => text.clone().into_bytes(),
        (_, Value::String(text)) => STANDARD.decode(text).unwrap(),
        _ => to_canonical(&payload["json"]).unwrap(),
    }
}

/// The length after padding.
pub fn size(content: &[u8]) -> u64 {
    let sum = content.len() as u64 + 1;
    let step = if sum <= 65_536 { 256 } else { 4_096 };
    sum.div_ceil(step) * step
}

pub fn salt(dek: [u8; 32]) -> [u8; 32] {
    let mut salt = [0; 32];
    Hkdf::<Sha256>::new(None, &dek)
        .expand(b"onrecord/salt/1\n", &mut salt)
        .unwrap();
    salt
}

pub fn commit(dek: [u8; 32], content: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(b"onrecord/payload/1\n");
    hash.update(salt(dek));
    hash.update(content);
    onrecord_core::digest::hex(&hash.finalize())
}

/// A payload of text with its commitment and key.
pub fn text(name: &str, text: &str, dek: [u8; 32]) -> Value {
    sent(
        json!({"name": name, "media": "text/plain; charset=utf-8", "text": text}),
        dek,
    )
}

/// A payload with its commitment and key.
pub fn sent(mut payload: Value, dek: [u8; 32]) -> Value {
    payload["commit"] = commit(dek, &content(&payload)).into();
    payload["dek"] = STANDARD.encode(dek).into();
    payload
}

/// A payload of text that is kept.
pub fn kept(name: &str, text: &str, dek: [u8; 32]) -> Value {
    let (commit, size) = (commit(dek, text.as_bytes()), size(text.as_bytes()));
    json!({"name": name, "media": "text/plain", "kept": false, "commit": commit, "size": size})
}
