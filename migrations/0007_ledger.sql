-- The ledger as a log that anybody can follow.

-- A log is asked for by the id at the end of its origin, since that is all of the origin that its addresses have.
create unique index tenants_log on tenants (substring(origin from '[^/]*$'));
comment on index tenants_log is 'Finds the tenant of a ledger by the last step of its origin.';
