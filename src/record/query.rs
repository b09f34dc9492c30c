//! Questions over many runs: each stands on the ledger, and beside it what was asked. Filters are kept under names.

use super::joint::Asking;
use super::{RecordError, Recorder, commit};
use crate::access::Caller;
use crate::ledger::people::stand_in;
use crate::store;
pub(crate) use crate::store::queries::{QueryRow, SavedRow};
use crate::vault;
use onrecord_core::json;
use serde::Serialize;
use std::collections::BTreeMap;

/// Random characters of a question's text, 134 bits: without them its digest could be guessed from what a filter may name.
const NONCE_CHARS: usize = 26;

/// A question over many runs: what stands in its text.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Question {
    /// What is asked for: `runs`, `frames` or `payload-records`.
    pub resource: &'static str,
    /// The filter as it was written, or as it was kept under `saved`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The name that the filter is kept under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved: Option<String>,
    /// What is counted by, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<String>,
    /// Whether rows are counted and not listed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub count: bool,
    /// `json`, `ndjson`, `csv` or `parquet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<&'static str>,
    /// `asc` or `desc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<&'static str>,
    /// Rows at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Whatever else was asked for, by the names of the parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<&'static str, String>,
}

/// A filter that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    /// As it stands now.
    pub(crate) row: SavedRow,
    /// Whether nothing stood under the name before.
    pub(crate) created: bool,
}

#[derive(Serialize)]
struct Text<'a> {
    nonce: String,
    #[serde(flatten)]
    question: &'a Question,
}

impl Recorder {
    /// Enters a question into the ledger before anything is answered, together with what others enter at the same time;
    /// gives the index of the entry when it is durable.
    ///
    /// # Errors
    /// `secret_in_metadata`: the filter has what is a secret. [`RecordError::Unknown`]: whether the entry is there is not known.
    pub async fn enter_query(
        &self,
        caller: &Caller,
        purpose: &str,
        question: &Question,
    ) -> Result<u64, RecordError> {
        self.refuse_secret("/filter", question.filter.as_deref().unwrap_or_default())?;
        let nonce = vault::new_name(NONCE_CHARS)?;
        let text = json::to_canonical(&Text { nonce, question })
            .map_err(|_| store::contradiction("queries", "text", question.resource))?;
        let asking = Asking {
            by: caller.reader(),
            purpose: purpose.to_owned(),
            resource: question.resource,
            text,
        };
        // It is always done: nothing but a defect leaves it out.
        let index = self.join(&caller.tenant, asking).await?;
        index.ok_or(RecordError::CutOff)
    }

    /// Questions below an index of the ledger, the last first.
    pub(crate) async fn queries(
        &self,
        caller: Caller,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<QueryRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let rows = store::queries::page(&mut tx, &caller.tenant, before, limit).await?;
            commit(tx).await?;
            Ok(rows)
        })
        .await
    }

    /// Removes what was asked, which may name people; the entry in the ledger stays, and says who asked, when and why.
    ///
    /// # Errors
    /// [`RecordError::NoQuery`].
    pub(crate) async fn forget_query(&self, caller: Caller, index: u64) -> Result<(), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.begin_erasing(&caller.tenant).await?;
            let found = store::queries::forget(&mut tx, &caller.tenant, index).await?;
            commit(tx).await?;
            if !found {
                return Err(RecordError::NoQuery(index));
            }
            tracing::info!(tenant = %caller.tenant, index, "forgot what a query asked");
            Ok(())
        })
        .await
    }

    /// Keeps a filter under a name, in place of what was kept there. Whoever calls has read the filter.
    ///
    /// # Errors
    /// `secret_in_metadata`.
    pub(crate) async fn save_query(
        &self,
        caller: Caller,
        (name, resource): (String, &'static str),
        filter: String,
    ) -> Result<Saved, RecordError> {
        self.refuse_secret("/filter", &filter)?;
        let recorder = self.clone();
        self.detached(async move {
            let now = recorder.store.now().await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let row = SavedRow {
                name,
                resource: resource.to_owned(),
                filter,
                // As on the ledger: a person who is forgotten there is so here too.
                by: stand_in(&mut tx, &caller.tenant, &caller.reader()).await?,
                at: now,
            };
            let created = store::queries::save(&mut tx, &caller.tenant, &row).await?;
            // A crash before this line leaves what was kept before.
            commit(tx).await?;
            Ok(Saved { row, created })
        })
        .await
    }

    /// The filter of a name.
    ///
    /// # Errors
    /// [`RecordError::NoSavedQuery`].
    pub(crate) async fn saved_query(
        &self,
        caller: Caller,
        name: String,
    ) -> Result<SavedRow, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let which = store::queries::Which::Named(&name);
            let mut found = store::queries::saved(&mut tx, &caller.tenant, which).await?;
            commit(tx).await?;
            found.pop().ok_or(RecordError::NoSavedQuery(name))
        })
        .await
    }

    /// Filters that are kept, by their names, from behind one on.
    pub(crate) async fn saved_queries(
        &self,
        caller: Caller,
        after: String,
        limit: u32,
    ) -> Result<Vec<SavedRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let which = store::queries::Which::After(&after, limit);
            let found = store::queries::saved(&mut tx, &caller.tenant, which).await?;
            commit(tx).await?;
            Ok(found)
        })
        .await
    }

    /// Removes a filter that is kept.
    ///
    /// # Errors
    /// [`RecordError::NoSavedQuery`].
    pub(crate) async fn remove_saved_query(
        &self,
        caller: Caller,
        name: String,
    ) -> Result<(), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let found = store::queries::remove(&mut tx, &caller.tenant, &name).await?;
            commit(tx).await?;
            if found {
                Ok(())
            } else {
                Err(RecordError::NoSavedQuery(name))
            }
        })
        .await
    }
}
