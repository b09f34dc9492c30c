#!/bin/sh
# Run once by the PostgreSQL image, when its volume is empty: the roles and the database.
# Any PostgreSQL can be prepared with it, as a superuser: PGHOST=… POSTGRES_USER=… OWNER_PASSWORD=…
# RUNTIME_PASSWORD=… deploy/compose-roles.sh
set -eu
psql -v ON_ERROR_STOP=1 --no-psqlrc --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres \
    --set owner="$OWNER_PASSWORD" --set runtime="$RUNTIME_PASSWORD" <<'SQL'
-- What the server works as: it owns nothing. The migrations give it its few rights.
create role onrecord_app nologin;
-- What it works as while it erases: it may remove payloads as well, and nothing else.
create role onrecord_eraser nologin in role onrecord_app;
-- Owns the tables and migrates them.
create role onrecord_owner login password :'owner';
-- What the server logs in as.
create role onrecord login password :'runtime' in role onrecord_app, onrecord_eraser;
create database onrecord owner onrecord_owner encoding 'UTF8' template template0 lc_collate 'C' lc_ctype 'C';
revoke all on database onrecord from public;
grant connect on database onrecord to onrecord;
\connect onrecord
revoke all on schema public from public;
grant usage on schema public to onrecord_app;
alter schema public owner to onrecord_owner;
SQL
