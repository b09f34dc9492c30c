//! A root key in the transit engine of HashiCorp Vault, or of what speaks its protocol (OpenBao): the service wraps
//! and opens, and the key never leaves it.
//!
//! `POST ADDRESS/encrypt/KEY` and `…/decrypt/KEY`, with a token in `X-Vault-Token`
//! (`docs/spec/payloads.md`, "Root keys").

use super::VaultError;
use super::root::{Answer, RootKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use reqwest::{StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use zeroize::{Zeroize as _, Zeroizing};

/// Where the engine is mounted, unless the address says.
const MOUNT: &str = "/v1/transit";
/// How long the service may take to answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of an answer at most; one has some hundred.
const ANSWER_BYTES: usize = 65_536;
/// Characters of the service's own words that are repeated.
const SAID_CHARS: usize = 200;

/// A key of a transit engine.
#[derive(Clone, Debug)]
pub struct TransitSource {
    /// Address of the engine, such as `https://vault.example:8200/v1/transit`; where it has no path, that is meant.
    pub url: String,
    /// Name of the key.
    pub key: String,
    /// File with the token. It is read for each call, so that whoever renews the token writes it there.
    pub token_file: PathBuf,
}

/// The same, ready to be asked.
pub(super) struct TransitKey {
    http: reqwest::Client,
    url: Url,
    key: String,
    token_file: PathBuf,
}

#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    plaintext: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ciphertext: Option<&'a str>,
    associated_data: String,
}

#[derive(Deserialize)]
struct Response {
    data: Data,
}

#[derive(Default, Deserialize)]
struct Data {
    #[serde(default)]
    plaintext: String,
    #[serde(default)]
    ciphertext: String,
}

/// What the service says of a failure.
#[derive(Default, Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<String>,
}

impl TransitKey {
    pub(super) fn new(source: &TransitSource) -> Result<Self, VaultError> {
        let wrong = |problem: &str| VaultError::Service {
            url: source.url.clone(),
            problem: problem.to_owned(),
        };
        let mut url = Url::parse(&source.url).map_err(|_| {
            VaultError::Service {
                // What is no address may hold anything.
                url: "the address that was given".to_owned(),
                problem: "expected https://HOST:PORT/v1/MOUNT".to_owned(),
            }
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(VaultError::Service {
                url: url.host_str().unwrap_or_default().to_owned(),
                problem: "the token goes into a file, and nothing of it into the address"
                    .to_owned(),
            });
        }
        let is_here = match url.host_str() {
            Some("localhost") => true,
            Some(host) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let address = host.parse::<std::net::IpAddr>();
                address.is_ok_and(|address| address.is_loopback())
            }
            None => false,
        };
        if !(url.scheme() == "https" || (url.scheme() == "http" && is_here)) {
            return Err(wrong(
                "only https is spoken over a network: keys and the token go that way",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("expected https://HOST:PORT/v1/MOUNT"));
        }
        if url.path().trim_matches('/').is_empty() {
            url.set_path(MOUNT);
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if source.key.is_empty() || source.key.ends_with('.') || !source.key.bytes().all(is_name) {
            return Err(wrong(
                "the name of the key has letters, digits and -_. and does not end with a full stop",
            ));
        }
        let mut http = reqwest::Client::builder();
        if is_here {
            // What is meant for this machine goes to no proxy.
            http = http.no_proxy();
        }
        let http = http
            .connect_timeout(TIMEOUT)
            .timeout(TIMEOUT)
            // The token is for the node that was named.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("onrecord/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(&error.to_string()))?;
        Ok(Self {
            http,
            url,
            key: source.key.clone(),
            token_file: source.token_file.clone(),
        })
    }

    fn failed(&self, problem: impl Into<String>) -> VaultError {
        VaultError::Service {
            url: self.url.to_string(),
            problem: problem.into(),
        }
    }

    fn token(&self) -> Result<Zeroizing<String>, VaultError> {
        let at = |source| VaultError::File {
            path: self.token_file.clone(),
            source,
        };
        let text = Zeroizing::new(std::fs::read_to_string(&self.token_file).map_err(at)?);
        let token = Zeroizing::new(text.trim().to_owned());
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(self.failed(format!("{} holds no token", self.token_file.display())));
        }
        Ok(token)
    }

    async fn ask(&self, verb: &str, request: &Request<'_>) -> Result<Data, VaultError> {
        let url = format!(
            "{}/{verb}/{}",
            self.url.as_str().trim_end_matches('/'),
            self.key
        );
        let token = self.token()?;
        let mut token = reqwest::header::HeaderValue::from_str(&token)
            .map_err(|_| self.failed("the token cannot stand in a header"))?;
        token.set_sensitive(true);
        // Wiped when it was sent; what TLS and the system copied of it is not in our hands.
        let body = Zeroizing::new(serde_json::to_vec(request).map_err(|_| VaultError::Cipher)?);
        let sent = self
            .http
            .post(url)
            .header("X-Vault-Token", token)
            .header("X-Vault-Request", "true")
            .header("Content-Type", "application/json")
            .body(bytes::Bytes::from_owner(body))
            .send()
            .await;
        // The error names the address once more.
        let mut answer = sent.map_err(|error| self.failed(causes(&error.without_url())))?;
        let status = answer.status();
        let mut body = Zeroizing::new(Vec::new());
        while let Some(piece) = answer
            .chunk()
            .await
            .map_err(|error| self.failed(causes(&error.without_url())))?
        {
            if body.len() + piece.len() > ANSWER_BYTES {
                return Err(self.failed("its answer is too long to be one"));
            }
            body.extend_from_slice(&piece);
        }
        if status == StatusCode::OK {
            let response: Response = serde_json::from_slice(&body)
                .map_err(|_| self.failed("its answer is not that of a transit engine"))?;
            return Ok(response.data);
        }
        let errors: Errors = serde_json::from_slice(&body).unwrap_or_default();
        Err(self.refused(status, &errors.errors.join("; ")))
    }

    /// What a refusal means, and what to do about it.
    fn refused(&self, status: StatusCode, said: &str) -> VaultError {
        // A ciphertext that does not open is refused as a mistake of the caller, by some versions as one of the server.
        let does_not_open = [
            "message authentication failed",
            "unable to decrypt",
            "invalid ciphertext",
            "ciphertext or signature version",
        ];
        if matches!(status.as_u16(), 400 | 500)
            && does_not_open.iter().any(|word| said.contains(word))
        {
            return VaultError::Cipher;
        }
        let (key, file) = (&self.key, self.token_file.display());
        let said: String = said
            .chars()
            .filter(|character| !character.is_control())
            .take(SAID_CHARS)
            .collect();
        let problem = match status.as_u16() {
            400 if said.contains("not found") => format!(
                "it has no key {key:?}: make it (`vault write -f transit/keys/{key}`), or correct --root-key-transit-key"
            ),
            403 => format!(
                "403, permission denied: the token in {file} is expired or revoked, or its policy lacks `update` on \
                 encrypt/{key} and decrypt/{key}"
            ),
            404 => "404, no such path: is the transit engine mounted there (`vault secrets enable transit`)? \
                    --root-key-transit takes the address with the mount, such as https://HOST:8200/v1/transit"
                .to_owned(),
            503 => "503: it is sealed, or down for maintenance; unseal it, then start again".to_owned(),
            429 | 472 | 473 | 300..=399 => format!(
                "{status}: this node does not serve it; name the active one, or the load balancer before them"
            ),
            _ => format!("{status}: {said}"),
        };
        self.failed(problem)
    }
}

impl RootKey for TransitKey {
    fn provider(&self) -> String {
        format!("transit:{}", self.key)
    }

