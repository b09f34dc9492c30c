//! A server while it serves: what may end it, and how it is ended.

use crate::http;
use crate::postgres::Cluster;
use crate::start::Started;
use crate::store::Store;
use std::io;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server that serves, with the cluster that ends with it.
pub(super) struct Running {
    cluster: Option<Cluster>,
    store: Store,
    tell: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

impl Running {
    /// Serves what was started on a listener.
    pub(super) fn new(started: Started, listener: impl Into<http::Listener>) -> Self {
        let Started { app, cluster, .. } = started;
        let store = app.recorder.store().clone();
        let (tell, told) = oneshot::channel();
        let task = tokio::spawn(http::serve(listener.into(), app, async move {
            // Whoever dropped the sender wants the server to end just the same.
            let _ = told.await;
        }));
        Self {
            cluster,
            store,
            tell,
            task,
        }
    }

    /// Why it ended by itself; waits as long as it does not.
    pub(super) async fn failed(&mut self) -> anyhow::Error {
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
    pub(super) async fn stop(self) -> anyhow::Result<()> {
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
