-- What questions over many runs are answered by: of each frame what it is about, and of each run what any of its frames say.
-- All of it follows from the frames' bytes (core `facts`); it is written by the statement that writes them.
--
-- An offline step: the frames are written once more, as long as that takes.

create function frame_kind_no(kind frame_kind) returns smallint language sql immutable strict parallel safe as $$
  select array_position(array['session', 'turn', 'turn_end', 'tool_call', 'tool_result', 'gate_result', 'model_call',
    'model_result', 'observation', 'decision', 'side_effect', 'snapshot', 'file_version', 'retrieval', 'memory', 'context',
    'outcome', 'session_end']::frame_kind[], kind)::smallint
$$;
-- Under row security an index serves a comparison of numbers and none of enums; and a number is shorter.
alter table frames rename column kind to kind_no;
alter table frames alter column kind_no type smallint using frame_kind_no(kind_no);
drop function frame_kind_no(frame_kind);
drop type frame_kind;
create function frame_kind(kind_no smallint) returns text language sql immutable strict parallel safe as $$
  select (array['session', 'turn', 'turn_end', 'tool_call', 'tool_result', 'gate_result', 'model_call', 'model_result',
    'observation', 'decision', 'side_effect', 'snapshot', 'file_version', 'retrieval', 'memory', 'context', 'outcome',
    'session_end'])[kind_no]
$$;
comment on function frame_kind(smallint) is 'The kind of a frame as a word, for whoever looks by hand.';

alter table frames
  add column verdict smallint,
  add column name text collate "C";
comment on column frames.kind_no is 'Derived from bytes: 1 session, 2 turn, 3 turn_end, 4 tool_call, 5 tool_result, 6 gate_result, 7 model_call, 8 model_result, 9 observation, 10 decision, 11 side_effect, 12 snapshot, 13 file_version, 14 retrieval, 15 memory, 16 context, 17 outcome, 18 session_end.';
comment on column frames.verdict is 'Derived from bytes: verdict of a gate_result: 1 pass, 2 fail, 3 error, 4 skipped.';
comment on column frames.name is 'Derived from bytes: the tool of a tool_call, the gate of a gate_result, the model of a turn, model_call or model_result, the path of a file_version. What is longer than 200 bytes, by its beginning and its SHA-256.';

create table run_facts (
  run uuid not null,
  field smallint not null,
  tenant text collate "C" not null,
  value text collate "C" not null,
  primary key (tenant, field, value, run)
);
comment on table run_facts is 'What is true of a run because one of its frames says so, for finding runs by it. Append-only.';
comment on column run_facts.run is 'The run; written with the frame that says it first.';
comment on column run_facts.field is 'What is said: 1 agent, 2 release, 3 profile, 4 label, 5 model, 6 tool, 7 gate, 8 verdict, 9 gate that failed, 10 kind of frame, 11 kind of redaction, 12 tier of a payload, 13 type of an actor, 14 file. Written with the frame that says it first.';
comment on column run_facts.tenant is 'Whose run; written with the frame that says it first.';
comment on column run_facts.value is 'The value, as in frames.name; written with the frame that says it first.';

-- ---------------------------------------------------------------------------------------------
-- The same as core `facts` does for new frames. PostgreSQL has no U+0000 in a text: here U+FFFF stands for it, which is in no
-- frame. In canonical bytes it is the one spelling \u0000, whose backslash is not the second of two.
create function frame_json(bytes bytea) returns jsonb language plpgsql immutable strict parallel safe as $$
declare
  frame text := convert_from(bytes, 'UTF8');
begin
  if position('\u0000' in frame) > 0 then
    frame := regexp_replace(frame, '(?<!\\)((?:\\\\)*)\\u0000', '\1' || chr(65535), 'g');
  end if;
  return frame::jsonb;
end
$$;
create function fact_value(value text) returns text language plpgsql immutable strict parallel safe as $$
declare
  nul text := chr(65535);
  beginning text := split_part(value, nul, 1);
begin
  if octet_length(value) <= 200 and position(nul in value) = 0 then
    return value;
  end if;
  beginning := left(beginning, 120);
  while octet_length(beginning) > 120 loop
    beginning := left(beginning, -1);
  end loop;
  return beginning || '#' || (
    select encode(sha256(string_agg(convert_to(part, 'UTF8'), '\x00'::bytea order by place)), 'hex')
    from unnest(string_to_array(value, nul)) with ordinality as parts (part, place)
  );
end
$$;

create temporary table read_frames on commit drop as
  select run, seq, tenant, frame_kind(kind_no) as kind, frame_json(bytes) as frame from frames
  where frame_kind(kind_no) in ('session', 'turn', 'tool_call', 'gate_result', 'model_call', 'model_result', 'file_version')
    or position('"payloads"'::bytea in bytes) > 0;
create index on read_frames (run, seq);
analyze read_frames;

