-- What the sweeper writes for each tier of each run that expires, without what costs more than it tells. Measured on runs with
-- two payloads each.

-- Whoever writes to a ledger holds the lock of its tenant's row: a foreign key would look that row up once more for each entry,
-- and for each node of the tree. No tenant is removed, and its runs would keep it from it.
alter table ledger_entries drop constraint ledger_entries_tenant_fkey;
alter table ledger_nodes drop constraint ledger_nodes_tenant_fkey;
-- Parts are added in the transaction that has found or made their erasure, and no erasure is removed.
alter table erasure_parts drop constraint erasure_parts_erasure_fkey;

-- Each part is written twice, before and after its keys are destroyed. Without an index of what changes, and with room on the
-- page, the second time is in its place; what of erasures is left to be done is among the parts of those that are open.
drop index erasure_parts_open;
alter table erasure_parts set (fillfactor = 45);

-- Of most runs nothing is left once they were swept: they are not looked at again, and not in the list.
drop index run_retention_look;
create index run_retention_look on run_retention (tenant, look_at) where look_at < 'infinity';
comment on index run_retention_look is 'Runs by when the sweeper looks at them next.';

-- What expires of a run at once, of whichever tiers, has one entry.
comment on column erasure_parts.entries is 'Indexes of the ledger''s entries that certify it; one that is about several tiers of the run stands with the first of them.';

-- What expired may have many parts: what decides whether an erasure is final stands beside it once they are done.
alter table erasures add column epoch integer;
comment on column erasures.epoch is 'Newest epoch that had wrapped a key of it, as far as it is done; null where it had no part.';
update erasures set epoch = (select max(epoch) from erasure_parts where erasure = id) where removed_at is not null;
grant update (epoch) on erasures to onrecord_app;
