//! The HTTP client of every command: addresses, the token, retries, and errors that say what to do.

mod error;
mod events;
mod probe;

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::AsyncWriteExt as _;

use error::foreign;
pub use error::{ClientError, Problem};
pub use events::{Event, Events};
pub use probe::Probe;

/// Where `onrecord serve` listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8470";
/// How the address of a server at a Unix socket begins; the path follows.
pub const UNIX: &str = "unix:";
/// Media type of one JSON value a line.
pub const NDJSON: &str = "application/x-ndjson";

/// Times that a request is sent in all.
const ATTEMPTS: u32 = 5;
/// The pause before the second attempt; each later one is twice as long.
const PAUSE_MS: u64 = 200;
/// The longest pause that a server can ask for with `Retry-After`.
const PAUSE_SECONDS_MAX: u64 = 30;
/// Bytes of an answer that is read into memory, and of one line of a streamed answer.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The server and the token, for every command that talks to a server.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Address of the server, or unix:PATH for its Unix socket
    #[arg(long, global = true, env = "ONRECORD_URL", value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// API token; the first one is in `admin.token` in the server's data folder
    #[arg(
        long,
        global = true,
        env = "ONRECORD_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub token: Option<String>,
}

/// The path in the address of a server at a Unix socket.
pub fn unix_path(url: &str) -> Option<&Path> {
    let path = url.strip_prefix(UNIX)?;
    // As in other addresses two slashes may stand before the path.
    let path = path
        .strip_prefix("//")
        .filter(|path| path.starts_with('/'))
        .unwrap_or(path);
    (!path.is_empty()).then(|| Path::new(path))
}

/// What the server says to one line of a batch.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct LineAnswer {
    /// 201 for a new frame, 200 for one that was there, 4xx or 5xx for a refusal.
    pub status: u16,
    /// The frame's number in its run.
    pub seq: Option<u64>,
    /// The frame's hash, 64 hex digits.
    pub hash: Option<String>,
    /// Why it was refused.
    pub problem: Option<Problem>,
}

/// The last line of a batch's answer, which alone has `done`.
#[derive(serde::Deserialize)]
struct BatchEnd {
    #[serde(rename = "done")]
    _done: u64,
    /// Why the server stopped before the last line.
    #[serde(default)]
    problem: Option<Box<Problem>>,
}

impl BatchEnd {
    /// The answers, if the server answered all that was sent.
    fn close(self, answers: Vec<LineAnswer>) -> Result<Vec<LineAnswer>, ClientError> {
        match self.problem {
            Some(problem) => Err(ClientError::Problem(problem)),
            None => Ok(answers),
        }
    }
}

/// Talks to one server.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// The address as it was given.
    base: String,
    /// What paths are added to.
    origin: String,
    pause: Duration,
    has_token: bool,
}

/// One request, so that it can be sent again.
struct Request<'a> {
    method: Method,
    path: &'a str,
    media: &'a str,
    body: Option<Bytes>,
}

