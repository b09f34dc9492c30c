-- What sealed runs lack of what a record of use should have (core `coverage`), among what is said of runs. It follows from the
-- kinds of their frames and from what is said of them; from here on the seal's transaction writes it.
--
-- An offline step: what is said of runs is gone through once, and calls of tools and their results are counted.

comment on column run_facts.field is 'What is said: 1 agent, 2 release, 3 profile, 4 label, 5 model, 6 tool, 7 gate, 8 verdict, 9 gate that failed, 10 kind of frame, 11 kind of redaction, 12 tier of a payload, 13 type of an actor, 14 file; written with the frame that says it first. 15 what a sealed run lacks; written with the seal.';

insert into run_facts (run, field, tenant, value)
select runs.run, 15, runs.tenant, lacks.fact
from runs
join (
  select run,
    bool_or(field = 1) as agent,
    bool_or(field = 2) as release,
    bool_or(field = 3) as purpose,
    bool_or(field = 5) as model,
    bool_or(field = 10 and value in ('turn', 'model_call', 'model_result')) as models,
    bool_or(field = 10 and value = 'session_end') as use_ended,
    bool_or(field = 10 and value = 'decision') as decision,
    bool_or(field = 10 and value = 'gate_result') as verification,
    bool_or(field = 10 and value = 'outcome') as outcome,
    bool_or(field = 13 and value = 'human') as oversight
  from run_facts group by run
) as said using (run)
left join (
  select run, count(*) filter (where kind_no = 5) >= count(*) filter (where kind_no = 4) as answered
  from frames where kind_no in (4, 5) group by run
) as calls using (run),
lateral (values
  ('use_ended', not said.use_ended),
  ('agent', not said.agent),
  ('release', not said.release),
  ('purpose', not said.purpose),
  ('model', said.models and not said.model),
  ('decision', not said.decision),
  ('oversight', not said.oversight),
  ('tool_results', not coalesce(calls.answered, true)),
  ('verification', not said.verification),
  ('outcome', not said.outcome)
) as lacks (fact, so)
where runs.sealed_at is not null and lacks.so
on conflict do nothing;
