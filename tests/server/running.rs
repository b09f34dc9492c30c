//! A server in this process, over a database of its own.

use crate::api::Api;
use crate::api::audit::audit;
use crate::api::bundle::Bundle;
use crate::harness::{self, TestDatabase};
use onrecord::anchor;
use onrecord::http::{self, App};
use onrecord::start::start;
use onrecord_core::digest::leaf_hash;
use onrecord_core::receipt::Receipt;
use onrecord_verify::Report;
use sqlx::{Connection as _, PgConnection, Row as _};
use std::fmt::Display;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub struct Server {
    /// The owner.
    pub api: Api,
    pub app: App,
    pub data_dir: Arc<TempDir>,
    pub database: Arc<TestDatabase>,
    /// That of the keys of runs, where it is another one.
    pub keys: Option<Arc<TestDatabase>>,
    /// Who is told of its ledgers.
    pub anchors: anchor::Config,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_as(|_| ()).await
    }

    /// Starts a server whose limits a test sets.
    pub async fn start_as(change: impl FnOnce(&mut App)) -> Self {
        let database = Arc::new(harness::database().await);
        let data_dir = Arc::new(TempDir::new().expect("a folder"));
        Self::over(database, None, data_dir, None, change).await
    }

    /// Starts a server that tells others of its ledgers.
    pub async fn anchored(anchors: anchor::Config) -> Self {
        let database = Arc::new(harness::database().await);
        let data_dir = Arc::new(TempDir::new().expect("a folder"));
        Self::telling(anchors, database, None, data_dir, None, |_| ()).await
    }

    async fn over(
        database: Arc<TestDatabase>,
        keys: Option<Arc<TestDatabase>>,
        data_dir: Arc<TempDir>,
        token: Option<String>,
        change: impl FnOnce(&mut App),
    ) -> Self {
        let anchors = anchor::Config::default();
        Self::telling(anchors, database, keys, data_dir, token, change).await
    }

    async fn telling(
        anchors: anchor::Config,
        database: Arc<TestDatabase>,
        keys: Option<Arc<TestDatabase>>,
        data_dir: Arc<TempDir>,
        token: Option<String>,
        change: impl FnOnce(&mut App),
    ) -> Self {
        crate::log::capture();
        // Whoever asks others has a client, as the program has.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut config = database.config(data_dir.path());
        config.key_database_url = keys.as_ref().map(|keys| keys.url.clone());
        config.anchors = anchors.clone();
        let started = start(&config).await.expect("the server starts");
        let made = started.token.map(|(_, token)| token);
        let token = token.or(made).expect("the first token");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let address = listener.local_addr().expect("an address");
        let mut app = started.app;
        change(&mut app);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(http::serve(listener, app.clone(), async {
            let _ = stopped.await;
        }));
        Self {
            api: Api::new(format!("http://{address}"), token),
            app,
            data_dir,
            database,
            keys,
            anchors,
            stop: Some(stop),
            task: Some(task),
        }
    }

    /// Another server on the same database with the same keys.
    pub async fn second(&self) -> Self {
        self.second_as(|_| ()).await
    }

    /// Another one, whose limits a test sets.
    pub async fn second_as(&self, change: impl FnOnce(&mut App)) -> Self {
        let (database, data_dir) = (self.database.clone(), self.data_dir.clone());
        let (keys, token) = (self.keys.clone(), self.api.token.clone());
        let anchors = self.anchors.clone();
        Self::telling(anchors, database, keys, data_dir, token, change).await
    }

    /// Stops serving and waits until all that was begun is done; its connections stay open.
    pub async fn drained(mut self) -> Self {
        if let (Some(stop), Some(task)) = (self.stop.take(), self.task.take()) {
            stop.send(()).expect("it runs");
            task.await.expect("it ends").expect("it ends well");
        }
        self
    }

    pub async fn stop(self) {
        let stopped = self.drained().await;
        stopped.app.recorder.store().close().await;
    }

    /// Stops it, and starts it again on the same database.
    pub async fn restart(self) -> Self {
        let (database, data_dir) = (self.database.clone(), self.data_dir.clone());
        let (token, keys) = (self.api.token.clone(), self.keys.clone());
        let anchors = self.anchors.clone();
        self.stop().await;
        Self::telling(anchors, database, keys, data_dir, token, |_| ()).await
    }

    /// Stops it, and starts it on another database with the same keys.
    pub async fn moved_to(self, database: TestDatabase, keys: Option<Arc<TestDatabase>>) -> Self {
        let (data_dir, token) = (self.data_dir.clone(), self.api.token.clone());
        let anchors = self.anchors.clone();
        self.stop().await;
        Self::telling(anchors, Arc::new(database), keys, data_dir, token, |_| ()).await
    }

    /// Stops it, takes a backup of its database, and starts it again.
    pub async fn backed_up(self) -> (Self, TestDatabase) {
        let (database, data_dir) = (self.database.clone(), self.data_dir.clone());
        let (token, keys) = (self.api.token.clone(), self.keys.clone());
        let anchors = self.anchors.clone();
        self.stop().await;
        let copy = database.copy().await;
        let server = Self::telling(anchors, database, keys, data_dir, token, |_| ()).await;
        (server, copy)
    }

    /// Stops it, and starts it with another database for the keys of runs.
    pub async fn with_keys_in(self, keys: Arc<TestDatabase>) -> Self {
        let (database, data_dir) = (self.database.clone(), self.data_dir.clone());
        let token = self.api.token.clone();
        self.stop().await;
        Self::over(database, Some(keys), data_dir, token, |_| ()).await
    }

    /// A connection to the database as its owner, who is a superuser.
    pub async fn sql(&self) -> PgConnection {
        let connection = PgConnection::connect(&self.database.url).await;
        connection.expect("a connection")
    }

    /// The audit, and the rows compared with what the API and the bundle have.
    pub async fn audit(&self, run: impl Display, receipts: &[Receipt]) -> (Report, Bundle) {
        let (report, bundle) = audit(&self.api, &run, receipts).await;
        let rows = sqlx::query("select bytes from frames where run = run_uuid($1) order by seq")
            .bind(run.to_string())
            .fetch_all(&mut self.sql().await)
            .await
            .expect("the rows");
        let stored: Vec<Vec<u8>> = rows.iter().map(|row| row.get("bytes")).collect();
        assert_eq!(stored, bundle.frames());
        for receipt in receipts {
            let place = usize::try_from(receipt.seq).expect("a place");
            assert_eq!(leaf_hash(&stored[place]), receipt.hash);
        }
        (report, bundle)
    }

    /// A person as statements name them.
    pub async fn person(&self, id: &str) -> serde_json::Value {
        let people = self.api.get("/v1/people").await.is(200).json();
        let mut people = people["people"].as_array().expect("people").iter();
        let found = people.find(|one| one["person"] == id);
        let pseudonym = &found.expect("the person is there")["pseudonym"];
        serde_json::json!({"type": "human", "id": pseudonym})
    }

    /// It still serves, whatever was done to it.
    pub async fn alive(&self) {
        self.api.get("/health/ready").await.is(200);
    }
}
