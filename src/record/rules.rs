//! The rules of redaction: the server's own, and those of its tenants, which change while it runs.

use super::prepare::offload;
use super::{RecordError, Recorder, commit};
use crate::access::{Caller, LOOK_HOLDS};
use crate::ledger;
use crate::ledger::people::stand_in;
pub(crate) use crate::redact::DOCUMENT_BYTES;
use crate::redact::{Document, Literals, RuleError, RuleSet};
use crate::store;
pub(crate) use crate::store::redaction::RulesRow;
use lru::LruCache;
use onrecord_core::digest::Hash;
use onrecord_core::id::TenantId;
use onrecord_core::statement::{Policy, Predicate};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Name of the policy in the ledger, and of its subject.
const POLICY: &str = "redaction";
const SUBJECT: &str = "redaction-rules";
/// Media types of documents.
const TOML: &str = "application/toml";
const JSON: &str = "application/json";
/// Tenants whose rules are kept compiled, the last used: a set takes some MiB.
const TENANTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);
/// Compiling takes as long as megabytes of payloads do.
const COMPILING: usize = usize::MAX;

/// The rules of a server that redacts.
pub struct Rules {
    base: Arc<RuleSet>,
    literals: Option<Literals>,
    looks: Mutex<LruCache<TenantId, Look>>,
    /// One compiles at a time; who waits finds it done.
    compiling: tokio::sync::Mutex<()>,
}

/// A look at the version of a tenant's rules.
struct Look {
    at: Instant,
    version: u64,
    rules: Arc<RuleSet>,
}

impl Rules {
    /// The built-in rules, with an operator's literal secrets.
    ///
    /// # Errors
    /// The built-in rules cannot be used, which a test excludes.
    pub fn new(literals: Option<Literals>) -> Result<Self, RuleError> {
        Ok(Self {
            base: Arc::new(RuleSet::composed(literals.as_ref(), None)?),
            literals,
            looks: Mutex::new(LruCache::new(TENANTS)),
            compiling: tokio::sync::Mutex::new(()),
        })
    }

    /// The rules that hold for every tenant.
    pub(super) fn base(&self) -> &RuleSet {
        &self.base
    }

    fn remembered(&self, tenant: &TenantId) -> Option<Arc<RuleSet>> {
        let mut looks = self.looks();
        let look = looks.get(tenant)?;
        (look.at.elapsed() < LOOK_HOLDS).then(|| look.rules.clone())
    }

    /// The set of a version, if it is compiled already; the look is renewed with it.
    fn compiled(&self, tenant: &TenantId, at: Instant, version: u64) -> Option<Arc<RuleSet>> {
        let mut looks = self.looks();
        let look = looks
            .get_mut(tenant)
            .filter(|look| look.version == version)?;
        look.at = at;
        Some(look.rules.clone())
    }

    /// With a document that is one of a tenant's.
    fn with(&self, document: &Document, version: u64) -> Result<RuleSet, RuleError> {
        offload(COMPILING, || {
            RuleSet::composed(self.literals.as_ref(), Some((document, version)))
        })
    }

    fn forget(&self, tenant: &TenantId) {
        self.looks().pop(tenant);
    }

    fn looks(&self) -> MutexGuard<'_, LruCache<TenantId, Look>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tenant's document, as it stands, and what the rules are called with it.
pub(crate) struct Standing {
    /// The document; none where the tenant has added nothing.
    pub(crate) row: Option<RulesRow>,
    /// The version of the composed set; none where the server does not redact.
    pub(crate) set: Option<String>,
    /// Whether this request changed it.
    pub(crate) created: bool,
}

impl Recorder {
    /// The rules under which a tenant's payloads are redacted; none where the server does not. What another process
    /// changes holds within [`LOOK_HOLDS`], what this one does at once.
    pub(super) async fn rules(
        &self,
        tenant: &TenantId,
    ) -> Result<Option<Arc<RuleSet>>, RecordError> {
        let Some(rules) = &self.redaction else {
            return Ok(None);
        };
        if let Some(known) = rules.remembered(tenant) {
            return Ok(Some(known));
        }
        let (recorder, tenant) = (self.clone(), tenant.clone());
        let look = async move { recorder.look_up_rules(&tenant).await };
        Ok(Some(Box::pin(self.detached(look)).await?))
    }

    async fn look_up_rules(&self, tenant: &TenantId) -> Result<Arc<RuleSet>, RecordError> {
        let Some(rules) = &self.redaction else {
            return Err(RecordError::CutOff);
        };
        // Read before the database is asked: the look holds from then on.
        let at = Instant::now();
        let mut tx = self.store.begin(tenant).await?;
        let version = store::redaction::last_version(&mut tx, tenant).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        if let Some(known) = rules.compiled(tenant, at, version) {
            return Ok(known);
        }
        let _turn = rules.compiling.lock().await;
        if let Some(known) = rules.compiled(tenant, at, version) {
            return Ok(known);
        }
        let set = if version == 0 {
            rules.base.clone()
        } else {
            let row = self.standing_rules(tenant, Some(version)).await?;
            let row =
                row.ok_or_else(|| store::contradiction("redaction_rules", "version", version))?;
            let document = read(&row.media, &row.document).map_err(RecordError::StoredRules)?;
            let set = rules.with(&document, version);
            Arc::new(set.map_err(RecordError::StoredRules)?)
        };
        let look = Look {
            at,
            version,
            rules: set.clone(),
        };
        rules.looks().put(tenant.clone(), look);
        Ok(set)
    }

