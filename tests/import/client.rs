//! The client: what its errors tell people, and downloads that are whole or not there.

use onrecord::client::{Client, ClientError, ServerArgs};
use serde_json::Value;

use crate::fake;

#[tokio::test]
async fn errors_say_what_to_do() {
    let (_fake, client) = fake::start().await;
    let problem = client.read::<Value>("/problem").await.unwrap_err();
    assert_eq!(problem.code(), Some("no_token"));
    let text = problem.to_string();
    assert!(
        text.contains("Send a token.") && text.contains("ONRECORD_TOKEN"),
        "{text}"
    );
    let without = Client::new(&ServerArgs {
        url: client.base().to_owned(),
        token: None,
    });
    let text = without
        .unwrap()
        .read::<Value>("/problem")
        .await
        .unwrap_err();
    assert!(text.to_string().contains("none was given"), "{text}");
    let foreign = client
        .read::<Value>("/foreign")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        foreign.contains("502") && foreign.contains("proxy"),
        "{foreign}"
    );
    // A port that was free a moment ago, and where nobody listens.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let silent = fake::client(&url)
        .read::<Value>("/v1/runs")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        silent.contains("is `onrecord serve` running there?") && silent.contains(&url),
        "{silent}"
    );
}

#[test]
fn addresses_and_tokens_are_checked_first() {
    let of = |url: &str, token: &str| {
        Client::new(&ServerArgs {
            url: url.to_owned(),
            token: Some(token.to_owned()),
        })
    };
    for url in ["localhost:8470", "ftp://host", "http://host/?q", ""] {
        assert!(
            matches!(of(url, "t"), Err(ClientError::Address { .. })),
            "{url}"
        );
    }
    assert!(matches!(
        of("http://host", "two\nlines"),
        Err(ClientError::Token)
    ));
}

#[tokio::test]
async fn a_download_is_whole_or_not_there() {
    let (_fake, client) = fake::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes");
    assert_eq!(client.download("/bytes", &path).await.unwrap(), 10);
    assert_eq!(std::fs::read(&path).unwrap(), b"some bytes");
    let directory = client.download("/bytes", folder.path()).await;
    assert!(matches!(directory, Err(ClientError::File { .. })));
    let other = folder.path().join("other");
    assert!(client.download("/foreign", &other).await.is_err());
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 1, "neither the file nor a temporary one is left");
}

#[tokio::test]
async fn a_batch_that_the_server_ended_early_is_an_error_with_its_cause() {
    let (_fake, client) = fake::start().await;
    let lines = bytes::Bytes::from_static(b"{}\n{}\n");
    let error = client.post_lines("/stopped", lines).await.unwrap_err();
    assert_eq!(error.code(), Some("body_timeout"), "{error}");
}
