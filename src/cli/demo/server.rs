//! The demo's own server: an embedded cluster, a listener, and the owner's token.

use crate::http;
use crate::postgres::{Cluster, Durability};
use crate::start::{Config, Started, TOKEN_FILE, start};
use crate::store::Store;
use anyhow::Context as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Enough for one agent, its gate and whoever looks around.
const CONNECTIONS: u32 = 8;

/// A server that serves.
pub(super) struct Server {
    /// Its address, without a slash at its end.
    pub url: String,
    /// The owner's token.
    pub token: String,
    cluster: Option<Cluster>,
    store: Store,
    tell: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
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
            .with_context(|| format!("cannot listen on {listen}"))?;
        let url = format!("http://{}", listener.local_addr()?);
        let Started {
            app,
            cluster,
            token,
        } = start(&Config {
            data_dir: data_dir.to_owned(),
            database_url: None,
            postgres_bin,
            keys: None,
            root_key: None,
            public_host: "localhost".to_owned(),
            connections: CONNECTIONS,
            durability: Durability::Durable,
            new_token: false,
        })
        .await?;
        let token = match token {
            Some((_, token)) => token,
            None => {
                let file = data_dir.join(TOKEN_FILE);
                let text = fs::read_to_string(&file)
                    .with_context(|| format!("cannot read the token in {}", file.display()))?;
                text.trim().to_owned()
            }
        };
        let store = app.recorder.store().clone();
        let (tell, told) = oneshot::channel();
        let task = tokio::spawn(http::serve(listener, app, async move {
            let _ = told.await;
        }));
        Ok(Self {
            url,
            token,
            cluster,
            store,
            tell,
            task,
        })
    }

    /// Why it ended by itself; waits as long as it does not.
    pub async fn failed(&mut self) -> anyhow::Error {
        let cluster = async {
            match &mut self.cluster {
                Some(cluster) => cluster.exited().await.into(),
                None => std::future::pending::<anyhow::Error>().await,
            }
        };
        tokio::select! {
            error = cluster => error,
            served = &mut self.task => match served {
                Ok(Err(error)) => error.into(),
                Ok(Ok(())) => anyhow::anyhow!("the server ended by itself"),
                Err(error) => error.into(),
            },
        }
    }

    /// Lets requests end, then stops the cluster.
    pub async fn stop(self) -> anyhow::Result<()> {
        // Fails where the server has ended already, which `failed` has told.
        if self.tell.send(()).is_ok() && !self.task.is_finished() {
            self.task.await??;
        }
        self.store.close().await;
        match self.cluster {
            Some(cluster) => Ok(cluster.stop().await?),
            None => Ok(()),
        }
    }
}