    fn wrap<'a>(&'a self, label: &'a str, secret: &'a [u8]) -> Answer<'a, Vec<u8>> {
        Box::pin(async move {
            // Servers that do not know associated data ignore it: the digest holds the label for them too.
            let bound = Zeroizing::new([&Hash::of(&[label.as_bytes()]).0[..], secret].concat());
            let plaintext = Zeroizing::new(STANDARD.encode(&bound[..]));
            let request = Request {
                plaintext: Some(&plaintext),
                ciphertext: None,
                associated_data: STANDARD.encode(label),
            };
            let answer = self.ask("encrypt", &request).await?;
            if !answer.ciphertext.starts_with("vault:v") {
                return Err(self.failed("its answer has no ciphertext"));
            }
            Ok(answer.ciphertext.into_bytes())
        })
    }

    fn unwrap<'a>(&'a self, label: &'a str, wrapped: &'a [u8]) -> Answer<'a, Zeroizing<Vec<u8>>> {
        Box::pin(async move {
            let text = std::str::from_utf8(wrapped).map_err(|_| VaultError::Cipher)?;
            if !text.starts_with("vault:v") {
                // Made by a root key of another kind: nothing to be asked about.
                return Err(VaultError::Cipher);
            }
            let request = Request {
                plaintext: None,
                ciphertext: Some(text),
                associated_data: STANDARD.encode(label),
            };
            let mut answer = self.ask("decrypt", &request).await?;
            let bound = STANDARD.decode(&answer.plaintext);
            answer.plaintext.zeroize();
            let bound = Zeroizing::new(bound.map_err(|_| VaultError::Cipher)?);
            let secret = bound.strip_prefix(&Hash::of(&[label.as_bytes()]).0[..]);
            Ok(Zeroizing::new(secret.ok_or(VaultError::Cipher)?.to_vec()))
        })
    }
}

/// An error and what caused it, on one line.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
