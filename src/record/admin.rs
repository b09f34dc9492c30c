//! Administration: tokens of a tenant, and new tenants.

use super::{RecordError, Recorder};
use crate::access::{self, AccessError, Caller, NewToken, TokenRequest};
use crate::store::StoreError;
pub(crate) use crate::store::tokens::TokenRow;
use onrecord_core::id::TenantId;

impl Recorder {
    /// Makes a token of a tenant.
    pub(crate) async fn create_token(
        &self,
        tenant: TenantId,
        request: TokenRequest,
    ) -> Result<NewToken, RecordError> {
        self.refuse_secret("/name", &request.name)?;
        self.refuse_secret("/actor/id", request.actor_id.as_deref().unwrap_or_default())?;
        let recorder = self.clone();
        self.detached(async move {
            let mut tx = recorder.store.begin(&tenant).await?;
            let token = access::create(&mut tx, &tenant, &request).await?;
            tx.commit().await.map_err(StoreError::from)?;
            Ok(token)
        })
        .await
    }

    /// The tokens of a tenant.
    pub(crate) async fn tokens(&self, tenant: TenantId) -> Result<Vec<TokenRow>, RecordError> {
        let recorder = self.clone();
        self.detached(async move { Ok(recorder.store.tokens(&tenant).await?) })
            .await
    }

    /// Revokes a token; false where the tenant has none of that id.
    pub(crate) async fn revoke_token(
        &self,
        tenant: TenantId,
        id: String,
    ) -> Result<bool, RecordError> {
        let recorder = self.clone();
        self.detached(async move {
            let revoked = recorder.store.revoke_token(&tenant, &id).await?;
            recorder.tokens.forget(&id);
            Ok(revoked)
        })
        .await
    }

    /// Makes a tenant on behalf of an administrator of the server's first one.
    pub(crate) async fn add_tenant(
        &self,
        caller: Caller,
        host: String,
        name: String,
    ) -> Result<(TenantId, NewToken), RecordError> {
        self.refuse_secret("/name", &name)?;
        let recorder = self.clone();
        self.detached(async move {
            if recorder.store.first_tenant().await?.as_ref() != Some(&caller.tenant) {
                return Err(
                    AccessError::Role("admin of the server's first tenant".to_owned()).into(),
                );
            }
            recorder.create_tenant(&host, &name).await
        })
        .await
    }
}
