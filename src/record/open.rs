//! Opening: tenants, and runs with their session frames.

use super::append::Appended;
use super::intake::{FrameRequest, LinkRequest};
use super::place::{STORE_ID, place, retried};
use super::prepare::{Prepared, Sameness, fingerprint, redact};
use super::{RecordError, Recorder, commit, signed};
use crate::access::{self, Caller, NewToken, TokenRequest};
use crate::ledger;
use crate::store;
use crate::store::frames::NewFrame;
use crate::store::signing_keys::Holder;
use crate::vault;
use onrecord_core::chain::Chain;
use onrecord_core::digest::Hash;
use onrecord_core::frame::{Draft, Link, SUITE};
use onrecord_core::id::{Origin, TenantId};
use onrecord_core::json;
use onrecord_core::limits;
use onrecord_core::statement::{Key, KeyAction, KeyRole, Predicate, State};
use onrecord_core::timestamp::Timestamp;

/// Members of a session's body that the store writes.
const STORE_MEMBERS: [&str; 4] = ["ledger", "nonce", "run_no", "suite"];

impl Recorder {
    /// Makes a tenant: its keys, its ledger with their statements, and its owner's token.
    ///
    /// A crash after the keys leaves files that no tenant uses; a crash after the commit leaves a tenant
    /// whose first token nobody saw, and another one can be made.
    pub async fn create_tenant(
        &self,
        host: &str,
        name: &str,
    ) -> Result<(TenantId, NewToken), RecordError> {
        self.create_tenant_at(host, name, None).await
    }

    /// The same with a ledger that begins at a time of before, for evidence that is made up; `None` is now.
    pub(crate) async fn create_tenant_at(
        &self,
        host: &str,
        name: &str,
        at: Option<Timestamp>,
    ) -> Result<(TenantId, NewToken), RecordError> {
        let malformed = || {
            access::AccessError::Malformed(
                "the public host cannot stand in a ledger's origin".to_owned(),
            )
        };
        let tenant: TenantId = format!("t_{}", vault::new_name(16)?)
            .parse()
            .map_err(|_| malformed())?;
        let origin: Origin = format!("{host}/t/{}", vault::new_name(12)?)
            .parse()
            .map_err(|_| malformed())?;
        let keys = self.vault.create_tenant(&tenant, &origin).await?;
        let seal = self.vault.new_seal_key(&tenant).await?;
        let mut tx = self.store.begin(&tenant).await?;
        store::tenants::insert(&mut tx, &tenant, &origin, name, &seal.keyid).await?;
        let mut locked = store::tenants::lock(&mut tx, &tenant).await?;
        locked.now = at.unwrap_or(locked.now);
        self.add_key(&mut tx, &mut locked, &seal, Holder::Seal)
            .await?;
        let public = keys.ledger().public();
        let key = Predicate::Key(Key {
            action: KeyAction::Added,
            at: ledger::next_time(&locked)?,
            keyid: public.keyid,
            reason: None,
            role: KeyRole::Ledger,
            spki: public.spki.clone(),
        });
        ledger::append(&mut tx, &mut locked, &self.vault, &key, None).await?;
        ledger::checkpoint(&mut tx, &locked, &keys).await?;
        let token = access::create(&mut tx, &tenant, &TokenRequest::owner()).await?;
        commit(tx).await?;
        Ok((tenant, token))
    }

    /// Opens a run: its keys, and then its session frame, its number and its ledger entry, in one transaction. A retry with
    /// the same key finds the run that it opened.
    pub async fn open(
        &self,
        caller: Caller,
        request: FrameRequest,
    ) -> Result<Appended, RecordError> {
        let recorder = self.clone();
        self.detached(async move { recorder.open_now(&caller, request).await })
            .await
    }

