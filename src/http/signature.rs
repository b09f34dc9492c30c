//! Requests that an agent signs with its registered key instead of sending a token: HTTP message signatures (RFC 9421)
//! over the method, the path, the query and the digest of the content (RFC 9530), of one strict form.
//!
//! Here is the wire: what is signed, as bytes. Whose key it is, and whether it counts, is `access`'s to say; that the body
//! is the one of the digest, [`super::body`]'s.

use crate::access::{AccessError, SignedRequest};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;

const INPUT: &str = "signature-input";
const SIGNATURE: &str = "signature";
pub(super) const CONTENT_DIGEST: &str = "content-digest";
/// Bytes of the two headers of a signature.
const HEADER_BYTES: usize = 2_048;
/// Headers that say what is to be done, and so have to be signed where they are there.
const MEANT: [&str; 2] = ["idempotency-key", "if-match"];

/// Whether a request brings a signature.
pub(super) fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(INPUT) || headers.contains_key(SIGNATURE)
}

/// Reads the signature of a request, and the bytes that it is over (RFC 9421, 2.5).
///
/// # Errors
/// [`AccessError::Signature`]: it has not the form, or leaves something out.
pub(super) fn read(parts: &Parts) -> Result<SignedRequest, AccessError> {
    let input = single(&parts.headers, INPUT)?;
    let signature = single(&parts.headers, SIGNATURE)?;
    if input.len() > HEADER_BYTES || signature.len() > HEADER_BYTES {
        return Err(refused("the headers of the signature are too long"));
    }
    let form = "Signature-Input: LABEL=(\"@method\" \"@path\" \"content-digest\");created=SECONDS;keyid=\"TENANT/KEYID\"";
    let input = Input::parse(input).ok_or_else(|| refused(form))?;
    let sig = signature
        .strip_prefix(input.label)
        .and_then(|rest| rest.strip_prefix("=:")?.strip_suffix(':'))
        .and_then(|text| STANDARD.decode(text).ok()?.try_into().ok())
        .ok_or_else(|| {
            refused("Signature: LABEL=:BASE64: of 64 bytes, with the label of Signature-Input")
        })?;
    let (tenant, keyid) = input.signer().ok_or_else(|| refused(form))?;
    check_components(parts, &input.components)?;
    let mut message = String::new();
    for name in &input.components {
        message.push_str(&format!("\"{name}\": {}\n", component(parts, name)?));
    }
    message.push_str(&format!("\"@signature-params\": {}", input.params));
    if matches!(parts.method, Method::GET | Method::DELETE | Method::HEAD)
        && digest(&parts.headers)? != Some(Hash::of(&[]))
    {
        return Err(refused(
            "Content-Digest: that of no content, for a request that has none",
        ));
    }
    Ok(SignedRequest {
        tenant,
        keyid,
        created: input.created,
        message: message.into_bytes(),
        sig,
    })
}

/// The digest that a request says its content has (RFC 9530); `None` where it says none.
///
/// # Errors
/// [`AccessError::Signature`]: it is not one SHA-256.
pub(super) fn digest(headers: &HeaderMap) -> Result<Option<Hash>, AccessError> {
    if !headers.contains_key(CONTENT_DIGEST) {
        return Ok(None);
    }
    let value = single(headers, CONTENT_DIGEST)?;
    let bytes = value
        .strip_prefix("sha-256=:")
        .and_then(|rest| STANDARD.decode(rest.strip_suffix(':')?).ok());
    bytes
        .and_then(|bytes| Hash::from_slice(&bytes).ok())
        .map(Some)
        .ok_or_else(|| refused("Content-Digest: sha-256=:BASE64: and no other"))
}

/// A `Signature-Input`, taken apart.
struct Input<'a> {
    label: &'a str,
    components: Vec<&'a str>,
    created: i64,
    keyid: &'a str,
    /// Its value as it is signed: since only the one spelling is taken, it is as it came.
    params: &'a str,
}

impl<'a> Input<'a> {
    fn parse(value: &'a str) -> Option<Self> {
        let (label, params) = value.split_once('=')?;
        let is_label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if label.is_empty() || !label.bytes().all(is_label) {
            return None;
        }
        let (list, rest) = params.strip_prefix('(')?.split_once(')')?;
        let components: Vec<&str> = list.split(' ').map(quoted).collect::<Option<_>>()?;
        let (mut created, mut keyid) = (None, None);
        for param in rest.strip_prefix(';')?.split(';') {
            let (name, value) = param.split_once('=')?;
            let fresh = match name {
                "created" => created.replace(seconds(value)?).is_none(),
                "keyid" => keyid.replace(quoted(value)?).is_none(),
                "alg" => quoted(value)? == "ed25519",
                // Makes two signatures of one request in one second.
                "nonce" => quoted(value).is_some(),
                _ => false,
            };
            if !fresh {
                return None;
            }
        }
        Some(Self {
            label,
            components,
            created: created?,
            keyid: keyid?,
            params,
        })
    }

    fn signer(&self) -> Option<(TenantId, Hash)> {
        let (tenant, keyid) = self.keyid.split_once('/')?;
        Some((tenant.parse().ok()?, keyid.parse().ok()?))
    }
}

/// A string without anything that would have to be escaped.
fn quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let plain =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b';' | b'(' | b')');
    (!inner.is_empty() && inner.bytes().all(plain)).then_some(inner)
}

/// Seconds since 1970 in digits.
fn seconds(text: &str) -> Option<i64> {
    let digits = text.len() <= 11 && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = !text.starts_with('0');
    (digits && canonical).then(|| text.parse().ok())?
}

/// Whether all that decides what is done is signed, and each component once.
fn check_components(parts: &Parts, components: &[&str]) -> Result<(), AccessError> {
    let has = |name: &str| components.contains(&name);
    for (index, name) in components.iter().enumerate() {
        if components[..index].contains(name) {
            return Err(refused("a component stands twice in Signature-Input"));
        }
    }
    let mut needed = vec!["@method", "@path", CONTENT_DIGEST];
    needed.extend(parts.uri.query().map(|_| "@query"));
    needed.extend(
        MEANT
            .into_iter()
            .filter(|name| parts.headers.contains_key(*name)),
    );
    match needed.into_iter().find(|name| !has(name)) {
        Some(name) => Err(refused(&format!("{name:?} has to be signed"))),
        None => Ok(()),
    }
}

/// The value of a component (RFC 9421, 2.1 and 2.2).
fn component(parts: &Parts, name: &str) -> Result<String, AccessError> {
    match name {
        "@method" => Ok(parts.method.as_str().to_owned()),
        "@path" => Ok(parts.uri.path().to_owned()),
        "@query" => Ok(format!("?{}", parts.uri.query().unwrap_or_default())),
        _ if name.starts_with('@') => Err(refused(&format!("{name:?} is not taken"))),
        _ => single(&parts.headers, name).map(str::to_owned),
    }
}

/// The value of a header that stands once.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, AccessError> {
    let missing = || refused(&format!("{name}: one header, of visible ASCII"));
    let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| missing())?;
    let mut values = headers.get_all(key).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map(str::trim).map_err(|_| missing()),
        _ => Err(missing()),
    }
}

fn refused(why: &str) -> AccessError {
    AccessError::Signature(why.to_owned())
}
