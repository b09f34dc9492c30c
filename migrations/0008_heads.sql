-- Proofs of single frames in time that does not grow with the run; how far the ledger has stated runs that are open;
-- what a tenant chose for itself.

-- In the order in which nothing is lost to alignment.
create table run_nodes (
  idx bigint not null,
  run uuid not null,
  level smallint not null,
  tenant text collate "C" not null,
  hash bytea not null,
  primary key (run, level, idx)
);
comment on table run_nodes is 'Hashes of the complete subtrees of runs from 64 frames on, so that a proof reads no more than 64 frames. Follows from the frames, and is made anew from them where it is not there. Append-only.';
comment on column run_nodes.idx is 'Number of the subtree at its level, from 0; written with the frame that completes it.';
comment on column run_nodes.run is 'The run; written with the frame that completes it.';
comment on column run_nodes.level is 'Height of the subtree, from 6; written with the frame that completes it.';
comment on column run_nodes.tenant is 'Whose run; written with the frame that completes it.';
comment on column run_nodes.hash is 'Its RFC 9162 hash; written with the frame that completes it.';

create trigger run_nodes_append_only before update or delete on run_nodes for each row execute function refuse_change();
create trigger run_nodes_no_truncate before truncate on run_nodes for each statement execute function refuse_change();

do $$
declare
  -- As of frames, with which they are written: for all tenants of a batch.
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)
    or coalesce(tenant = any ((select current_tenants())::text[]), false)';
begin
  alter table run_nodes enable row level security;
  execute format('create policy of_tenant on run_nodes using (%s) with check (%s)', scope, scope);
end
$$;
grant select, insert on run_nodes to onrecord_app;

-- ---------------------------------------------------------------------------------------------
create table run_heads (
  size bigint not null,
  ledger_index bigint not null,
  run uuid primary key,
  tenant text collate "C" not null
);
comment on table run_heads is 'How far the ledger has stated a run while it was open. Apart from the run''s row, so that no append waits for a statement about its run.';
comment on column run_heads.size is 'Frames that the last run-head states; written by it.';
comment on column run_heads.ledger_index is 'Ledger index of the last run-head; written by it.';
comment on column run_heads.run is 'The run; written by its first run-head.';
comment on column run_heads.tenant is 'Whose run; written by its first run-head.';

-- ---------------------------------------------------------------------------------------------
create table settings (
  tenant text collate "C" not null references tenants,
  version bigint not null check (version > 0),
  at timestamptz not null,
  actor_type text not null,
  actor_id text not null,
  ledger_index bigint not null,
  document bytea not null check (octet_length(document) <= 65536),
  primary key (tenant, version)
);
comment on table settings is 'What a tenant chose for itself; the last version holds. Append-only.';
comment on column settings.tenant is 'Whose settings.';
comment on column settings.version is 'From 1, dense. Written by the change.';
comment on column settings.at is 'Time of the ledger''s entry; written by the change.';
comment on column settings.actor_type is 'Type of who changed it; written by the change.';
comment on column settings.actor_id is 'Id of who changed it; written by the change.';
comment on column settings.ledger_index is 'Index of the policy statement whose subject is the document; written by the change.';
comment on column settings.document is 'The settings, canonical JSON, exactly as signed; written by the change.';

create trigger run_heads_kept before delete on run_heads for each row execute function refuse_change();
create trigger run_heads_no_truncate before truncate on run_heads for each statement execute function refuse_change();
create trigger settings_append_only before update or delete on settings for each row execute function refuse_change();
create trigger settings_no_truncate before truncate on settings for each statement execute function refuse_change();

do $$
declare
  name text;
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)';
begin
  foreach name in array array['run_heads', 'settings'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I using (%s) with check (%s)', name, scope, scope);
  end loop;
end
$$;
grant select, insert on run_heads, settings to onrecord_app;
grant update (size, ledger_index) on run_heads to onrecord_app;
