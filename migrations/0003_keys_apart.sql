-- The keys of runs are in the schema `keys` (migrations/keys), which may be in another database. The program copies them
-- there, compares them, and says how many there were; what was added since stops this, and the program does it again.
do $$
declare
  kept bigint;
begin
  lock table run_keys in access exclusive mode;
  select count(*) into kept from run_keys;
  if kept > 0 and current_setting('onrecord.run_keys_moved', true) is distinct from kept::text then
    raise exception 'onrecord: % keys of runs are not moved yet; stop all servers and run `onrecord migrate`', kept;
  end if;
end
$$;
drop table run_keys;
