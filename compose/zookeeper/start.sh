#!/bin/sh
# Writes the configuration from the variables that the official image knows; then PID 1 is the JVM.
set -e
mkdir -p /data /datalog
echo "${ZOO_MY_ID:-1}" >/data/myid
{
  echo "dataDir=/data"
  echo "dataLogDir=/datalog"
  echo "tickTime=${ZOO_TICK_TIME:-2000}"
  echo "initLimit=${ZOO_INIT_LIMIT:-5}"
  echo "syncLimit=${ZOO_SYNC_LIMIT:-2}"
  echo "admin.enableServer=${ZOO_ADMINSERVER_ENABLED:-true}"
  echo "4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}"
  for server in ${ZOO_SERVERS:-}; do echo "$server"; done
  [ -n "${ZOO_SERVERS:-}" ] || echo "clientPort=2181"
} >/tmp/zoo.cfg
# shellcheck disable=SC2086 - flags are words
exec java ${JVMFLAGS:-} -cp '/opt/zookeeper/*' \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
