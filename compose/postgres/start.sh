#!/bin/sh
# Makes the data folder at the first start, as the official image does; then PID 1 is the server itself.
set -e
mkdir -p "$PGDATA"
chown -R postgres: "$(dirname "$PGDATA")"
chmod 700 "$PGDATA"
user() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  user initdb --username=postgres --encoding=UTF8 --no-locale --auth=trust >/dev/null
  echo "host all all all ${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$@" \
  -c listen_addresses='*' -c unix_socket_directories=/tmp
