//! What sealed runs together have of what a record of use should have.

use super::filter::BadFilter;
use super::table::Cell;
use super::{Counts, Resource};
use crate::access::Caller;
use crate::record::{RecordError, Recorder};
use crate::store::StoreError;
use crate::store::search;
pub(crate) use crate::store::search::coverage::Covered;
use onrecord_core::coverage::OF_MODELS;
use onrecord_core::frame::Kind;
use std::collections::BTreeMap;

/// Counts sealed runs: all of them by what is said of runs, or those that a filter is true of by counts as anybody can ask for
/// them.
///
/// # Errors
/// The filter is none; else [`RecordError::TooSlow`], and the database.
pub(crate) async fn covered(
    recorder: &Recorder,
    caller: &Caller,
    filter: Option<&str>,
) -> Result<Result<Covered, RecordError>, BadFilter> {
    let Some(filter) = filter else {
        return Ok(all(recorder, caller).await);
    };
    let models = OF_MODELS.map(Kind::as_str).join(", ");
    let counts = [
        ("", ""),
        ("", "missing"),
        (" and kind = tool_call", ""),
        (&*format!(" and kind in ({models})"), ""),
    ];
    let mut counted = Vec::new();
    for (more, by) in counts {
        let condition = format!("status = sealed{more} and ({filter})");
        let Ok(counts) = Counts::new(Resource::Runs, Some(&condition), by)? else {
            return Ok(Err(RecordError::CutOff));
        };
        match count(&counts, recorder, caller).await {
            Ok(groups) => counted.push(groups),
            Err(error) => return Ok(Err(error)),
        }
    }
    let one = |groups: Option<&BTreeMap<String, u64>>| {
        groups
            .and_then(|groups| groups.get("").copied())
            .unwrap_or(0)
    };
    Ok(Ok(Covered {
        runs: one(counted.first()),
        tool_calls: one(counted.get(2)),
        models: one(counted.get(3)),
        missing: counted.into_iter().nth(1).unwrap_or_default(),
    }))
}

async fn all(recorder: &Recorder, caller: &Caller) -> Result<Covered, RecordError> {
    let (store, tenant) = (recorder.store().clone(), caller.tenant.clone());
    let work = async move {
        let mut tx = store.snapshot(&tenant).await?;
        let covered = search::coverage::all(&mut tx, &tenant).await;
        let covered = covered.map_err(RecordError::of_search)?;
        tx.commit().await.map_err(StoreError::from)?;
        Ok(covered)
    };
    recorder.detached(work).await
}

async fn count(
    counts: &Counts,
    recorder: &Recorder,
    caller: &Caller,
) -> Result<BTreeMap<String, u64>, RecordError> {
    let counted = counts.count(recorder, caller).await?;
    let groups = counted.rows.into_iter().filter_map(|row| match &row[..] {
        [Cell::Text(value), Cell::Number(count)] => Some((value.clone(), *count)),
        [Cell::Number(count)] => Some((String::new(), *count)),
        _ => None,
    });
    Ok(groups.collect())
}
