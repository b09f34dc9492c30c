//! The server: whether it answers and is ready, its version, the way to it, and the token.

use super::super::token::roles;
use super::Findings;
use crate::client::{Client, Probe, ServerArgs, unix_path};
use onrecord_core::timestamp::Timestamp;
use reqwest::{StatusCode, Url};
use serde_json::Value;

/// Checks the server; its clock, where it told it.
pub(super) async fn check(findings: &mut Findings, server: &ServerArgs) -> Option<Timestamp> {
    let client = match Client::new(server) {
        Ok(client) => client,
        Err(error) => {
            findings.failed("server", error.to_string(), "");
            return None;
        }
    };
    way(findings, &server.url);
    let ready = match client.probe("/health/ready").await {
        Ok(ready) => ready,
        Err(error) => {
            findings.failed(
                "server",
                error.to_string(),
                "start `onrecord serve`, or give the right address with --url or ONRECORD_URL",
            );
            return None;
        }
    };
    let date = date(ready.date.as_deref());
    if !is_ready(findings, client.base(), &ready) {
        return date;
    }
    let own = env!("CARGO_PKG_VERSION");
    match ready.body["version"].as_str() {
        Some(version) if version != own => findings.warning(
            "version",
            format!("the server is {version}, this program is {own}"),
            "use the same version on both sides",
        ),
        _ => findings.ok("version", format!("the server is {own} too")),
    }
    token(findings, &client, server.token.as_deref()).await;
    date
}

/// Whether others can listen on the way.
fn way(findings: &mut Findings, address: &str) {
    let Ok(url) = Url::parse(address) else { return };
    let host = url.host_str().unwrap_or("");
    let is_loopback = host == "localhost"
        || unix_path(address).is_some()
        || host
            .trim_matches(['[', ']'])
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if url.scheme() == "https" {
        findings.ok("tls", "the way to the server is encrypted");
    } else if is_loopback {
        findings.ok("tls", "not needed: the server is on this machine");
    } else {
        findings.warning(
            "tls",
            format!("the token and the evidence go to {host} unencrypted"),
            "put a proxy that ends TLS before the server, and use https://",
        );
    }
}

fn is_ready(findings: &mut Findings, base: &str, ready: &Probe) -> bool {
    match ready.status {
        StatusCode::OK if ready.body["status"] == "ok" => {
            findings.ok("server", format!("{base} is ready"));
            true
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            findings.failed(
                "server",
                format!("{base} is not ready: its database does not answer, or keys are missing"),
                "its log says which",
            );
            false
        }
        status => {
            findings.failed(
                "server",
                format!("{base} answers {status}, but not as an onrecord server does"),
                "give the right address with --url or ONRECORD_URL",
            );
            false
        }
    }
}

async fn token(findings: &mut Findings, client: &Client, token: Option<&str>) {
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        findings.skipped("token", "none was given, with --token or ONRECORD_TOKEN");
        return;
    };
    const OTHER: &str = "give another with --token or ONRECORD_TOKEN; an admin makes one with `onrecord token create`";
    let id = token
        .trim()
        .strip_prefix("onr_")
        .and_then(|rest| rest.split('_').next());
    let is_id = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let Some(id) = id.filter(is_id) else {
        findings.failed(
            "token",
            "it is none of onrecord's: those begin with onr_",
            OTHER,
        );
        return;
    };
    match client.probe(&format!("/v1/tokens/{id}")).await {
        Ok(Probe {
            status: StatusCode::OK,
            body,
            ..
        }) => {
            findings.ok("token", describe(&body));
        }
        Ok(Probe {
            status: StatusCode::UNAUTHORIZED,
            ..
        }) => findings.failed(
            "token",
            "the server does not know it, or it expired or was revoked",
            OTHER,
        ),
        Ok(Probe { status, .. }) => {
            findings.warning("token", format!("the server answered {status} to it"), "");
        }
        Err(error) => findings.failed("token", error.to_string(), ""),
    }
}

/// Whose token it is and what it may do.
fn describe(token: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("any").to_owned();
    let expires = match token["expires_at"].as_str() {
        Some(at) => format!(", until {at}"),
        None => String::new(),
    };
    format!(
        "{} ({}), roles {}, speaks for {}:{}{expires}",
        text(&token["name"]),
        text(&token["id"]),
        roles(token).join(", "),
        text(&token["actor"]["type"]),
        text(&token["actor"]["id"])
    )
}

/// A time of HTTP.
fn date(text: Option<&str>) -> Option<Timestamp> {
    let time = jiff::fmt::rfc2822::parse(text?).ok()?;
    Timestamp::from_micros(time.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_are_read() {
        let time = date(Some("Mon, 30 Nov 2026 03:00:00 GMT")).unwrap();
        assert_eq!(time.to_string(), "2026-11-30T03:00:00.000000Z");
        assert_eq!(date(Some("yesterday")), None);
        assert_eq!(date(None), None);
    }
}
