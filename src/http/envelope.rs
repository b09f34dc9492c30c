//! What goes around every request: its id, what the log says of it, and the last word on its answer.
//!
//! One service rather than a stack of layers: each layer clones and boxes all those below it for each request, and
//! together they cost more than a frame.

use super::problem::{Code, Problem};
use super::{REQUEST_ID, only_problems};
use crate::record::Recorder;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use onrecord_core::id::RunId;
use std::collections::HashSet;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tower_service::Service;
use tracing::Span;
use uuid::Uuid;

tokio::task_local! {
    static HEAD: Head;
}

/// What the log says of a request.
struct Head {
    method: Method,
    uri: Uri,
    id: Option<HeaderValue>,
    recorder: Recorder,
    words: Arc<HashSet<String>>,
}

impl Head {
    /// The path as the log may have it: what stands where an id should may be anything, a secret too.
    fn path(&self) -> String {
        let steps = self.uri.path().split('/').map(|step| {
            let is_number = step.len() < 16 && step.bytes().all(|byte| byte.is_ascii_digit());
            let known = is_number || self.words.contains(step) || step.parse::<RunId>().is_ok();
            if known { step } else { "…" }
        });
        steps.collect::<Vec<_>>().join("/")
    }
}

/// The span of the request that is being answered, for a line of the log. Made for the line, since few requests have
/// one, and a span costs as much as a frame's chain does.
pub(super) fn span() -> Span {
    let span = |head: &Head| {
        // The query may have a purpose, which is nobody's but the ledger's.
        tracing::info_span!(
            "request", method = %head.method, path = head.path(),
            id = head.id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default()
        )
    };
    HEAD.try_with(span).unwrap_or_else(|_| Span::none())
}

/// A text for an answer, without what looks like a secret: it may repeat what the request said.
pub(super) fn without_secrets(text: String) -> String {
    HEAD.try_with(|head| head.recorder.without_secrets(&text))
        .unwrap_or(text)
}

/// The whole service.
#[derive(Clone)]
pub struct Envelope {
    router: Router,
    recorder: Recorder,
    words: Arc<HashSet<String>>,
}

impl Envelope {
    /// `words` are the steps of paths that are no ids, and the only ones that the log repeats.
    pub(super) fn new(router: Router, recorder: Recorder, words: HashSet<String>) -> Self {
        Self {
            router,
            recorder,
            words: Arc::new(words),
        }
    }
}

impl<B> Service<Request<B>> for Envelope
where
    Router: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    <Router as Service<Request<B>>>::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Routers are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let id = request_id(&request, &self.recorder);
        if let Some(token) = request.headers_mut().get_mut(header::AUTHORIZATION) {
            token.set_sensitive(true);
        }
        let head = Head {
            method: request.method().clone(),
            uri: request.uri().clone(),
            id: id.clone(),
            recorder: self.recorder.clone(),
            words: self.words.clone(),
        };
        let began = Instant::now();
        let figures = self.recorder.figures.clone();
        let answer = self.router.call(request);
        let work = async move {
            let mut response = match AssertUnwindSafe(answer).catch_unwind().await {
                Ok(Ok(response)) => only_problems(response),
                Ok(Err(never)) => match never {},
                Err(_) => Problem::internal().into_response(),
            };
            finish(response.headers_mut(), id);
            if let Some(Code(code)) = response.extensions().get() {
                figures.refuse(code);
            }
            log(&response, began);
            Ok(response)
        };
        Box::pin(HEAD.scope(head, work))
    }
}

/// The id that came with a request, so that the logs on both sides have the same, or a new one; also where what came
/// looks like a secret.
fn request_id<B>(request: &Request<B>, recorder: &Recorder) -> Option<HeaderValue> {
    let sent = request.headers().get(REQUEST_ID).cloned();
    let sent = sent.filter(|sent| !recorder.has_secret(sent.as_bytes()));
    sent.or_else(|| HeaderValue::try_from(Uuid::new_v4().to_string()).ok())
}

fn finish(headers: &mut HeaderMap, id: Option<HeaderValue>) {
    if let Some(id) = id {
        headers.insert(REQUEST_ID, id);
    }
    let sniffing = headers.entry(header::X_CONTENT_TYPE_OPTIONS);
    sniffing.or_insert(HeaderValue::from_static("nosniff"));
}

/// What was refused or failed is a line of the log; what went well is one for whoever asks for `debug`: an agent posts
/// thousands of frames a second.
fn log(response: &Response<Body>, began: Instant) {
    let (status, latency_ms) = (response.status().as_u16(), began.elapsed().as_millis());
    if status >= 400 {
        span().in_scope(|| tracing::info!(status, latency_ms, "refused"));
    } else if tracing::enabled!(tracing::Level::DEBUG) {
        span().in_scope(|| tracing::debug!(status, latency_ms, "answered"));
    }
}
