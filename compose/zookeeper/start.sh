#!/bin/sh
# Writes the configuration from the variables that the official image knows; then PID 1 is the JVM.
set -e
data=${ZOO_DATA_DIR:-/data} logs=${ZOO_DATA_LOG_DIR:-/datalog}
mkdir -p "$data" "$logs"
echo "${ZOO_MY_ID:-1}" >"$data/myid"
{
  echo "dataDir=$data"
  echo "dataLogDir=$logs"
  echo "tickTime=${ZOO_TICK_TIME:-2000}"
  echo "initLimit=${ZOO_INIT_LIMIT:-5}"
  echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
  echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
  echo "maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}"
  for line in ${ZOO_CFG_EXTRA:-}; do echo "$line"; done
  echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
  for server in ${ZOO_SERVERS:-}; do echo "$server"; done
  [ -n "${ZOO_SERVERS:-}" ] || echo "clientPort=2181"
} >/tmp/zoo.cfg
# shellcheck disable=SC2086 - flags are words
exec java ${JVMFLAGS:-} -cp '/opt/zookeeper/*' \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
