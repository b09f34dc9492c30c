-- Payloads that were erased before there were records of erased payloads: these are filled in, from frames and ledger.
alter table erasures add column unlisted_from uuid;
comment on column erasures.unlisted_from is 'Of an erasure of before there was erased_payloads: runs up to this one have their rows there, and those behind it are still to get them; null where nothing is to be done. Written by the migration and by the server in the background.';
-- What expired was always listed.
update erasures set unlisted_from = '00000000-0000-0000-0000-000000000000' where scope <> 'expiry';
create index erasures_unlisted on erasures (tenant, id) where unlisted_from is not null;
comment on index erasures_unlisted is 'Erasures whose payloads are still to be listed, which are next to none.';
grant update (unlisted_from) on erasures to onrecord_app;
comment on column erased_payloads.erased_at is 'When its row was removed; of one that was filled in, when its erasure had removed the last.';
