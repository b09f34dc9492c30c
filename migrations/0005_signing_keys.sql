-- Keys that sign statements and frames: which there are, and which of them a tenant signs with. Only public halves
-- are here; the secrets of seal keys lie in the keys folder, those of agents with the agents.

create table signing_keys (
  tenant text collate "C" not null references tenants,
  keyid bytea not null,
  role text not null,
  actor text collate "C",
  spki text not null,
  added_index bigint not null,
  revoked_index bigint,
  primary key (tenant, keyid),
  check (role in ('seal', 'agent') and (role = 'agent') = (actor is not null))
);
comment on table signing_keys is 'Public halves of all keys that ever signed for a tenant: its seal keys, and those of its agents. Rows are kept for ever.';
comment on column signing_keys.tenant is 'Whose key; written with the key statement in the ledger.';
comment on column signing_keys.keyid is 'SHA-256 of the SPKI DER; written with the key statement.';
comment on column signing_keys.role is 'seal or agent; written with the key statement.';
comment on column signing_keys.actor is 'The agent that signs with it, null for a seal key; written with the key statement.';
comment on column signing_keys.spki is 'SPKI DER in base64, as it stands in the key statement and in trust files.';
comment on column signing_keys.added_index is 'Ledger index of the statement that added it.';
comment on column signing_keys.revoked_index is 'Ledger index of the statement that revoked it, null while it counts; written once, by the revocation.';
create index signing_keys_added on signing_keys (tenant, added_index);

-- Until now each tenant had one seal key, and its ledger says which.
insert into signing_keys (tenant, keyid, role, spki, added_index)
  select tenant, decode(predicate ->> 'keyid', 'hex'), 'seal', predicate ->> 'spki', idx
  from (
    select tenant, idx, convert_from(decode(convert_from(bytes, 'UTF8')::json ->> 'payload', 'base64'), 'UTF8')::json -> 'predicate' as predicate
    from ledger_entries where name = 'key'
  ) as said
  where predicate ->> 'role' = 'seal' and predicate ->> 'action' = 'added';

alter table tenants add column seal_key bytea;
update tenants set seal_key = keyid from signing_keys where signing_keys.tenant = tenants.tenant;
alter table tenants alter column seal_key set not null;
comment on column tenants.seal_key is 'Key id of the seal key in force, which signs all statements; read under the lock of the row, written by rotations.';

create function only_revoked() returns trigger language plpgsql as $$
begin
  if old.revoked_index is not null or new.revoked_index is null
    or (new.tenant, new.keyid, new.role, new.actor, new.spki, new.added_index)
      is distinct from (old.tenant, old.keyid, old.role, old.actor, old.spki, old.added_index) then
    raise exception 'onrecord: a key of % is revoked once, and nothing else of it changes', tg_table_name
      using errcode = 'insufficient_privilege';
  end if;
  return new;
end
$$;
comment on function only_revoked() is 'Trigger of signing_keys: the one change of a row is its revocation.';
create trigger signing_keys_revoked_once before update on signing_keys for each row execute function only_revoked();
create trigger signing_keys_kept before delete on signing_keys for each row execute function refuse_change();
create trigger signing_keys_no_truncate before truncate on signing_keys for each statement execute function refuse_change();

alter table signing_keys enable row level security;
create policy of_tenant on signing_keys
  using (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false)
    or coalesce(tenant = any ((select current_tenants())::text[]), false))
  with check (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false)
    or coalesce(tenant = any ((select current_tenants())::text[]), false));

grant select, insert on signing_keys to onrecord_app;
grant update (revoked_index) on signing_keys to onrecord_app;
grant update (seal_key) on tenants to onrecord_app;

-- ---------------------------------------------------------------------------------------------
comment on table payloads is 'Payloads, encrypted. A row that is gone is erased (with a certificate) or missing. Where the agent kept the payload, wrapped_dek and ciphertext are empty: the row keeps its commitment from being used twice in the run.';
