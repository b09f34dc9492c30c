-- Holds in a table, orders of many of them, releases that two people agree on, and flags of runs.

-- ---------------------------------------------------------------------------------------------
-- The holds that the ledger says were set and released. It says so first; the rows are what decisions are made by.
create table holds (
  tenant text collate "C" not null references tenants,
  ledger_index bigint not null,
  run uuid,
  matter text collate "C" not null,
  reason text,
  set_at timestamptz not null,
  by_type text not null,
  by_id text not null,
  hold_order text collate "C",
  alone boolean not null,
  released_index bigint,
  released_at timestamptz,
  released_by_type text,
  released_by_id text,
  released_with_type text,
  released_with_id text,
  primary key (tenant, ledger_index),
  check ((released_index is null) = (released_at is null) and (released_index is null) = (released_by_id is null))
);
comment on table holds is 'Holds, as the ledger''s statements have them. While one is in force nothing of its run, or of its tenant, is erased.';
comment on column holds.tenant is 'In whose ledger; written when it is set.';
comment on column holds.ledger_index is 'Number of the hold: index of the statement that set it; written when it is set.';
comment on column holds.run is 'The run; null for the whole tenant. Written when it is set.';
comment on column holds.matter is 'What it is for; written when it is set.';
comment on column holds.reason is 'Why, as a code; written when it is set.';
comment on column holds.set_at is 'Time of the statement; written when it is set.';
comment on column holds.by_type is 'Who set it: type of the actor; written when it is set.';
comment on column holds.by_id is 'Who set it: id of the actor; written when it is set.';
comment on column holds.hold_order is 'The order by which it was set; null where it was set by itself. Written when it is set.';
comment on column holds.alone is 'Whether somebody asked for this hold itself, so that the end of an order does not end it; written when it is set, and when somebody asks later.';
comment on column holds.released_index is 'Index of the statement that released it; null while it is in force. Written by the release.';
comment on column holds.released_at is 'Time of that statement; written by the release.';
comment on column holds.released_by_type is 'Who released it: type of the actor; written by the release.';
comment on column holds.released_by_id is 'Who released it: id of the actor; written by the release.';
comment on column holds.released_with_type is 'The second person, where two were needed: type of the actor; written by the release.';
comment on column holds.released_with_id is 'The second person, where two were needed: id of the actor; written by the release.';

-- A hold begins with `set`, where none of its matter and subject is in force, and ends with the next `released` of these.
insert into holds (tenant, ledger_index, run, matter, set_at, by_type, by_id, alone, released_index, released_at, released_by_type, released_by_id)
  select tenant, idx, run, predicate ->> 'matter', at, predicate #>> '{by,type}', predicate #>> '{by,id}', true,
    ended, ended_at, ended_by #>> '{by,type}', ended_by #>> '{by,id}'
  from (
    select *, lead(idx) over following as ended, lead(at) over following as ended_at, lead(predicate) over following as ended_by
    from (
      select *, lag(action) over (partition by tenant, run, predicate ->> 'matter' order by idx) as before
      from (
        select tenant, idx, run, at, predicate, predicate ->> 'action' as action
        from (
          select tenant, idx, run, at,
            convert_from(decode(convert_from(bytes, 'UTF8')::json ->> 'payload', 'base64'), 'UTF8')::jsonb -> 'predicate' as predicate
          from ledger_entries where name = 'hold'
        ) as said
      ) as acts
    ) as turns
    where action is distinct from before
    window following as (partition by tenant, run, predicate ->> 'matter' order by idx)
  ) as pairs
  where action = 'set';

create unique index holds_in_force on holds (tenant, matter, run) where released_index is null and run is not null;
comment on index holds_in_force is 'Holds of runs in force, by matter: one of a matter over each run.';
create unique index holds_whole on holds (tenant, matter) where released_index is null and run is null;
comment on index holds_whole is 'Holds over whole tenants in force.';
create index holds_run on holds (run) where released_index is null and run is not null;
comment on index holds_run is 'Holds in force over a run.';
create index holds_matter on holds (tenant, matter, ledger_index);
comment on index holds_matter is 'Holds of a matter, released ones too.';
drop index ledger_entries_holds;

