//! The demo's own server: an embedded cluster, a listener, and the owner's token.

use crate::cli::running::Running;
use crate::cli::serve::cannot_listen;
use crate::postgres::Durability;
use crate::start::{Config, RootSource, TOKEN_FILE, start};
use anyhow::Context as _;
use std::fs;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;

/// Enough for one agent, its gate and whoever looks around.
const CONNECTIONS: u32 = 8;

/// A server that serves.
pub(super) struct Server {
    /// Its address, without a slash at its end.
    pub url: String,
    /// The owner's token.
    pub token: String,
    running: Running,
}

impl Server {
    /// Starts it; whatever `DATABASE_URL` says, the demo keeps to its own cluster.
    pub async fn start(
        data_dir: &Path,
        listen: &str,
        postgres_bin: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(listen)
            .await
            .with_context(|| cannot_listen(listen))?;
        let url = format!("http://{}", listener.local_addr()?);
        let started = start(&Config {
            data_dir: data_dir.to_owned(),
            database_url: None,
            key_database_url: None,
            postgres_bin,
            keys: None,
            root_key: RootSource::File(None),
            public_host: "localhost".to_owned(),
            connections: CONNECTIONS,
            durability: Durability::Durable,
            new_token: false,
            redaction: true,
            literals: None,
            anchors: Default::default(),
        })
        .await?;
        let token = match &started.token {
            Some((_, token)) => token.clone(),
            None => {
                let file = data_dir.join(TOKEN_FILE);
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("cannot read the token in {}", file.display()))?;
                text.trim().to_owned()
            }
        };
        Ok(Self {
            url,
            token,
            running: Running::new(started, listener),
        })
    }

    /// Why it ended by itself; waits as long as it does not.
    pub async fn failed(&mut self) -> anyhow::Error {
        self.running.failed().await
    }

    /// Lets requests end, then stops the cluster.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.running.stop().await
    }
}
