//! Whom the pseudonyms in the ledger stand for: looked up, and forgotten.

use super::{RecordError, Recorder, commit};
use crate::access::Caller;
use crate::ledger;
use crate::store;
pub(crate) use crate::store::people::PersonRow;
use onrecord_core::frame::Actor;

impl Recorder {
    /// The people in the ledger of the caller's tenant, by their ids; or the one that has a pseudonym.
    ///
    /// # Errors
    /// [`RecordError::NoPerson`]: the pseudonym is nobody's, or nobody's any more.
    pub(crate) async fn people(
        &self,
        caller: Caller,
        pseudonym: Option<String>,
    ) -> Result<Vec<PersonRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let found = store::people::list(&mut tx, &caller.tenant, pseudonym.as_deref()).await?;
            commit(tx).await?;
            match pseudonym {
                Some(pseudonym) if found.is_empty() => Err(RecordError::NoPerson(pseudonym)),
                _ => Ok(found),
            }
        })
        .await
    }

    /// Forgets whom a pseudonym stands for. Statements that have it stay as they are; the person gets another one where it
    /// is stated again.
    ///
    /// # Errors
    /// [`RecordError::NoPerson`].
    pub(crate) async fn forget_person(
        &self,
        caller: Caller,
        pseudonym: String,
    ) -> Result<(), RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.begin_erasing(&caller.tenant).await?;
            let found = store::people::remove(&mut tx, &caller.tenant, &pseudonym).await?;
            commit(tx).await?;
            if !found {
                return Err(RecordError::NoPerson(pseudonym));
            }
            tracing::info!(tenant = %caller.tenant, pseudonym, "forgot whom a pseudonym stands for");
            Ok(())
        })
        .await
    }

    /// Who reads or exports, as a statement names them.
    pub(crate) async fn stated_reader(&self, caller: &Caller) -> Result<Actor, RecordError> {
        let mut tx = self.store.begin(&caller.tenant).await?;
        let reader = caller.reader();
        let stated = ledger::people::stand_in(&mut tx, &caller.tenant, &reader).await?;
        commit(tx).await?;
        Ok(stated)
    }
}