impl Client {
    /// A client for a server. The process must have installed a rustls provider.
    ///
    /// # Errors
    /// The address or the token cannot be used.
    pub fn new(server: &ServerArgs) -> Result<Self, ClientError> {
        let address = || ClientError::Address {
            url: server.url.clone(),
        };
        let socket = unix_path(&server.url);
        let origin = match socket {
            // HTTP wants a host; there is none, and nobody looks at it.
            Some(_) => "http://localhost",
            None => &server.url,
        };
        let url = reqwest::Url::parse(origin).map_err(|_| address())?;
        if !matches!(url.scheme(), "http" | "https")
            || url.query().is_some()
            || url.fragment().is_some()
        {
            return Err(address());
        }
        let mut headers = HeaderMap::new();
        let mut has_token = false;
        // An empty variable in the environment is no token.
        if let Some(token) = server.token.as_ref().filter(|token| !token.is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let mut value = value.map_err(|_| ClientError::Token)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
            has_token = true;
        }
        let mut http = reqwest::Client::builder();
        if let Some(path) = socket {
            http = http.unix_socket(path);
        }
        let http = http
            .default_headers(headers)
            .connect_timeout(Duration::from_secs(10))
            // Silence, not length: an export may take long.
            .read_timeout(Duration::from_secs(120))
            .user_agent(concat!("onrecord/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| address())?;
        let origin = url.as_str().trim_end_matches('/').to_owned();
        let base = match socket {
            Some(path) => format!("{UNIX}{}", path.display()),
            None => origin.clone(),
        };
        Ok(Self {
            http,
            base,
            origin,
            pause: Duration::from_millis(PAUSE_MS),
            has_token,
        })
    }

    /// The server's address, without a slash at its end.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The same client with another pause before the second attempt.
    pub fn with_pause(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Reads a JSON resource. `path` begins with a slash.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.send(&Request::read(path)).await?;
        self.json(answer).await
    }

    /// Reads a resource's bytes; for what is at most 64 MiB. Larger ones go to a file with
    /// [`Client::download`].
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn read_bytes(&self, path: &str) -> Result<Bytes, ClientError> {
        let answer = self.send(&Request::read(path)).await?;
        self.bytes(answer).await
    }

    /// As [`Client::read_bytes`], with what a header of the answer says.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn read_with(
        &self,
        path: &str,
        header: &str,
    ) -> Result<(Bytes, Option<String>), ClientError> {
        let answer = self.send(&Request::read(path)).await?;
        let said = answer.headers().get(header);
        let said = said.and_then(|value| value.to_str().ok().map(str::to_owned));
        Ok((self.bytes(answer).await?, said))
    }

    /// As [`Client::read_bytes`], where less is the most that there can be.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn read_at_most(&self, path: &str, limit: usize) -> Result<Bytes, ClientError> {
        let answer = self.send(&Request::read(path)).await?;
        self.bytes_at_most(answer, limit).await
    }

