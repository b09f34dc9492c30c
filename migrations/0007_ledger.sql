-- The ledger as a log that anybody can follow.

-- A log is asked for by the id at the end of its origin, since that is all of the origin that its addresses have.
create unique index tenants_log on tenants (substring(origin from '[^/]*$'));
comment on index tenants_log is 'Finds the tenant of a ledger by the last step of its origin.';

-- Each reading of a payload looks for the erasures of its run, and each erasure for holds: among all other entries, of
-- which a run that is often read has many.
create index ledger_entries_erasures on ledger_entries (tenant, run, idx) where name = 'erasure';
comment on index ledger_entries_erasures is 'Finds the erasures of a run.';

-- ---------------------------------------------------------------------------------------------
-- Whom the pseudonyms in the ledger stand for. The ledger is for ever, and a name in it could never be taken out: what is
-- in it is random, and leads to a person as long as a row of this table does.
create table people (
  tenant text collate "C" not null references tenants,
  pseudonym text collate "C" not null check (pseudonym ~ '^p_[0-9a-z]{16}$'),
  person text collate "C" not null,
  since timestamptz not null default clock_timestamp(),
  primary key (tenant, pseudonym),
  unique (tenant, person)
);
comment on table people is 'Pseudonyms of people in a tenant''s ledger and its export statements. A row that is removed is forgotten: its pseudonym leads nowhere.';
comment on column people.tenant is 'In whose ledger.';
comment on column people.pseudonym is 'Random; written when the person is first stated.';
comment on column people.person is 'The id of the actor as its token has it; written with the pseudonym.';
comment on column people.since is 'Written with the pseudonym.';

alter table people enable row level security;
create policy of_tenant on people
  using (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false))
  with check (coalesce(tenant = (select current_setting('onrecord.tenant', true)), false));
grant select, insert on people to onrecord_app;
grant select, delete on people to onrecord_eraser;
