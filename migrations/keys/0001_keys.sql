-- The keys of runs, in a schema of their own: it is that of the evidence's database or of another one, so that whoever
-- has a copy of the evidence need not have these. Migrations go forward only; an applied one is never edited.

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

-- ---------------------------------------------------------------------------------------------
create table keys.epochs (
  tenant text collate "C" not null,
  epoch integer not null check (epoch > 0),
  made_at timestamptz not null default clock_timestamp(),
  closed_at timestamptz,
  destroyed_at timestamptz,
  primary key (tenant, epoch),
  check (destroyed_at is null or closed_at is not null)
);
comment on table keys.epochs is 'Epochs of tenants, whose keys are files and never in a database.';
comment on column keys.epochs.tenant is 'Whose epoch.';
comment on column keys.epochs.epoch is 'Its number, from 1.';
comment on column keys.epochs.made_at is 'When it is first known here; written once.';
comment on column keys.epochs.closed_at is 'Since when no new key is wrapped under it; written by rotations.';
comment on column keys.epochs.destroyed_at is 'When its key file was destroyed and no key of a run was left under it; written by rotations.';

create table keys.run_keys (
  run uuid not null,
  epoch integer not null,
  tier smallint not null check (tier between 0 and 3),
  version smallint not null check (version >= 0),
  tenant text collate "C" not null,
  wrapped bytea not null,
  primary key (run, tier, version),
  foreign key (tenant, epoch) references keys.epochs
);
comment on table keys.run_keys is 'Keys of runs, each wrapped by an epoch key that is in no database. What is gone is erased. No foreign key leads to the run, which may be in another database and comes after its keys.';
comment on column keys.run_keys.run is 'The run as a uuid; written at opening.';
comment on column keys.run_keys.epoch is 'The epoch whose key wraps it; written at opening and by rotations.';
comment on column keys.run_keys.tier is 'Retention tier, 0 to 3; written at opening.';
comment on column keys.run_keys.version is '0 at opening, a higher one for each key that took the place of another.';
comment on column keys.run_keys.tenant is 'Whose run; written at opening.';
comment on column keys.run_keys.wrapped is 'The wrapped key; written at opening and by rotations.';
create index run_keys_epoch on keys.run_keys (tenant, epoch, run, tier, version);

alter table keys.epochs enable row level security;
alter table keys.run_keys enable row level security;
-- The one tenant of the transaction, as in the evidence's database.
create policy of_tenant on keys.epochs using (tenant = (select current_setting('onrecord.tenant', true)))
  with check (tenant = (select current_setting('onrecord.tenant', true)));
create policy of_tenant on keys.run_keys using (tenant = (select current_setting('onrecord.tenant', true)))
  with check (tenant = (select current_setting('onrecord.tenant', true)));

grant usage on schema keys to onrecord_app;
grant select, insert on keys.epochs to onrecord_app;
grant update (closed_at, destroyed_at) on keys.epochs to onrecord_app;
grant select, insert, delete on keys.run_keys to onrecord_app;
grant update (epoch, wrapped) on keys.run_keys to onrecord_app;
grant select on keys._sqlx_migrations to onrecord_app;
