#!/bin/sh
# As the official image: settings come as system properties and variables; PID 1 is the JVM.
set -e
# shellcheck disable=SC2086 - flags are words
exec java ${JAVA_OPTS:-} -cp '/opt/hazelcast/*' com.hazelcast.core.server.HazelcastMemberStarter
