-- The shape that appends are fast in. Measured on frames of 1 KiB: rows of 1,170 bytes instead of 1,365, and indexes
-- of 160 bytes a frame instead of 210, so that seven frames lie on a page instead of six.
--
-- An offline step: the frames are copied once, as long as that takes, and are in order afterwards.

-- Runs are ULIDs, which have 128 bits: as a uuid one takes 16 bytes in every row and index entry instead of 27,
-- and sorts as its text does.
create function run_uuid(id text) returns uuid language plpgsql immutable strict parallel safe as $$
declare
  bits text := '';
  digit int;
begin
  for place in 1 .. 26 loop
    digit := strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(id, place, 1)) - 1;
    if digit < 0 or length(id) <> 26 or (place = 1 and digit > 7) then
      raise exception 'onrecord: % is no run', id using errcode = 'invalid_text_representation';
    end if;
    bits := bits || digit::bit(5);
  end loop;
  bits := substr(bits, 3);
  return (select string_agg(to_hex(substr(bits, 4 * nibble + 1, 4)::bit(4)::int), '' order by nibble)
    from generate_series(0, 31) as nibble)::uuid;
end
$$;
comment on function run_uuid(text) is 'The uuid of a run''s id, for whoever looks up a run by hand: where run = run_uuid(''01J…'').';

create function run_id(run uuid) returns text language sql immutable strict parallel safe as $$
  select string_agg(substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', substr(bits, 5 * place + 1, 5)::bit(5)::int + 1, 1), '' order by place)
  from (select '00' || string_agg(('x' || nibble)::bit(4)::text, '' order by place) as bits
    from regexp_split_to_table(replace(run::text, '-', ''), '') with ordinality as hex (nibble, place)) as run,
    generate_series(0, 25) as place
$$;
comment on function run_id(uuid) is 'The id of a run''s uuid, as it stands in frames.';

alter table run_keys drop constraint run_keys_run_fkey;
alter table payloads drop constraint payloads_run_fkey;
alter table frames drop constraint frames_run_fkey;
-- Without last_at in it an append changes no index of a run's row, and PostgreSQL writes it in place.
drop index runs_open;
alter table runs alter column run type uuid using run_uuid(run);
alter table run_keys alter column run type uuid using run_uuid(run);
alter table payloads alter column run type uuid using run_uuid(run);
alter table ledger_entries alter column run type uuid using run_uuid(run);
alter table tenants alter column last_seal_run type uuid using run_uuid(last_seal_run);
create index runs_open on runs (tenant, run) where sealed_at is null;
alter table runs set (fillfactor = 50);
-- What foreign keys kept from being removed, triggers do.
create trigger runs_kept before delete on runs for each row execute function refuse_change();
create trigger runs_no_truncate before truncate on runs for each statement execute function refuse_change();
-- Keys of runs come with their run and are few. Frames and payloads come in the statement that moves the head of their
-- run, and only for runs whose head it moved: a foreign key would look each of them up once more.
alter table run_keys add constraint run_keys_run_fkey foreign key (run) references runs;

-- ---------------------------------------------------------------------------------------------
create type frame_kind as enum ('session', 'turn', 'turn_end', 'tool_call', 'tool_result', 'gate_result', 'model_call',
  'model_result', 'observation', 'decision', 'side_effect', 'snapshot', 'file_version', 'retrieval', 'memory', 'context',
  'outcome', 'session_end');
comment on type frame_kind is 'Kinds of frames, as docs/kinds.md has them.';

alter table frames rename to frames_0001;
-- In the order in which nothing is lost to alignment.
create table frames (
  seq bigint not null,
  at timestamptz not null,
  answers bigint,
  turn integer,
  kind frame_kind not null,
  run uuid not null,
  tenant text collate "C" not null,
  key text collate "C" not null,
  request_mac bytea,
  bytes bytea not null
);
insert into frames (seq, at, answers, turn, kind, run, tenant, key, request_mac, bytes)
  select seq, at, answers, turn, kind::frame_kind, run_uuid(run), tenant, key, substr(request_mac, 1, 16), bytes
  from frames_0001 order by run, seq;
drop table frames_0001;
alter table frames add primary key (run, seq);
create unique index frames_key on frames (run, key);
create index frames_answers on frames (run, answers) where answers is not null;

comment on table frames is 'The evidence. Append-only: no update, no delete, no truncate.';
comment on column frames.seq is 'Derived from bytes.';
comment on column frames.at is 'Derived from bytes.';
comment on column frames.answers is 'Derived from bytes: the first in-run frame that it is linked to with answers.';
comment on column frames.turn is 'Derived from bytes.';
comment on column frames.kind is 'Derived from bytes.';
comment on column frames.run is 'Derived from bytes.';
comment on column frames.tenant is 'Derived from bytes.';
comment on column frames.key is 'Derived from bytes.';
comment on column frames.request_mac is 'First 128 bits of the HMAC of the request, under a key that goes with the payloads'' keys; null for frames that the store writes itself.';
comment on column frames.bytes is 'The canonical bytes, exactly as hashed, served and exported.';

create trigger frames_append_only before update or delete on frames for each row execute function refuse_change();
create trigger frames_no_truncate before truncate on frames for each statement execute function refuse_change();

-- ---------------------------------------------------------------------------------------------
-- One transaction writes what is waiting, of all tenants that have something waiting: it names them, and sees no other.
create function current_tenants() returns text[] language sql stable as $$
  select string_to_array(current_setting('onrecord.tenant', true), ' ')
$$;
comment on function current_tenants() is 'The tenants of this transaction, one unless it is a batch of appends; set by the server, and row security compares with it.';

do $$
declare
  name text;
  -- The comparison with one name is a tenth of that with an array, and nearly always all that is needed.
  -- `coalesce` keeps the planner from looking for rows by their tenant, which says the least of them.
  -- `coalesce` keeps the planner from looking for rows by their tenant, which says the least of them; `select` has the
  -- setting read once a statement and not once a row.
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)
    or coalesce(tenant = any ((select current_tenants())::text[]), false)';
begin
  alter table frames enable row level security;
  foreach name in array array['runs', 'payloads', 'run_keys', 'ledger_entries', 'ledger_nodes', 'checkpoints'] loop
    execute format('drop policy of_tenant on %I', name);
  end loop;
  foreach name in array array['runs', 'frames', 'payloads', 'run_keys', 'ledger_entries', 'ledger_nodes', 'checkpoints'] loop
    execute format('create policy of_tenant on %I using (%s) with check (%s)', name, scope, scope);
  end loop;
end
$$;
drop function current_tenant();

grant select, insert on frames to onrecord_app;