    async fn open_now(
        &self,
        caller: &Caller,
        mut request: FrameRequest,
    ) -> Result<Appended, RecordError> {
        let actor = caller.speak(request.actor.take(), request.kind)?;
        request.actor = Some(actor.clone());
        signed::check_form(&request, &actor)?;
        let sent = request.body.clone();
        let agent = SessionBody::read(&sent)?.agent;
        let links = links_of(&request)?;
        let key = request.key.clone();
        let fingerprint = fingerprint(&request);
        let rules = self.rules(&caller.tenant).await?;
        redact(rules.as_deref(), &mut request)?;
        if let Some(opened) = self
            .opened_before(&caller.tenant, key.as_deref(), &fingerprint)
            .await?
        {
            return Ok(opened);
        }
        // What is slow goes before the tenant's lock. A crash leaves keys that no run uses.
        let now = self.store.now().await?;
        let run = vault::new_run_id(u64::try_from(now.micros() / 1_000).unwrap_or(0))?;
        let run_keys = self.new_run_keys(&caller.tenant, &run).await?;
        let prepared = Prepared::new(
            request,
            actor,
            fingerprint.clone(),
            None,
            &run_keys,
            (rules.as_deref(), &*self.classes(&caller.tenant).await?),
        )?;
        let opening = Opening {
            empty: Chain::new(caller.tenant.clone(), run),
            began: now,
            sent,
            key: key.clone(),
            agent,
            links,
            prepared,
        };
        match self.join(&caller.tenant, opening).await? {
            Some((receipt, chain)) => {
                self.sequencer.remember(chain);
                Ok(Appended::new(receipt, None))
            }
            // Somebody was faster with the same key.
            None => {
                let opened = self
                    .opened_before(&caller.tenant, key.as_deref(), &fingerprint)
                    .await?;
                opened
                    .ok_or_else(|| store::contradiction("runs", "open_key", &caller.tenant).into())
            }
        }
    }

    /// The run that a key opened before, if the request is the same.
    async fn opened_before(
        &self,
        tenant: &TenantId,
        key: Option<&str>,
        fingerprint: &[u8],
    ) -> Result<Option<Appended>, RecordError> {
        let Some(key) = key else { return Ok(None) };
        let mut tx = self.store.snapshot(tenant).await?;
        let found = store::runs::opened_with(&mut tx, tenant, &[key]).await?;
        let Some(run) = found.get(key) else {
            tx.commit().await.map_err(store::StoreError::from)?;
            return Ok(None);
        };
        let run_keys = self.read_run_keys(tenant, run).await?;
        let sameness = Sameness {
            key,
            result_key: None,
            fingerprint,
        };
        let retried = retried(&mut tx, run, &run_keys, sameness).await?;
        tx.commit().await.map_err(store::StoreError::from)?;
        let missing = || store::contradiction("frames", "key", run);
        Ok(Some(retried.ok_or_else(missing)?))
    }
}

/// A run that is to be opened: all of it but its number and its time.
pub(super) struct Opening {
    /// The chain of its id, without a frame.
    pub(super) empty: Chain,
    /// When its id was made.
    began: Timestamp,
    /// The body of the session frame as it was sent.
    sent: Vec<u8>,
    pub(super) key: Option<String>,
    pub(super) agent: Option<String>,
    links: Vec<Link>,
    pub(super) prepared: Prepared,
}

impl Opening {
    /// Frame 0 on a chain of its own, as a run of this number and time.
    ///
    /// # Errors
    /// The frame is too large, or breaks a rule of its place; [`RecordError::Busy`]: it waited for so long that nobody
    /// would find the run by its time.
    pub(super) fn place(
        &self,
        run_no: u64,
        origin: &Origin,
        (policy, at): (Option<u64>, Timestamp),
    ) -> Result<(Chain, NewFrame), RecordError> {
        if at.micros() - self.began.micros() > store::search::OPENING_MICROS {
            return Err(RecordError::Busy);
        }
        let mut chain = self.empty.clone();
        let session_key = || format!("{STORE_ID}/session");
        let draft = Draft {
            body: session_body(&self.sent, run_no, origin, policy)?,
            key: self.key.clone().unwrap_or_else(session_key),
            ..self.prepared.draft(&self.links)
        };
        let frame = place(&mut chain, &draft, at, Some(self.prepared.mac))?;
        Ok((chain, frame))
    }
}

/// What a chain says of itself in a statement.
pub(crate) fn state_of(chain: &Chain) -> State {
    State {
        head: chain.head(),
        root: chain.root(),
        run: chain.run().clone(),
        size: chain.size(),
    }
}

