-- Erasure: keys of runs are renewed, payloads say which version of a key wraps theirs, and what is being erased is on
-- record until nothing of it is left.

-- The role that erases. Nobody else may change or remove a payload; it may do nothing to a frame, nor to the ledger but add.
do $$
begin
  if not exists (select from pg_roles where rolname = 'onrecord_eraser') then
    create role onrecord_eraser nologin;
  end if;
exception
  when duplicate_object or unique_violation then null;
  when insufficient_privilege then
    raise exception 'onrecord: there is no role onrecord_eraser, and % may not make it; as a superuser: create role onrecord_eraser nologin in role onrecord_app; grant onrecord_eraser to the role that the server logs in as', current_user
      using errcode = 'insufficient_privilege';
end
$$;

do $$
begin
  execute format('grant onrecord_eraser to %I', current_user);
exception
  when insufficient_privilege or invalid_grant_operation then null;
end
$$;

do $$
begin
  grant onrecord_app to onrecord_eraser;
exception
  when insufficient_privilege then
    -- Whoever may not grant roles to each other has been given both by who may.
    if not pg_has_role('onrecord_eraser', 'onrecord_app', 'usage') then
      raise;
    end if;
end
$$;

alter table runs add column key_version smallint not null default 0;
alter table runs add column erased bigint not null default 0;
comment on column runs.key_version is 'Newest version of the run''s keys, with which an append of payloads has to be wrapped; written by erasures.';
comment on column runs.erased is 'Payloads that were erased; written by erasures, and sealed with the run.';

alter table payloads add column key_version smallint not null default 0;
alter table payloads add column subjects bytea;
comment on column payloads.key_version is 'Version of the key of run and tier that wraps its own; written with the frame and by erasures.';
comment on column payloads.subjects is 'Keyed fingerprints of the subjects that its writer named, 16 bytes each; null for none. Written with the frame.';
comment on column payloads.wrapped_dek is 'Its key under the key of run and tier; empty once it is destroyed. Written with the frame and by erasures.';

create function subject_list(subjects bytea) returns bytea[] language sql immutable strict parallel safe as $$
  select array_agg(substr(subjects, place, 16)) from generate_series(1, length(subjects), 16) as place
$$;
comment on function subject_list(bytea) is 'The fingerprints of payloads.subjects, one by one.';
create index payloads_subjects on payloads using gin (subject_list(subjects)) where subjects is not null;
create index ledger_entries_holds on ledger_entries (tenant, idx) where name = 'hold';

-- ---------------------------------------------------------------------------------------------
create table erasures (
  id text collate "C" primary key,
  tenant text collate "C" not null references tenants,
  key text collate "C",
  scope text not null check (scope in ('payloads', 'subject', 'tier', 'tenant')),
  run uuid,
  tier smallint,
  commits bytea[],
  subject bytea,
  policy text not null,
  reason text not null,
  by_type text not null,
  by_id text not null,
  requested_at timestamptz not null,
  keys_destroyed_at timestamptz,
  removed_at timestamptz,
  final_at timestamptz,
  held text,
  unique (tenant, key)
);
comment on table erasures is 'What is to be erased, and how far that is. What was erased stands on the ledger.';
comment on column erasures.id is 'ULID; written by the request.';
comment on column erasures.tenant is 'Whose; written by the request.';
comment on column erasures.key is 'The key by which a retry of the request finds it; null where it gave none.';
comment on column erasures.scope is 'What of: single payloads of a run, all of a subject, a tier of a run, all of the tenant; written by the request.';
comment on column erasures.run is 'The run, for payloads and tier; written by the request.';
comment on column erasures.tier is 'The tier, for tier; written by the request.';
comment on column erasures.commits is 'The commitments, for payloads; written by the request.';
comment on column erasures.subject is 'Keyed fingerprint of the subject, for subject; written by the request.';
comment on column erasures.policy is 'Under which policy; written by the request.';
comment on column erasures.reason is 'Why; written by the request.';
comment on column erasures.by_type is 'Who asked: type of the actor; written by the request.';
comment on column erasures.by_id is 'Who asked: id of the actor; written by the request.';
comment on column erasures.requested_at is 'Written by the request.';
comment on column erasures.keys_destroyed_at is 'When no key was left in the database that opens any of it.';
comment on column erasures.removed_at is 'When the last ciphertext was removed.';
comment on column erasures.final_at is 'When every epoch that had wrapped a key of it was destroyed, so that no copy of the database opens any of it.';
comment on column erasures.held is 'Matter of the hold that it waits for; null where none is in its way.';
create index erasures_open on erasures (tenant, id) where final_at is null;

create table erasure_parts (
  run uuid not null,
  tier smallint not null,
  key_version smallint,
  epoch integer,
  count bigint not null default 0,
  erasure text collate "C" not null references erasures,
  tenant text collate "C" not null,
  entries bigint[] not null default '{}',
  certified boolean not null default false,
  keys_destroyed boolean not null default false,
  removed boolean not null default false,
  primary key (erasure, run, tier)
);
comment on table erasure_parts is 'An erasure''s work in one tier of one run.';
comment on column erasure_parts.run is 'The run; written by the request.';
comment on column erasure_parts.tier is 'The tier; written by the request.';
comment on column erasure_parts.key_version is 'The version that the tier''s key was renewed to; null before.';
comment on column erasure_parts.epoch is 'Newest epoch that had wrapped a key of it; null before it was destroyed.';
comment on column erasure_parts.count is 'Payloads that were erased.';
comment on column erasure_parts.erasure is 'The erasure; written by the request.';
comment on column erasure_parts.tenant is 'Whose; written by the request.';
comment on column erasure_parts.entries is 'Indexes of the ledger''s entries that certify it.';
comment on column erasure_parts.certified is 'Whether all of it is certified on the ledger.';
comment on column erasure_parts.keys_destroyed is 'Whether no key is left that opens any of it.';
comment on column erasure_parts.removed is 'Whether the last ciphertext is removed.';

do $$
declare
  name text;
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)';
begin
  foreach name in array array['erasures', 'erasure_parts'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I using (%s) with check (%s)', name, scope, scope);
    execute format('create trigger %I before delete on %I for each row execute function refuse_change()', name || '_kept', name);
    execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', name || '_no_truncate', name);
  end loop;
end
$$;

grant select, insert on erasures, erasure_parts to onrecord_app;
grant update (keys_destroyed_at, removed_at, final_at, held) on erasures to onrecord_app;
grant update (key_version, epoch, count, entries, certified, keys_destroyed, removed) on erasure_parts to onrecord_app;
grant update (key_version, erased) on runs to onrecord_eraser;
grant delete on payloads to onrecord_eraser;
grant update (wrapped_dek, key_version) on payloads to onrecord_eraser;