alter table frames disable trigger frames_append_only;
update frames set
  name = fact_value(case
    when kind in ('tool_call', 'gate_result') and jsonb_typeof(frame #> '{body,name}') = 'string' then frame #>> '{body,name}'
    when kind in ('turn', 'model_call', 'model_result') and jsonb_typeof(frame #> '{body,model}') = 'string' then frame #>> '{body,model}'
    when kind = 'file_version' and jsonb_typeof(frame #> '{body,path}') = 'string' then frame #>> '{body,path}' end),
  verdict = case when kind = 'gate_result' and jsonb_typeof(frame #> '{body,verdict}') = 'string'
    then array_position(array['pass', 'fail', 'error', 'skipped'], frame #>> '{body,verdict}') end
from read_frames
where frames.run = read_frames.run and frames.seq = read_frames.seq
  and kind in ('turn', 'tool_call', 'gate_result', 'model_call', 'model_result', 'file_version');
alter table frames enable trigger frames_append_only;

insert into run_facts (run, field, tenant, value)
select distinct run, field, tenant, value from (
  select run, 10 as field, tenant, frame_kind(kind_no) as value from frames
  union all
  select run, 13, tenant, frame_json(bytes) #>> '{actor,type}' from frames
  union all
  select run, case frame_kind(kind_no) when 'tool_call' then 6 when 'gate_result' then 7 when 'file_version' then 14 else 5 end, tenant, name
  from frames where name is not null
  union all
  select run, 8, tenant, (array['pass', 'fail', 'error', 'skipped'])[verdict] from frames where verdict is not null
  union all
  select run, 9, tenant, name from frames where verdict in (2, 3) and name is not null
  union all
  select run, said.field, tenant, fact_value(frame -> 'body' ->> said.name) from read_frames,
    (values (1, 'agent'), (2, 'release'), (3, 'profile')) as said (field, name)
  where kind = 'session' and jsonb_typeof(frame -> 'body' -> said.name) = 'string'
  union all
  select run, 4, tenant, fact_value(label #>> '{}') from read_frames,
    lateral jsonb_array_elements(case when jsonb_typeof(frame #> '{body,labels}') = 'array' then frame #> '{body,labels}' else '[]' end)
      with ordinality as labels (label, place)
  where kind = 'session' and jsonb_typeof(label) = 'string' and place <= 64
  union all
  select run, 12, tenant, payload ->> 'tier' from read_frames,
    lateral jsonb_array_elements(case when jsonb_typeof(frame -> 'payloads') = 'array' then frame -> 'payloads' else '[]' end) as payload
  union all
  select run, 11, tenant, fact_value(redaction ->> 'kind') from read_frames,
    lateral jsonb_array_elements(case when jsonb_typeof(frame -> 'payloads') = 'array' then frame -> 'payloads' else '[]' end) as payload,
    lateral jsonb_array_elements(case when jsonb_typeof(payload -> 'redactions') = 'array' then payload -> 'redactions' else '[]' end) as redaction
) as said
where value is not null;
drop function frame_json(bytea);
drop function fact_value(text);

-- ---------------------------------------------------------------------------------------------
create index run_facts_run on run_facts (run);
comment on index run_facts_run is 'All that is said of a run. Its entries stand together, so that they take a few bytes each.';

-- Without run and seq in them, which are as long as the rest: frames of one moment are sorted when they are read.
create index frames_kind on frames (tenant, kind_no, at);
comment on index frames_kind is 'Frames of a tenant by kind and time.';
create index frames_name on frames (tenant, kind_no, name, at) where name is not null;
comment on index frames_name is 'Calls of a tool, results of a gate, uses of a model, versions of a file, by time.';
create index frames_verdict on frames (tenant, verdict, at) where kind_no = 6;
comment on index frames_verdict is 'Results of gates by verdict and time, which are counted without a look at the rows.';

create index runs_of_tenant on runs (tenant, run);
comment on index runs_of_tenant is 'Runs of a tenant, by their ids.';
create index runs_outcome on runs (tenant, outcome, run) where outcome is not null;
comment on index runs_outcome is 'Runs of a tenant by outcome. It changes only where the outcome does, so that other appends write the row in place.';
create index runs_ended on runs (tenant, run) where ended and sealed_at is null;
comment on index runs_ended is 'Runs that lack nothing but the seal.';
create index runs_sealed on runs (tenant, sealed_at) where sealed_at is not null;
comment on index runs_sealed is 'Sealed runs by the time of the seal.';

create trigger run_facts_append_only before update or delete on run_facts for each row execute function refuse_change();
create trigger run_facts_no_truncate before truncate on run_facts for each statement execute function refuse_change();

do $$
declare
  -- As of frames, with which they are written: for all tenants of a batch.
  scope text := 'coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false)
    or coalesce(tenant = any ((select current_tenants())::text[]), false)';
begin
  alter table run_facts enable row level security;
  execute format('create policy of_tenant on run_facts using (%s) with check (%s)', scope, scope);
end
$$;
grant select, insert on run_facts to onrecord_app;