/// The links of a session frame: nothing of its own run is before it.
fn links_of(request: &FrameRequest) -> Result<Vec<Link>, RecordError> {
    let links = request.links.iter().enumerate();
    links
        .map(|(index, link)| match link {
            LinkRequest::Exact(link) if link.seq.is_none() => Ok(link.clone()),
            _ => Err(RecordError::NoLink {
                pointer: format!("/links/{index}"),
                wanted: "before the first".to_owned(),
            }),
        })
        .collect()
}

/// The body of a session frame with the store's own members, from what was sent. `policy` is the version of the tenant's
/// retention policy that holds now, which stands there where the writer says nothing of it. Which of its schedules the run
/// gets hangs on what becomes of the run.
///
/// # Errors
/// It is no object, or has members that the store writes itself.
pub(crate) fn session_body(
    sent: &[u8],
    run_no: u64,
    ledger: &Origin,
    policy: Option<u64>,
) -> Result<Vec<u8>, RecordError> {
    SessionBody::read(sent)?.complete(run_no, ledger, policy)
}

/// The body of a session frame as it was sent.
struct SessionBody<'a> {
    members: Vec<json::Member<'a>>,
    agent: Option<String>,
}

impl<'a> SessionBody<'a> {
    fn read(body: &'a [u8]) -> Result<Self, RecordError> {
        use super::intake::{IntakeCode, IntakeError};
        let refused = |name: &str, code, detail: &str| IntakeError {
            code,
            pointer: format!("/session/{name}"),
            detail: detail.to_owned(),
        };
        let members = json::members(body, json::Limits::FRAME)
            .map_err(|error| refused("", IntakeCode::Json(error.reason), &error.to_string()))?;
        if let Some(member) = members
            .iter()
            .find(|member| STORE_MEMBERS.contains(&member.name.as_str()))
        {
            return Err(refused(
                &member.name,
                IntakeCode::Reserved,
                "the store writes this member itself; leave it out",
            )
            .into());
        }
        let agent = members
            .iter()
            .find(|member| member.name == "agent")
            .and_then(|member| json::string(member.raw).ok());
        // A list is filtered by it, so that it has to fit an index and a terminal.
        if agent
            .as_ref()
            .is_some_and(|agent| agent.chars().count() > limits::ACTOR_CHARS)
        {
            return Err(refused("agent", IntakeCode::Shape, "at most 200 characters").into());
        }
        // PostgreSQL's text has no U+0000; the frame keeps it, the list does without.
        Ok(Self {
            members,
            agent: agent.filter(|agent| !agent.contains('\0')),
        })
    }

    /// The body with the store's own members, canonical.
    fn complete(
        &self,
        run_no: u64,
        ledger: &Origin,
        policy: Option<u64>,
    ) -> Result<Vec<u8>, RecordError> {
        let nonce: Hash = vault::new_nonce()?;
        let mut own = vec![
            ("ledger", format!("\"{ledger}\"")),
            ("nonce", format!("\"{nonce}\"")),
            ("run_no", run_no.to_string()),
            ("suite", format!("\"{SUITE}\"")),
        ];
        if !self.members.iter().any(|member| member.name == "retention") {
            // As the ledger's statement about the policy names it.
            let retention = match policy {
                Some(version) => format!(r#"{{"policy":"retention","version":{version}}}"#),
                None => r#"{"policy":"none"}"#.to_owned(),
            };
            own.push(("retention", retention));
        }
        let mut text = vec![b'{'];
        for member in &self.members {
            json::write_string(&mut text, &member.name);
            text.push(b':');
            text.extend_from_slice(member.raw);
            text.push(b',');
        }
        let own: Vec<String> = own
            .into_iter()
            .map(|(name, value)| format!("\"{name}\":{value}"))
            .collect();
        text.extend_from_slice(own.join(",").as_bytes());
        text.push(b'}');
        let limits = json::Limits {
            bytes: 2 * limits::FRAME_BYTES,
            ..json::Limits::FRAME
        };
        json::canonicalize(&text, limits)
            .map_err(|_| RecordError::FrameTooLarge { bytes: text.len() })
    }
}
