//! Flags of runs: somebody marks a run, for an incident or by itself. Sealed runs too: a flag is a statement on the ledger and
//! no frame. The table of flags follows from the statements, as that of holds does.

pub(crate) use crate::store::flags::FlagRow;

use crate::access::Caller;
use crate::ledger;
use crate::ledger::people::stand_in;
use crate::record::{RecordError, Recorder, commit};
use crate::store;
use onrecord_core::id::RunId;
use onrecord_core::statement::{Flag, FlagAction, Predicate};

impl Recorder {
    /// Puts a flag on a run. One that stands already for the same incident is answered, and false.
    pub(crate) async fn set_flag(
        &self,
        caller: Caller,
        run: RunId,
        flag: String,
        incident: Option<String>,
        reason: Option<String>,
    ) -> Result<(FlagRow, bool), RecordError> {
        self.refuse_secret("/flag", &flag)?;
        self.refuse_secret("/incident", incident.as_deref().unwrap_or_default())?;
        self.refuse_secret("/reason", reason.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let there = store::runs::sizes(&mut tx, std::slice::from_ref(&run)).await?;
            if there.is_empty() {
                return Err(RecordError::NoRun(run));
            }
            let standing = store::flags::of_run(&mut tx, &run, false).await?;
            let mut same = standing
                .into_iter()
                .filter(|one| (&one.flag, &one.incident) == (&flag, &incident));
            if let Some(known) = same.next() {
                return Ok((known, false));
            }
            let said = Flag {
                action: FlagAction::Set,
                at: ledger::next_time(&tenant)?,
                by: stand_in(&mut tx, &caller.tenant, &caller.reader()).await?,
                flag,
                incident,
                reason,
                run,
            };
            let predicate = Predicate::Flag(said.clone());
            let vault = (&*recorder.vault, &*keys);
            let entry = ledger::enter(&mut tx, &mut tenant, vault, &predicate, None).await?;
            let row = FlagRow {
                index: entry.index,
                flag: said.flag,
                incident: said.incident,
                reason: said.reason,
                by: said.by,
                at: said.at,
                cleared: None,
            };
            store::flags::insert(&mut tx, &caller.tenant, &said.run, &row).await?;
            let runs = std::slice::from_ref(&said.run);
            store::sweeping::look_soon(&mut tx, &caller.tenant, Some(runs)).await?;
            // A crash before this line leaves no flag, neither on the ledger nor in the table.
            commit(tx).await?;
            Ok((row, true))
        })
        .await
    }

    /// Takes a flag off a run: the one of an incident, or without one each that has the name. Returns those that ended.
    ///
    /// # Errors
    /// [`RecordError::NoFlag`]: none stands.
    pub(crate) async fn clear_flag(
        &self,
        caller: Caller,
        run: RunId,
        flag: String,
        incident: Option<String>,
        reason: Option<String>,
    ) -> Result<Vec<FlagRow>, RecordError> {
        self.refuse_secret("/reason", reason.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        self.detached(async move {
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let there = store::runs::sizes(&mut tx, std::slice::from_ref(&run)).await?;
            if there.is_empty() {
                return Err(RecordError::NoRun(run));
            }
            let mut ending = store::flags::of_run(&mut tx, &run, false).await?;
            ending
                .retain(|one| one.flag == flag && (incident.is_none() || one.incident == incident));
            if ending.is_empty() {
                return Err(RecordError::NoFlag { run, flag });
            }
            let at = ledger::next_time(&tenant)?;
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let said = ending.iter().map(|one| {
                Predicate::Flag(Flag {
                    action: FlagAction::Cleared,
                    at,
                    by: by.clone(),
                    flag: one.flag.clone(),
                    incident: one.incident.clone(),
                    reason: reason.clone(),
                    run: run.clone(),
                })
            });
            let said: Vec<Predicate> = said.collect();
            let statements: Vec<_> = said.iter().map(|one| (one, None)).collect();
            let vault = &recorder.vault;
            let entries = ledger::append_many(&mut tx, &mut tenant, vault, &statements).await?;
            for (one, entry) in ending.iter_mut().zip(entries) {
                let end = (at, &by, entry.index);
                store::flags::clear(&mut tx, &caller.tenant, one.index, end).await?;
                one.cleared = Some((at, by.clone(), entry.index));
            }
            ledger::checkpoint(&mut tx, &tenant, &keys).await?;
            let runs = std::slice::from_ref(&run);
            store::sweeping::look_soon(&mut tx, &caller.tenant, Some(runs)).await?;
            commit(tx).await?;
            Ok(ending)
        })
        .await
    }

    /// The flags of a run in the order in which they were set: all that ever were, or those that stand.
    pub(crate) async fn flags(
        &self,
        caller: Caller,
        run: RunId,
        ever: bool,
    ) -> Result<Vec<FlagRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.snapshot(&caller.tenant).await?;
            let there = store::runs::sizes(&mut tx, std::slice::from_ref(&run)).await?;
            let flags = store::flags::of_run(&mut tx, &run, ever).await?;
            commit(tx).await?;
            if there.is_empty() {
                return Err(RecordError::NoRun(run));
            }
            Ok(flags)
        })
        .await
    }
}