    /// Posts JSON and reads JSON. It is sent again when the connection breaks, so the request must
    /// carry a `key` or be harmless to repeat.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<(StatusCode, T), ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| ClientError::Broken {
            url: self.base.clone(),
            why: format!("the request has no JSON form: {error}"),
        })?;
        let request = Request {
            method: Method::POST,
            path,
            media: "application/json",
            body: Some(body.into()),
        };
        let answer = self.send(&request).await?;
        let status = answer.status();
        Ok((status, self.json(answer).await?))
    }

    /// Puts a text in the place of a resource and reads JSON. It is sent again when the connection breaks.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        media: &'static str,
        text: String,
    ) -> Result<(StatusCode, T), ClientError> {
        let request = Request {
            method: Method::PUT,
            path,
            media,
            body: Some(text.into()),
        };
        let answer = self.send(&request).await?;
        let status = answer.status();
        Ok((status, self.json(answer).await?))
    }

    /// Deletes a resource; the answer's body is dropped.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, path: &str) -> Result<StatusCode, ClientError> {
        let request = Request {
            method: Method::DELETE,
            ..Request::read(path)
        };
        Ok(self.send(&request).await?.status())
    }

    /// Deletes a resource, and reads what is said of its end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete_and_read<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let request = Request {
            method: Method::DELETE,
            ..Request::read(path)
        };
        let answer = self.send(&request).await?;
        self.json(answer).await
    }

    /// Posts lines of JSON, each ended by a line feed, and answers what the server says to each, in
    /// their order. Every line must carry a `key`: the batch is sent again as a whole when the
    /// connection breaks before the server's last word.
    ///
    /// # Errors
    /// See [`ClientError`]. A refused line is no error here; it is in the answer.
    pub async fn post_lines(
        &self,
        path: &str,
        lines: Bytes,
    ) -> Result<Vec<LineAnswer>, ClientError> {
        let request = Request {
            method: Method::POST,
            path,
            media: NDJSON,
            body: Some(lines),
        };
        let mut attempt = 1;
        loop {
            let answer = self.send(&request).await?;
            match self.line_answers(answer).await {
                Err(ClientError::Broken { .. }) if attempt < ATTEMPTS => {}
                done => return done,
            }
            tokio::time::sleep(self.pause_before(attempt)).await;
            attempt += 1;
        }
    }

    /// Streams a resource into a file. The file appears when it is complete: the bytes go to a
    /// temporary file beside it, which then takes its name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn download(&self, path: &str, to: &Path) -> Result<u64, ClientError> {
        self.download_with(path, to, |_| ()).await
    }

    /// The same, and says again and again how many bytes there are.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn download_with(
        &self,
        path: &str,
        to: &Path,
        progress: impl Fn(u64),
    ) -> Result<u64, ClientError> {
        let file_error = |source| ClientError::File {
            path: to.to_owned(),
            source,
        };
        // Before everything is fetched, which would find it out at the end.
        if to.is_dir() {
            return Err(file_error(std::io::ErrorKind::IsADirectory.into()));
        }
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            std::fs::metadata(folder).map_err(file_error)?;
        }
        let answer = self.send(&Request::read(path)).await?;
        let temporary = tempfile::Builder::new()
            .prefix(".onrecord-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .map_err(file_error)?;
        let handle = temporary.as_file().try_clone().map_err(file_error)?;
        let mut file = tokio::fs::File::from_std(handle);
        let length = self.copy(answer, &mut file, progress, file_error).await?;
        file.sync_all().await.map_err(file_error)?;
        temporary
            .persist(to)
            .map_err(|error| file_error(error.error))?;
        Ok(length)
    }

    /// Streams a resource to standard output.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn print(&self, path: &str) -> Result<u64, ClientError> {
        let answer = self.send(&Request::read(path)).await?;
        let file_error = |source| ClientError::File {
            path: "standard output".into(),
            source,
        };
        let handle = std::io::stdout().as_fd().try_clone_to_owned();
        let mut file = tokio::fs::File::from_std(handle.map_err(file_error)?.into());
        self.copy(answer, &mut file, |_| (), file_error).await
    }

    async fn copy(
        &self,
        answer: Response,
        to: &mut tokio::fs::File,
        progress: impl Fn(u64),
        file_error: impl Fn(std::io::Error) -> ClientError,
    ) -> Result<u64, ClientError> {
        let mut length = 0;
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.broken(&error))?;
            length += chunk.len() as u64;
            to.write_all(&chunk).await.map_err(&file_error)?;
            progress(length);
        }
        to.flush().await.map_err(&file_error)?;
        Ok(length)
    }

    /// Sends a request until there is an answer that is not 503, at most [`ATTEMPTS`] times.
    async fn send(&self, request: &Request<'_>) -> Result<Response, ClientError> {
        let mut attempt = 1;
        loop {
            let mut builder = self
                .http
                .request(request.method.clone(), self.address(request.path));
            if let Some(body) = &request.body {
                builder = builder
                    .header(CONTENT_TYPE, request.media)
                    .body(body.clone());
            }
            let last = attempt >= ATTEMPTS;
            let pause = match builder.send().await {
                Ok(answer) if answer.status() == StatusCode::SERVICE_UNAVAILABLE && !last => {
                    retry_after(&answer).unwrap_or(self.pause_before(attempt))
                }
                Ok(answer) => return self.admit(answer).await,
                // Nobody listens: waiting for a server that was never started helps nobody.
                Err(error) if last || (error.is_connect() && attempt > 2) || error.is_builder() => {
                    return Err(self.lost(error));
                }
                Err(_) => self.pause_before(attempt),
            };
            tokio::time::sleep(pause).await;
            attempt += 1;
        }
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.origin)
    }

    fn pause_before(&self, attempt: u32) -> Duration {
        self.pause * 2_u32.saturating_pow(attempt - 1)
    }

    fn lost(&self, source: reqwest::Error) -> ClientError {
        if source.is_connect() {
            let mut why = innermost(&source);
            // How the TLS library calls an answer in plain text.
            if why.contains("InvalidContentType") {
                why = "what answers there does not speak TLS: give its http:// address, or that of the \
                       proxy that ends TLS"
                    .to_owned();
            }
            return ClientError::Unreachable {
                url: self.base.clone(),
                why,
            };
        }
        self.broken(&source)
    }

    fn broken(&self, error: &reqwest::Error) -> ClientError {
        self.broken_off(&innermost(error))
    }

    fn broken_off(&self, why: &str) -> ClientError {
        ClientError::Broken {
            url: self.base.clone(),
            why: why.to_owned(),
        }
    }

    /// A success as it is; a problem as an error.
    async fn admit(&self, answer: Response) -> Result<Response, ClientError> {
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let url = answer.url().to_string();
        let body = self.bytes(answer).await?;
        match serde_json::from_slice::<Box<Problem>>(&body) {
            Ok(mut problem) if !problem.title.is_empty() || !problem.code.is_empty() => {
                problem.status = status.as_u16();
                if status == StatusCode::UNAUTHORIZED && !self.has_token {
                    "none was given".clone_into(&mut problem.detail);
                }
                Err(ClientError::Problem(problem))
            }
            _ => Err(foreign(url, status, &body)),
        }
    }

    async fn bytes(&self, answer: Response) -> Result<Bytes, ClientError> {
        self.bytes_at_most(answer, ANSWER_BYTES).await
    }

    async fn bytes_at_most(&self, answer: Response, limit: usize) -> Result<Bytes, ClientError> {
        let url = answer.url().to_string();
        let status = answer.status();
        let mut body = BytesMut::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.broken(&error))?;
            if body.len() + chunk.len() > limit {
                let more = format!("more than {limit} bytes");
                return Err(foreign(url, status, more.as_bytes()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    async fn json<T: DeserializeOwned>(&self, answer: Response) -> Result<T, ClientError> {
        let url = answer.url().to_string();
        let status = answer.status();
        let body = self.bytes(answer).await?;
        serde_json::from_slice(&body).map_err(|_| foreign(url, status, &body))
    }

    /// Reads the answers of a batch as they come.
    async fn line_answers(&self, answer: Response) -> Result<Vec<LineAnswer>, ClientError> {
        let url = answer.url().to_string();
        let status = answer.status();
        let mut answers = Vec::new();
        let mut rest = BytesMut::new();
        let mut chunks = answer.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.broken(&error))?;
            rest.extend_from_slice(&chunk);
            while let Some(feed) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest.split_to(feed + 1);
                if let Ok(answer) = serde_json::from_slice::<LineAnswer>(&line) {
                    answers.push(answer);
                } else if let Ok(end) = serde_json::from_slice::<BatchEnd>(&line) {
                    return end.close(answers);
                } else {
                    return Err(foreign(url, status, &line));
                }
            }
            if rest.len() > ANSWER_BYTES {
                return Err(foreign(url, status, &rest));
            }
        }
        // The server's last word also comes without a line feed.
        if let Ok(end) = serde_json::from_slice::<BatchEnd>(&rest) {
            return end.close(answers);
        }
        Err(self.broken_off("the answer ended before its last line"))
    }
}

impl<'a> Request<'a> {
    fn read(path: &'a str) -> Self {
        Self {
            method: Method::GET,
            path,
            media: "",
            body: None,
        }
    }
}

/// What happened: the outer errors repeat the address.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The pause that the server asks for, in seconds.
fn retry_after(answer: &Response) -> Option<Duration> {
    let seconds: u64 = answer
        .headers()
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds.min(PAUSE_SECONDS_MAX)))
}
