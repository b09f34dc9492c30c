//! The witness over HTTP: `POST /add-checkpoint`.

use super::{Answer, SUBMISSION_BYTES, Witness};
use crate::listen;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// How long a submission may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// Submissions that are looked at or written at once, and as many wait; others are sent away.
const AT_ONCE: usize = 16;

#[derive(Clone)]
struct Surroundings {
    witness: Arc<Witness>,
    /// Those that are worked on or wait.
    places: Arc<Semaphore>,
}

/// Serves until `shutdown` is there, and lets requests end.
pub async fn serve(
    listener: TcpListener,
    witness: Arc<Witness>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let places = Arc::new(Semaphore::new(2 * AT_ONCE));
    let router = Router::new()
        .route("/add-checkpoint", post(add_checkpoint))
        .with_state(Surroundings { witness, places });
    listen::run(listener, router, shutdown, || {}).await;
}

async fn add_checkpoint(State(around): State<Surroundings>, body: Body) -> Response {
    let Ok(place) = around.places.clone().try_acquire_owned() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "busy; come again");
    };
    let body = match tokio::time::timeout(PATIENCE, to_bytes(body, SUBMISSION_BYTES)).await {
        Err(_) => {
            return text(
                StatusCode::REQUEST_TIMEOUT,
                "the submission did not come in time",
            );
        }
        Ok(Err(_)) => {
            return text(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the submission was cut off, or is longer than any can be",
            );
        }
        Ok(Ok(body)) => body,
    };
    // It goes on to its end also where the client is gone: what was written is what was signed.
    let work = tokio::task::spawn_blocking(move || {
        let answer = around.witness.add_checkpoint(&body);
        drop(place);
        answer
    });
    match work.await {
        Ok(Ok(answer)) => respond(answer),
        Ok(Err(error)) => {
            tracing::error!(%error, "a submission could not be decided; nothing was signed");
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "not decided; nothing was signed",
            )
        }
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "not decided"),
    }
}

fn respond(answer: Answer) -> Response {
    match answer {
        Answer::Cosigned(line) => text(StatusCode::OK, format!("{line}\n")),
        Answer::Size(size) => {
            let kind = [(header::CONTENT_TYPE, "text/x.tlog.size")];
            (StatusCode::CONFLICT, kind, format!("{size}\n")).into_response()
        }
        Answer::UnknownLog => text(StatusCode::NOT_FOUND, "this witness does not know the log"),
        Answer::UnknownKey => text(
            StatusCode::FORBIDDEN,
            "not signed by a key of the log that this witness knows",
        ),
        Answer::Inconsistent(why) => text(StatusCode::UNPROCESSABLE_ENTITY, why),
        Answer::Malformed(why) => text(StatusCode::BAD_REQUEST, why),
    }
}

fn text(status: StatusCode, body: impl Into<String>) -> Response {
    let mut body = body.into();
    if !body.ends_with('\n') {
        body.push('\n');
    }
    (status, body).into_response()
}
