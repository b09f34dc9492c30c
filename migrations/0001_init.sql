-- The first shape of the database. Migrations go forward only; an applied one is never edited.
--
-- `onrecord_app` is the role that the server works as. It owns nothing, so neither the append-only
-- triggers nor row security can be got round by it, and it may neither update nor delete evidence.

do $$
begin
  -- Asked for first: whoever may not make roles may still own a database in which the role is there.
  if not exists (select from pg_roles where rolname = 'onrecord_app') then
    create role onrecord_app nologin;
  end if;
exception
  -- Roles belong to the whole cluster: another database that migrates at this moment made it.
  when duplicate_object or unique_violation then null;
end
$$;

do $$
begin
  execute format('grant onrecord_app to %I', current_user);
exception
  -- A superuser needs no grant, and whoever may not give it has been given it by who may.
  when insufficient_privilege or invalid_grant_operation then null;
end
$$;

create function refuse_change() returns trigger language plpgsql as $$
begin
  raise exception 'onrecord: % is append-only, % refused', tg_table_name, tg_op
    using errcode = 'insufficient_privilege';
end
$$;
comment on function refuse_change() is 'Trigger of append-only tables: refuses UPDATE, DELETE and TRUNCATE.';

create function current_tenant() returns text language sql stable as $$
  select current_setting('onrecord.tenant', true)
$$;
comment on function current_tenant() is 'The tenant of this transaction, set by the server from the token; row security compares with it.';

-- ---------------------------------------------------------------------------------------------
create table tenants (
  tenant text collate "C" primary key,
  origin text not null unique,
  name text not null,
  created_at timestamptz not null default clock_timestamp(),
  next_run_no bigint not null default 1,
  ledger_size bigint not null default 0,
  ledger_nodes bytea not null default '',
  ledger_at timestamptz not null default '-infinity',
  last_seal_run text collate "C",
  last_seal_leaf bytea
);
comment on table tenants is 'One row a tenant; its lock orders openings, seals and all other ledger entries of the tenant.';
comment on column tenants.tenant is 'Opaque id; written at creation.';
comment on column tenants.origin is 'Origin of the tenant''s ledger; written at creation.';
comment on column tenants.name is 'What people call it; never in evidence. Written at creation.';
comment on column tenants.created_at is 'Written at creation.';
comment on column tenants.next_run_no is 'Number of the next run; written by openings.';
comment on column tenants.ledger_size is 'Entries of the ledger; written with each entry.';
comment on column tenants.ledger_nodes is 'Frontier of the ledger''s tree, 32 bytes a node, largest subtree first; written with each entry.';
comment on column tenants.ledger_at is 'Time of the last entry, below which none may be; written with each entry.';
comment on column tenants.last_seal_run is 'Run of the last seal; written by seals.';
comment on column tenants.last_seal_leaf is 'Leaf hash of the last seal; written by seals.';

-- ---------------------------------------------------------------------------------------------
create table tokens (
  id text collate "C" primary key,
  tenant text collate "C" not null references tenants,
  name text not null,
  secret_hash bytea not null,
  roles text[] not null,
  actor_type text,
  actor_id text,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz
);
comment on table tokens is 'API tokens. No row security: a token is looked up before the tenant is known.';
comment on column tokens.id is 'Public part of the token.';
comment on column tokens.tenant is 'The only tenant that it opens.';
comment on column tokens.name is 'What people call it.';
comment on column tokens.secret_hash is 'SHA-256 of the secret part; the secret has 256 random bits, so a plain hash cannot be guessed.';
comment on column tokens.roles is 'agent, gate, auditor, compliance, admin.';
comment on column tokens.actor_type is 'Type of the actor it may speak for; null for any that its roles allow.';
comment on column tokens.actor_id is 'Id of the actor it may speak for; null for any.';
comment on column tokens.created_at is 'Written at creation.';
comment on column tokens.expires_at is 'From when it opens nothing; null for never.';
comment on column tokens.revoked_at is 'Since when it opens nothing; written by a revocation.';
create index tokens_tenant on tokens (tenant, id);