-- ---------------------------------------------------------------------------------------------
create table hold_orders (
  id text collate "C" primary key,
  tenant text collate "C" not null references tenants,
  filter text,
  subject bytea,
  matter text collate "C" not null,
  reason text,
  by_type text not null,
  by_id text not null,
  ordered_at timestamptz not null,
  done_at timestamptz,
  release_by_type text,
  release_by_id text,
  release_with_type text,
  release_with_id text,
  release_at timestamptz,
  released_at timestamptz,
  check ((filter is null) <> (subject is null)),
  check ((release_at is null) = (release_by_id is null))
);
comment on table hold_orders is 'Holds that were ordered over what a filter found, or over a subject; the server sets them run by run.';
comment on column hold_orders.id is 'ULID; written by the order.';
comment on column hold_orders.tenant is 'Whose runs; written by the order.';
comment on column hold_orders.filter is 'The filter whose result is held, as it was when it was ordered; written by the order.';
comment on column hold_orders.subject is 'Keyed fingerprint of the subject about whom payloads are held, those that come later too; written by the order.';
comment on column hold_orders.matter is 'What it is for; written by the order.';
comment on column hold_orders.reason is 'Why, as a code; written by the order.';
comment on column hold_orders.by_type is 'Who ordered it: type of the actor; written by the order.';
comment on column hold_orders.by_id is 'Who ordered it: id of the actor; written by the order.';
comment on column hold_orders.ordered_at is 'Written by the order.';
comment on column hold_orders.done_at is 'When the last run that it had found by then was on hold for the first time.';
comment on column hold_orders.release_by_type is 'Who released it: type of the actor; written by its release.';
comment on column hold_orders.release_by_id is 'Who released it: id of the actor; written by its release.';
comment on column hold_orders.release_with_type is 'The second person, where two were needed: type of the actor; written by its release.';
comment on column hold_orders.release_with_id is 'The second person, where two were needed: id of the actor; written by its release.';
comment on column hold_orders.release_at is 'When its release was decided; its holds end one after the other from then on.';
comment on column hold_orders.released_at is 'When the last of its runs was let go.';
create index hold_orders_open on hold_orders (tenant, id) where released_at is null;
comment on index hold_orders_open is 'Orders that are in force, or on which something is to be done.';

create table hold_order_runs (
  run uuid not null,
  hold_order text collate "C" not null,
  tenant text collate "C" not null,
  state smallint not null default 0 check (state between 0 and 2),
  primary key (hold_order, run)
);
comment on table hold_order_runs is 'What an order found.';
comment on column hold_order_runs.run is 'The run; written when it is found.';
comment on column hold_order_runs.hold_order is 'The order; written when the run is found, a moment before the order itself.';
comment on column hold_order_runs.tenant is 'Whose; written when the run is found.';
comment on column hold_order_runs.state is '0: it waits for its hold, and nothing of it is erased; 1: it is on hold; 2: the order let it go.';
create index hold_order_runs_run on hold_order_runs (run) where state < 2;
comment on index hold_order_runs_run is 'Orders that want a run to be held.';
create index hold_order_runs_waiting on hold_order_runs (hold_order, run) where state = 0;
comment on index hold_order_runs_waiting is 'What of an order is still to be done.';
create index hold_order_runs_held on hold_order_runs (hold_order, run) where state < 2;
comment on index hold_order_runs_held is 'What of an order is still to be let go.';

create index payloads_about on payloads (run) where subjects is not null;
comment on index payloads_about is 'Payloads of a run that are about somebody, which are few: a decision looks whether one of them is on hold.';

-- The runs that have a payload about a subject. An index on lists is of no use under row security, so that this is asked as
-- the tables' owner, and of the tenant of the transaction alone.
create function runs_about(wanted bytea) returns setof uuid language sql stable security definer set search_path = public, pg_temp as $$
  select distinct run from payloads
  where subjects is not null and subject_list(subjects) @> array[wanted]
    and tenant = (select current_setting('onrecord.tenant', true))
$$;
comment on function runs_about(bytea) is 'Runs of the transaction''s tenant with a payload about a subject, by its fingerprint.';
revoke all on function runs_about(bytea) from public;
grant execute on function runs_about(bytea) to onrecord_app;

