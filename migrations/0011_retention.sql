-- Retention: how long what is kept, which a tenant chooses; what of it is due, as a list of work; and what stays known of a
-- payload that is erased.

create table retention_policies (
  version bigint not null check (version > 0),
  at timestamptz not null,
  ledger_index bigint not null,
  tenant text collate "C" not null references tenants,
  actor_type text not null,
  actor_id text not null,
  document bytea not null check (octet_length(document) <= 65536),
  primary key (tenant, version)
);
comment on table retention_policies is 'How long a tenant keeps what; the last version holds, and floors of earlier ones go on. Append-only.';
comment on column retention_policies.version is 'From 1, dense; written by the change.';
comment on column retention_policies.at is 'Time of the ledger''s entry, from which on it holds; written by the change.';
comment on column retention_policies.ledger_index is 'Index of the policy statement whose subject is the document; written by the change.';
comment on column retention_policies.tenant is 'Whose policy.';
comment on column retention_policies.actor_type is 'Type of who changed it; written by the change.';
comment on column retention_policies.actor_id is 'Id of who changed it; written by the change.';
comment on column retention_policies.document is 'The policy as canonical JSON, exactly as it was signed; written by the change.';

create table run_retention (
  due timestamptz not null,
  look_at timestamptz not null,
  version bigint not null,
  run uuid primary key,
  done smallint not null default 0,
  tenant text collate "C" not null,
  schedule text collate "C"
);
comment on table run_retention is 'What the sweeper knows of each run: a cache and a list of work. What is erased is decided again from the evidence and the policy, so that nothing goes, and nothing stays, because of what stands here.';
comment on column run_retention.due is 'When something of the run expires next, infinity for never; written by the sweeper.';
comment on column run_retention.look_at is 'When the sweeper looks at the run next; written by the sweeper.';
comment on column run_retention.version is 'Version of the policy by which the row was made; written by the sweeper.';
comment on column run_retention.run is 'The run; written by the sweeper.';
comment on column run_retention.done is 'Tiers of which nothing is left and nothing can come, as bits: 2 for tier 1, 4 for tier 2, 8 for tier 3; written by the sweeper.';
comment on column run_retention.tenant is 'Whose run; written by the sweeper.';
comment on column run_retention.schedule is 'The schedule that the rules choose for the run, null for none; written by the sweeper.';
create index run_retention_due on run_retention (tenant, due);
create index run_retention_look on run_retention (tenant, look_at);
create index run_retention_version on run_retention (tenant, version);

create table retention_sweeps (
  listed bigint not null,
  runs bigint not null default 0,
  payloads bigint not null default 0,
  busy_ms bigint not null default 0,
  begun_at timestamptz,
  ended_at timestamptz,
  tenant text collate "C" primary key references tenants
);
comment on table retention_sweeps is 'How far the sweeper of a tenant is, and what its last round did.';
comment on column retention_sweeps.listed is 'Number of the last run that has a row in run_retention; written by the sweeper.';
comment on column retention_sweeps.runs is 'Runs of which the last round erased something; written by the sweeper.';
comment on column retention_sweeps.payloads is 'Payloads that the last round erased; written by the sweeper.';
comment on column retention_sweeps.busy_ms is 'Milliseconds that it worked for them, without its pauses; written by the sweeper.';
comment on column retention_sweeps.begun_at is 'When the last round that erased something began; written by the sweeper.';
comment on column retention_sweeps.ended_at is 'When the last round ended that found nothing left to do; written by the sweeper.';
comment on column retention_sweeps.tenant is 'Whose.';

create table erased_payloads (
  seq bigint not null,
  size bigint not null,
  ledger_index bigint not null,
  erased_at timestamptz not null default clock_timestamp(),
  run uuid not null,
  place smallint not null,
  tier smallint not null,
  tenant text collate "C" not null,
  media text not null,
  commit bytea not null,
  primary key (run, commit)
);
comment on table erased_payloads is 'What stays known of a payload whose row was removed by an erasure. All of it stands in frames and ledger too. Append-only.';
comment on column erased_payloads.seq is 'The frame that commits to it; written by the erasure.';
comment on column erased_payloads.size is 'Length after padding; written by the erasure.';
comment on column erased_payloads.ledger_index is 'Index of the ledger''s entry that certifies it; written by the erasure.';
comment on column erased_payloads.erased_at is 'When its row was removed.';
comment on column erased_payloads.run is 'The run; written by the erasure.';
comment on column erased_payloads.place is 'Place in the frame''s payloads, from 0; written by the erasure.';
comment on column erased_payloads.tier is 'Retention tier, 0 to 3; written by the erasure.';
comment on column erased_payloads.tenant is 'Whose; written by the erasure.';
comment on column erased_payloads.media is 'Media type; written by the erasure.';
comment on column erased_payloads.commit is 'The commitment; written by the erasure.';

alter table erasures drop constraint erasures_scope_check;
alter table erasures add constraint erasures_scope_check check (scope in ('payloads', 'subject', 'tier', 'tenant', 'expiry'));
comment on column erasures.scope is 'What of: single payloads of a run, all of a subject, a tier of a run, all of the tenant; or what expired under a schedule. Written by the request, or by the sweeper.';

create trigger retention_policies_append_only before update or delete on retention_policies for each row execute function refuse_change();
create trigger retention_policies_no_truncate before truncate on retention_policies for each statement execute function refuse_change();
create trigger erased_payloads_append_only before update or delete on erased_payloads for each row execute function refuse_change();
create trigger erased_payloads_no_truncate before truncate on erased_payloads for each statement execute function refuse_change();

do $$
declare
  name text;
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)';
begin
  foreach name in array array['retention_policies', 'run_retention', 'retention_sweeps', 'erased_payloads'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I using (%s) with check (%s)', name, scope, scope);
  end loop;
end
$$;

grant select, insert on retention_policies, run_retention, retention_sweeps to onrecord_app;
grant update (due, look_at, version, done, schedule) on run_retention to onrecord_app;
grant update (listed, runs, payloads, busy_ms, begun_at, ended_at) on retention_sweeps to onrecord_app;
grant select on erased_payloads to onrecord_app;
grant insert on erased_payloads to onrecord_eraser;