-- ---------------------------------------------------------------------------------------------
create table runs (
  run text collate "C" primary key,
  tenant text collate "C" not null references tenants,
  run_no bigint not null,
  open_key text collate "C",
  agent text,
  opened_at timestamptz not null,
  open_index bigint not null,
  size bigint not null,
  head bytea not null,
  last_at timestamptz not null,
  chain bytea not null,
  outcome text,
  ended boolean not null default false,
  sealed_at timestamptz,
  seal_index bigint,
  seal_proof text,
  unique (tenant, run_no),
  unique (tenant, open_key)
);
comment on table runs is 'One row a run: its head. All of it but the lock follows from the frames and the ledger.';
comment on column runs.run is 'ULID; written at opening.';
comment on column runs.tenant is 'Written at opening.';
comment on column runs.run_no is 'Dense in the tenant; written at opening.';
comment on column runs.open_key is 'The writer''s key of the opening, by which a retry finds the run; null where it gave none.';
comment on column runs.agent is 'session.body.agent, for lists; written at opening.';
comment on column runs.opened_at is 'Time of frame 0; written at opening.';
comment on column runs.open_index is 'Ledger index of the opening; written at opening.';
comment on column runs.size is 'Frames; written with each append.';
comment on column runs.head is 'Hash of the last frame; written with each append.';
comment on column runs.last_at is 'Time of the last frame; written with each append.';
comment on column runs.chain is 'State of the chain after the last frame, so that an append and a seal cost the same at any length; written with each append, checked against head when read.';
comment on column runs.outcome is 'Status of the last outcome frame, for lists; written with each append.';
comment on column runs.ended is 'Whether session_end was written; written with each append.';
comment on column runs.sealed_at is 'Time of the seal; written by the seal.';
comment on column runs.seal_index is 'Ledger index of the seal; written by the seal.';
comment on column runs.seal_proof is 'Its .tlog-proof, made once; written by the seal.';
create index runs_open on runs (tenant, last_at) where sealed_at is null;

-- ---------------------------------------------------------------------------------------------
create table frames (
  run text collate "C" not null references runs,
  seq bigint not null,
  tenant text collate "C" not null,
  kind text not null,
  turn bigint,
  key text collate "C" not null,
  at timestamptz not null,
  hash bytea not null,
  answers bigint,
  request_mac bytea,
  bytes bytea not null,
  primary key (run, seq)
);
comment on table frames is 'The evidence. Append-only: no update, no delete, no truncate.';
comment on column frames.run is 'Derived from bytes.';
comment on column frames.seq is 'Derived from bytes.';
comment on column frames.tenant is 'Derived from bytes.';
comment on column frames.kind is 'Derived from bytes.';
comment on column frames.turn is 'Derived from bytes.';
comment on column frames.key is 'Derived from bytes.';
comment on column frames.at is 'Derived from bytes.';
comment on column frames.hash is 'SHA-256(0x00 || bytes).';
comment on column frames.answers is 'Derived from bytes: the first in-run frame that it is linked to with answers.';
comment on column frames.request_mac is 'HMAC of the request, under a key that goes with the payloads'' keys; null for frames that the store writes itself.';
comment on column frames.bytes is 'The canonical bytes, exactly as hashed, served and exported.';
create unique index frames_key on frames (run, key);
create index frames_answers on frames (run, answers) where answers is not null;

create trigger frames_append_only before update or delete on frames for each row execute function refuse_change();
create trigger frames_no_truncate before truncate on frames for each statement execute function refuse_change();

-- ---------------------------------------------------------------------------------------------
create table payloads (
  run text collate "C" not null references runs,
  commit bytea not null,
  tenant text collate "C" not null,
  seq bigint not null,
  place smallint not null,
  media text not null,
  tier smallint not null,
  size bigint not null,
  wrapped_dek bytea not null,
  ciphertext bytea not null,
  primary key (run, commit)
);
comment on table payloads is 'Payloads, encrypted. A row that is gone is erased (with a certificate) or missing.';
comment on column payloads.run is 'Written with the frame.';
comment on column payloads.commit is 'The commitment; written with the frame.';
comment on column payloads.tenant is 'Written with the frame.';
comment on column payloads.seq is 'The frame that commits to it; written with the frame.';
comment on column payloads.place is 'Place in the frame''s payloads, from 0; written with the frame.';
comment on column payloads.media is 'Part of what the ciphertext is bound to; written with the frame.';
comment on column payloads.tier is 'Retention tier, 0 to 3; written with the frame.';
comment on column payloads.size is 'Length after padding; written with the frame.';
comment on column payloads.wrapped_dek is 'Its key under the key of run and tier; written with the frame.';
comment on column payloads.ciphertext is 'size + 16 bytes; written with the frame.';
alter table payloads alter column ciphertext set storage external;
create index payloads_frame on payloads (run, seq, place);

