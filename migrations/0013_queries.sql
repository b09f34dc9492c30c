-- Questions over many runs: who asked what and why, and filters that are kept under a name.

-- What is written beside the agents' path names no tenant by a foreign key, which would wait for its lock.
create table queries (
  tenant text collate "C" not null,
  ledger_index bigint not null,
  at timestamptz not null,
  resource text collate "C" not null,
  purpose text collate "C" not null,
  actor_type text not null,
  actor_id text not null,
  text bytea not null check (octet_length(text) <= 65536),
  primary key (tenant, ledger_index)
);
comment on table queries is 'Questions over many runs, each with an entry in the ledger. Append-only; a row may be removed where its text should not be kept, and the entry stays.';
comment on column queries.tenant is 'Whose runs; written with the entry.';
comment on column queries.ledger_index is 'Index of the query statement whose subject is the text; written with the entry.';
comment on column queries.at is 'Time of the ledger''s entry; written with the entry.';
comment on column queries.resource is 'What was asked for: runs, frames or payload-records; written with the entry.';
comment on column queries.purpose is 'Why, as a code; written with the entry.';
comment on column queries.actor_type is 'Type of who asked; written with the entry.';
comment on column queries.actor_id is 'Id of who asked, a person by the pseudonym; written with the entry.';
comment on column queries.text is 'The whole question as canonical JSON, whose digest is on the ledger; a filter may name people. Written with the entry.';

create trigger queries_append_only before update on queries for each row execute function refuse_change();
create trigger queries_no_truncate before truncate on queries for each statement execute function refuse_change();

create table saved_queries (
  tenant text collate "C" not null references tenants,
  name text collate "C" not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'),
  resource text collate "C" not null,
  filter text not null,
  actor_type text not null,
  actor_id text not null,
  at timestamptz not null,
  primary key (tenant, name)
);
comment on table saved_queries is 'Filters that are kept under a name, as they were saved last.';
comment on column saved_queries.tenant is 'Whose runs; written when it is saved.';
comment on column saved_queries.name is 'A code; written when it is saved.';
comment on column saved_queries.resource is 'What it is a filter of: runs, frames or payload-records; written when it is saved.';
comment on column saved_queries.filter is 'The filter as it was written; it was well formed then. Written when it is saved.';
comment on column saved_queries.actor_type is 'Type of who saved it last; written when it is saved.';
comment on column saved_queries.actor_id is 'Id of who saved it last, a person by the pseudonym; written when it is saved.';
comment on column saved_queries.at is 'When it was saved last.';

do $$
declare
  name text;
begin
  foreach name in array array['queries', 'saved_queries'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I
      using (coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false))
      with check (coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false))', name);
  end loop;
end
$$;
grant select, insert on queries to onrecord_app;
grant select, delete on queries to onrecord_eraser;
grant select, insert, update, delete on saved_queries to onrecord_app;