-- ---------------------------------------------------------------------------------------------
create table hold_releases (
  id text collate "C" primary key,
  tenant text collate "C" not null references tenants,
  hold bigint,
  hold_order text collate "C" references hold_orders,
  by_type text not null,
  by_id text not null,
  requested_at timestamptz not null,
  ended text check (ended in ('completed', 'withdrawn', 'void')),
  ended_by_type text,
  ended_by_id text,
  ended_at timestamptz,
  check ((hold is null) <> (hold_order is null)),
  check ((ended is null) = (ended_at is null) and (ended is null) = (ended_by_id is null))
);
comment on table hold_releases is 'Requests to release a hold or an order, where that takes two people.';
comment on column hold_releases.id is 'ULID; written by the request.';
comment on column hold_releases.tenant is 'Whose hold; written by the request.';
comment on column hold_releases.hold is 'Number of the hold; written by the request.';
comment on column hold_releases.hold_order is 'The order; written by the request.';
comment on column hold_releases.by_type is 'Who asked first: type of the actor; written by the request.';
comment on column hold_releases.by_id is 'Who asked first: id of the actor; written by the request.';
comment on column hold_releases.requested_at is 'Written by the request.';
comment on column hold_releases.ended is 'Null while somebody else is waited for; completed by a second person, withdrawn, or void since it is not known any longer who asked.';
comment on column hold_releases.ended_by_type is 'Who ended it: type of the actor; written with its end.';
comment on column hold_releases.ended_by_id is 'Who ended it: id of the actor; written with its end.';
comment on column hold_releases.ended_at is 'Written with its end.';
create unique index hold_releases_of_hold on hold_releases (tenant, hold) where ended is null and hold is not null;
comment on index hold_releases_of_hold is 'One open request for each hold.';
create unique index hold_releases_of_order on hold_releases (hold_order) where ended is null and hold_order is not null;
comment on index hold_releases_of_order is 'One open request for each order.';

-- ---------------------------------------------------------------------------------------------
create table run_flags (
  run uuid not null,
  tenant text collate "C" not null references tenants,
  flag text collate "C" not null,
  incident text collate "C",
  reason text,
  set_index bigint not null,
  at timestamptz not null,
  by_type text not null,
  by_id text not null,
  cleared_index bigint,
  cleared_at timestamptz,
  cleared_by_type text,
  cleared_by_id text,
  primary key (tenant, set_index),
  check ((cleared_index is null) = (cleared_at is null) and (cleared_index is null) = (cleared_by_id is null))
);
comment on table run_flags is 'Flags of runs, as the ledger''s statements have them.';
comment on column run_flags.run is 'The run; written when it is set.';
comment on column run_flags.tenant is 'In whose ledger; written when it is set.';
comment on column run_flags.flag is 'The flag, a code; written when it is set.';
comment on column run_flags.incident is 'The incident that it is about, a code; written when it is set.';
comment on column run_flags.reason is 'Why, a code; written when it is set.';
comment on column run_flags.set_index is 'Index of the statement that set it; written when it is set.';
comment on column run_flags.at is 'Time of the statement; written when it is set.';
comment on column run_flags.by_type is 'Who set it: type of the actor; written when it is set.';
comment on column run_flags.by_id is 'Who set it: id of the actor; written when it is set.';
comment on column run_flags.cleared_index is 'Index of the statement that cleared it; null while it stands. Written when it is cleared.';
comment on column run_flags.cleared_at is 'Time of that statement; written when it is cleared.';
comment on column run_flags.cleared_by_type is 'Who cleared it: type of the actor; written when it is cleared.';
comment on column run_flags.cleared_by_id is 'Who cleared it: id of the actor; written when it is cleared.';
create unique index run_flags_standing on run_flags (tenant, flag, run, (coalesce(incident, ''))) where cleared_index is null;
comment on index run_flags_standing is 'Flags that stand: runs of a flag, and one of a flag and incident on each run.';
create index run_flags_incident on run_flags (tenant, incident, run) where cleared_index is null and incident is not null;
comment on index run_flags_incident is 'Runs of an incident.';
create index run_flags_run on run_flags (run, set_index);
comment on index run_flags_run is 'Flags of a run, cleared ones too.';

do $$
declare
  name text;
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)';
begin
  foreach name in array array['holds', 'hold_orders', 'hold_order_runs', 'hold_releases', 'run_flags'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I using (%s) with check (%s)', name, scope, scope);
    execute format('create trigger %I before delete on %I for each row execute function refuse_change()', name || '_kept', name);
    execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', name || '_no_truncate', name);
  end loop;
end
$$;

grant select, insert on holds, hold_orders, hold_order_runs, hold_releases, run_flags to onrecord_app;
grant update (alone, released_index, released_at, released_by_type, released_by_id, released_with_type, released_with_id) on holds to onrecord_app;
grant update (done_at, release_by_type, release_by_id, release_with_type, release_with_id, release_at, released_at) on hold_orders to onrecord_app;
grant update (state) on hold_order_runs to onrecord_app;
grant update (ended, ended_by_type, ended_by_id, ended_at) on hold_releases to onrecord_app;
grant update (cleared_index, cleared_at, cleared_by_type, cleared_by_id) on run_flags to onrecord_app;
