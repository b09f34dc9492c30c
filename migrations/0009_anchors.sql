-- What others say of ledgers: witnesses' cosignatures, time stamps, and histories that they saw and this database has not.

-- What is written beside the agents' path names no tenant and no run by a foreign key, which would wait for their locks.
create table cosignatures (
  tenant text collate "C" not null,
  size bigint not null,
  witness text collate "C" not null,
  line text not null,
  received_at timestamptz not null default clock_timestamp(),
  primary key (tenant, size, witness)
);
comment on table cosignatures is 'What witnesses signed of checkpoints. Append-only.';
comment on column cosignatures.tenant is 'Whose ledger.';
comment on column cosignatures.size is 'Size of the checkpoint.';
comment on column cosignatures.witness is 'The witness''s verifier key, NAME+ID+BASE64.';
comment on column cosignatures.line is 'Its signature line, checked before it was kept.';
comment on column cosignatures.received_at is 'When the answer was kept; the time that the witness signed is in the line.';

create table cosigned_checkpoints (
  tenant text collate "C" not null,
  size bigint not null,
  primary key (tenant, size)
);
comment on table cosigned_checkpoints is 'Checkpoints that as many witnesses cosigned as the server asks for. Append-only.';
comment on column cosigned_checkpoints.tenant is 'Whose ledger.';
comment on column cosigned_checkpoints.size is 'Size of the checkpoint. All seals below it have a row in cosigned_proofs.';

create table cosigned_proofs (
  run uuid not null primary key,
  tenant text collate "C" not null,
  proof text not null
);
comment on table cosigned_proofs is 'Proofs of seals under the first cosigned checkpoint that has them; each takes the place of runs.seal_proof, once. Append-only.';
comment on column cosigned_proofs.run is 'The sealed run.';
comment on column cosigned_proofs.tenant is 'Whose run.';
comment on column cosigned_proofs.proof is 'The .tlog-proof.';

create table time_stamps (
  tenant text collate "C" not null,
  subject text not null check (subject in ('seal', 'checkpoint')),
  number bigint not null,
  stamped_at timestamptz not null,
  reply bytea not null check (octet_length(reply) <= 65536),
  primary key (tenant, subject, number)
);
comment on table time_stamps is 'RFC 3161 replies over the 64 signature bytes of seals and of checkpoints. Append-only.';
comment on column time_stamps.tenant is 'Whose seal or checkpoint.';
comment on column time_stamps.subject is 'What is stamped.';
comment on column time_stamps.number is 'Ledger index of the seal, or size of the checkpoint.';
comment on column time_stamps.stamped_at is 'The authority''s time, derived from the reply.';
comment on column time_stamps.reply is 'The reply, byte for byte as it came.';

create table rewinds (
  id bigint generated always as identity primary key,
  tenant text collate "C" not null references tenants,
  told_by text collate "C" not null,
  told_size bigint not null,
  told_root bytea check (octet_length(told_root) = 32),
  size bigint not null,
  root bytea not null check (octet_length(root) = 32),
  found_at timestamptz not null default clock_timestamp()
);
comment on table rewinds is 'Checkpoints that this server published once and that its ledger does not have: the database was put back. While one is not accepted, nothing is entered into the ledger. Append-only.';
comment on column rewinds.id is 'Only to accept it.';
comment on column rewinds.tenant is 'Whose ledger.';
comment on column rewinds.told_by is 'Who knows it: `published`, the server''s own file, or a witness''s verifier key.';
comment on column rewinds.told_size is 'Size that was published.';
comment on column rewinds.told_root is 'Its root, where whoever knows the size says it.';
comment on column rewinds.size is 'Size of the ledger when it was found.';
comment on column rewinds.root is 'Its root.';
comment on column rewinds.found_at is 'When.';
create index rewinds_of_tenant on rewinds (tenant, id);
comment on index rewinds_of_tenant is 'Asked with each lock of a tenant; nearly always empty.';

create table accepted_rewinds (
  id bigint not null primary key,
  tenant text collate "C" not null references tenants,
  ledger_index bigint not null
);
comment on table accepted_rewinds is 'Rewinds that somebody accepted, each with an entry in the ledger. Append-only.';
comment on column accepted_rewinds.id is 'Which.';
comment on column accepted_rewinds.tenant is 'Whose ledger.';
comment on column accepted_rewinds.ledger_index is 'Index of the policy statement that says who accepted it, when and why.';

do $$
declare
  name text;
begin
  foreach name in array array['cosignatures', 'cosigned_checkpoints', 'cosigned_proofs', 'time_stamps', 'rewinds', 'accepted_rewinds'] loop
    execute format('create trigger %I before update or delete on %I for each row execute function refuse_change()', name || '_append_only', name);
    execute format('create trigger %I before truncate on %I for each statement execute function refuse_change()', name || '_no_truncate', name);
    execute format('grant select, insert on %I to onrecord_app', name);
  end loop;
  -- Not rewinds: each process asks once a second which tenants have any, and they tell nothing but sizes and roots.
  foreach name in array array['cosignatures', 'cosigned_checkpoints', 'cosigned_proofs', 'time_stamps'] loop
    execute format('alter table %I enable row level security', name);
    execute format('create policy of_tenant on %I
      using (coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false))
      with check (coalesce(tenant = (select current_setting(''onrecord.tenant'', true)), false))', name);
  end loop;
end
$$;