create table run_keys (
  run text collate "C" not null references runs,
  tier smallint not null,
  tenant text collate "C" not null,
  epoch integer not null,
  wrapped bytea not null,
  primary key (run, tier)
);
comment on table run_keys is 'One key a run and tier, wrapped by an epoch key that is never in this database.';
comment on column run_keys.run is 'Written at opening.';
comment on column run_keys.tier is 'Written at opening.';
comment on column run_keys.tenant is 'Written at opening.';
comment on column run_keys.epoch is 'The epoch whose key wraps it; written at opening.';
comment on column run_keys.wrapped is 'The wrapped key; written at opening.';

-- ---------------------------------------------------------------------------------------------
create table ledger_entries (
  tenant text collate "C" not null references tenants,
  idx bigint not null,
  name text not null,
  run text collate "C",
  at timestamptz not null,
  leaf bytea not null,
  bytes bytea not null,
  primary key (tenant, idx)
);
comment on table ledger_entries is 'The ledger of a tenant: signed statements. Append-only.';
comment on column ledger_entries.tenant is 'Whose ledger.';
comment on column ledger_entries.idx is 'Index of the entry, from 0, dense.';
comment on column ledger_entries.name is 'Derived from bytes: NAME of the predicate.';
comment on column ledger_entries.run is 'Derived from bytes: the run that it is about.';
comment on column ledger_entries.at is 'Derived from bytes.';
comment on column ledger_entries.leaf is 'SHA-256(0x00 || bytes).';
comment on column ledger_entries.bytes is 'The envelope, exactly as signed, hashed and served.';
create index ledger_entries_run on ledger_entries (tenant, run, idx);

create table ledger_nodes (
  tenant text collate "C" not null references tenants,
  level smallint not null,
  idx bigint not null,
  hash bytea not null,
  primary key (tenant, level, idx)
);
comment on table ledger_nodes is 'Hashes of the complete subtrees of a ledger, for proofs and tiles. Append-only.';
comment on column ledger_nodes.tenant is 'Whose ledger.';
comment on column ledger_nodes.level is 'Height of the subtree: 0 for leaves.';
comment on column ledger_nodes.idx is 'Number of the subtree at its level, from 0.';
comment on column ledger_nodes.hash is 'Its RFC 9162 hash.';

create table checkpoints (
  tenant text collate "C" not null references tenants,
  size bigint not null,
  note text not null,
  primary key (tenant, size)
);
comment on table checkpoints is 'Signed checkpoints of a ledger, one for each size that was ever current. Append-only.';
comment on column checkpoints.tenant is 'Whose ledger.';
comment on column checkpoints.size is 'Size of the ledger.';
comment on column checkpoints.note is 'C2SP signed note.';

create trigger ledger_entries_append_only before update or delete on ledger_entries for each row execute function refuse_change();
create trigger ledger_entries_no_truncate before truncate on ledger_entries for each statement execute function refuse_change();
create trigger ledger_nodes_append_only before update or delete on ledger_nodes for each row execute function refuse_change();
create trigger ledger_nodes_no_truncate before truncate on ledger_nodes for each statement execute function refuse_change();
create trigger checkpoints_append_only before update or delete on checkpoints for each row execute function refuse_change();
create trigger checkpoints_no_truncate before truncate on checkpoints for each statement execute function refuse_change();

-- ---------------------------------------------------------------------------------------------
do $$
declare
  name text;
begin
  foreach name in array array['runs', 'frames', 'payloads', 'run_keys', 'ledger_entries', 'ledger_nodes', 'checkpoints'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I using (tenant = current_tenant()) with check (tenant = current_tenant())', name);
  end loop;
end
$$;

grant select, insert on frames, payloads, run_keys, ledger_entries, ledger_nodes, checkpoints to onrecord_app;
grant select, insert on tenants, tokens, runs to onrecord_app;
grant update (next_run_no, ledger_size, ledger_nodes, ledger_at, last_seal_run, last_seal_leaf) on tenants to onrecord_app;
grant update (size, head, last_at, chain, outcome, ended, sealed_at, seal_index, seal_proof) on runs to onrecord_app;
grant update (revoked_at) on tokens to onrecord_app;
grant select on _sqlx_migrations to onrecord_app;
