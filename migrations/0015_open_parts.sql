-- What of erasures is left to be done, which is asked for with each look at the figures of a server, and is next to nothing of all.
create index erasure_parts_open on erasure_parts (tenant) where not removed;
comment on index erasure_parts_open is 'Tiers of runs in which an erasure is not done.';
