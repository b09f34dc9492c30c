//! A listener's connections: bounded in number, given up on where heads do not come, and let end.
//!
//! The loop is ours because axum's own neither bounds connections nor gives up on headers that do not come.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::either::Either;
use tower_service::Service;

/// How long requests may go on after the signal to stop.
const GRACE: Duration = Duration::from_secs(30);
/// How long the head of a request may take, the pause before it included. Longer than the clients that
/// we know keep a connection that nobody uses, so that they close it first and no request is lost.
const HEAD: Duration = Duration::from_secs(120);
/// Connections at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 4_096;
/// The pause after the system refused a connection for want of something of its own.
const REFUSED: Duration = Duration::from_millis(100);
/// Who may connect to a Unix socket: the server's user and its group. A token is needed all the same.
const SOCKET_MODE: u32 = 0o660;

/// Where connections come from: an address, and a Unix socket beside it for who is on the same machine.
pub struct Listener {
    tcp: TcpListener,
    unix: Option<UnixSocket>,
}

impl From<TcpListener> for Listener {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, unix: None }
    }
}

impl Listener {
    /// Listens on a Unix socket as well.
    pub fn with_unix(self, unix: UnixSocket) -> Self {
        Self {
            unix: Some(unix),
            ..self
        }
    }

    async fn next(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        let unix = async {
            match &self.unix {
                Some(socket) => socket.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            tcp = self.tcp.accept() => {
                let (stream, _) = tcp?;
                // Receipts are small and waited for: they are not to be held back for more.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left(stream))
            }
            unix = unix => Ok(Either::Right(unix?.0)),
        }
    }
}

/// A Unix socket in the file system, which is removed when this is dropped.
pub struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Listens at a path. The socket of a server that was killed is taken over: nobody listens there any more.
    ///
    /// # Errors
    /// Something else is there, or somebody listens (`AddrInUse`); or the system refuses.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_left(path)? => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        // From here on the file is ours, and goes with this.
        let socket = Self {
            listener,
            path: path.to_owned(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(socket)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        // Whoever removed it before has done the same.
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a socket is there that nobody listens on.
fn is_left(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let connected = std::os::unix::net::UnixStream::connect(path);
    Ok(connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

/// Serves until `shutdown` is there; then takes no new connection, does what is to be done at once, and lets requests end.
pub(crate) async fn run<S>(
    listener: impl Into<Listener>,
    service: S,
    shutdown: impl Future<Output = ()> + Send + 'static,
    at_once: impl FnOnce(),
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let service = TowerToHyperService::new(Boxed(service));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let (listener, mut shutdown) = (listener.into(), pin!(shutdown));
    loop {
        let (stream, place) = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection.into_owned());
        tokio::spawn(async move {
            // A connection that breaks is the client's affair; what it asked for has its own answer.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    at_once();
    if tokio::time::timeout(GRACE, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!(
            "some requests did not end in time and are cut off; what they wrote is kept"
        );
    }
}

/// A service of any body: connections have one that we do not name.
#[derive(Clone)]
struct Boxed<S>(S);

impl<S, B> Service<Request<B>> for Boxed<S>
where
    S: Service<Request<Body>>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.0.call(request.map(Body::new))
    }
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &Listener,
    room: &Arc<Semaphore>,
) -> (Either<TcpStream, UnixStream>, Option<OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let place = room.clone().acquire_owned().await.ok();
    loop {
        match listener.next().await {
            Ok(stream) => return (stream, place),
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(REFUSED).await;
            }
        }
    }
}
