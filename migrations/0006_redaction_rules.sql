-- What tenants add to the rules of redaction: documents, all versions of them.
create table redaction_rules (
  tenant text collate "C" not null references tenants,
  version bigint not null check (version > 0),
  at timestamptz not null,
  actor_type text not null,
  actor_id text not null,
  ledger_index bigint not null,
  media text not null check (media in ('application/json', 'application/toml')),
  document bytea not null check (octet_length(document) <= 65536),
  primary key (tenant, version)
);
comment on table redaction_rules is 'Rules of redaction that a tenant adds to the server''s; the last version holds. Append-only.';
comment on column redaction_rules.tenant is 'Whose rules.';
comment on column redaction_rules.version is 'From 1, dense; stands beside each redaction, as in builtin/1+t/3. Written by the change.';
comment on column redaction_rules.at is 'Time of the ledger''s entry; written by the change.';
comment on column redaction_rules.actor_type is 'Type of who changed it; written by the change.';
comment on column redaction_rules.actor_id is 'Id of who changed it; written by the change.';
comment on column redaction_rules.ledger_index is 'Index of the policy statement whose subject is the document; written by the change.';
comment on column redaction_rules.media is 'How the document is written; written by the change.';
comment on column redaction_rules.document is 'The document exactly as it was sent and signed; written by the change.';

create trigger redaction_rules_append_only before update or delete on redaction_rules for each row execute function refuse_change();
create trigger redaction_rules_no_truncate before truncate on redaction_rules for each statement execute function refuse_change();

alter table redaction_rules enable row level security;
create policy of_tenant on redaction_rules
  using (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false))
  with check (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false));
grant select, insert on redaction_rules to onrecord_app;