    async fn standing_rules(
        &self,
        tenant: &TenantId,
        version: Option<u64>,
    ) -> Result<Option<RulesRow>, RecordError> {
        let mut tx = self.store.snapshot(tenant).await?;
        let version = match version {
            Some(version) => version,
            None => store::redaction::last_version(&mut tx, tenant).await?,
        };
        let row = store::redaction::version(&mut tx, tenant, version).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        Ok(row)
    }

    /// A tenant's document of rules: the one that holds, or one of before.
    pub(crate) async fn redaction_rules(
        &self,
        caller: Caller,
        version: Option<u64>,
    ) -> Result<Standing, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let row = recorder.standing_rules(&caller.tenant, version).await?;
            match version {
                Some(version) if row.is_none() => Err(RecordError::NoRules(version)),
                _ => Ok(recorder.standing(row, false)),
            }
        })
        .await
    }

    fn standing(&self, row: Option<RulesRow>, created: bool) -> Standing {
        let version = row.as_ref().map(|row| row.version);
        let own = version.map_or_else(String::new, |version| format!("+t/{version}"));
        let rules = self.redaction.as_ref();
        Standing {
            row,
            set: rules.map(|rules| format!("{}{own}", rules.base.version())),
            created,
        }
    }

    /// Makes a document the one that holds, with an entry in the ledger whose subject it is. The same document again
    /// changes nothing.
    ///
    /// # Errors
    /// [`RecordError::BadRules`]: it cannot be used, and why.
    pub(crate) async fn change_redaction_rules(
        &self,
        caller: Caller,
        media: &'static str,
        document: Vec<u8>,
    ) -> Result<Standing, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            recorder.compile_own(media, &document)?;
            let keys = recorder.keys(&caller.tenant).await?;
            let mut tx = recorder.store.begin(&caller.tenant).await?;
            let mut tenant = store::tenants::lock(&mut tx, &caller.tenant).await?;
            let last = store::redaction::last_version(&mut tx, &caller.tenant).await?;
            let known = store::redaction::version(&mut tx, &caller.tenant, last).await?;
            if known
                .as_ref()
                .is_some_and(|known| known.media == media && known.document == document)
            {
                tx.rollback().await.map_err(store::StoreError::from)?;
                return Ok(recorder.standing(known, false));
            }
            let by = stand_in(&mut tx, &caller.tenant, &caller.reader()).await?;
            let policy = Policy {
                at: ledger::next_time(&tenant)?,
                by,
                policy: POLICY.to_owned(),
                version: last + 1,
            };
            let mut row = RulesRow {
                version: policy.version,
                at: policy.at,
                by: policy.by.clone(),
                ledger_index: 0,
                media: media.to_owned(),
                document,
            };
            let subject = Some((SUBJECT, Hash::of(&[&row.document])));
            let predicate = Predicate::Policy(policy);
            let entry = ledger::enter(
                &mut tx,
                &mut tenant,
                (&recorder.vault, &keys),
                &predicate,
                subject,
            )
            .await?;
            row.ledger_index = entry.index;
            store::redaction::insert(&mut tx, &caller.tenant, &row).await?;
            // A crash before this line leaves the rules as they were, and the ledger too; after it both are changed.
            commit(tx).await?;
            if let Some(rules) = &recorder.redaction {
                rules.forget(&caller.tenant);
            }
            Ok(recorder.standing(Some(row), true))
        })
        .await
    }

    /// The rules with a document that is not the tenant's yet: its version is 0. Also where the server does not
    /// redact, so that a document can be tried.
    ///
    /// # Errors
    /// [`RecordError::BadRules`]: it cannot be used, and why.
    pub(super) fn compile_own(
        &self,
        media: &str,
        document: &[u8],
    ) -> Result<Arc<RuleSet>, RecordError> {
        let document = read(media, document).map_err(RecordError::BadRules)?;
        document.check_tenant().map_err(RecordError::BadRules)?;
        let set = match &self.redaction {
            Some(rules) => rules.with(&document, 0),
            None => offload(COMPILING, || RuleSet::composed(None, Some((&document, 0)))),
        };
        Ok(Arc::new(set.map_err(RecordError::BadRules)?))
    }
}

/// The media type of a document, if it is one of the two.
pub(crate) fn document_media(media: &str) -> Option<&'static str> {
    let media = media.split(';').next().unwrap_or_default().trim();
    [TOML, JSON]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(media))
}

fn read(media: &str, document: &[u8]) -> Result<Document, RuleError> {
    if media == JSON {
        return Document::json(document);
    }
    let text = std::str::from_utf8(document)
        .map_err(|_| RuleError::Malformed("it is not UTF-8".to_owned()))?;
    Document::toml(text)
}
