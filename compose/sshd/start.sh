#!/bin/sh
# AUTHORIZED_KEY may log in as root, nobody else and with nothing else.
set -e
key=/etc/ssh/ssh_host_ed25519_key
[ -s "$key" ] || ssh-keygen -q -t ed25519 -N '' -f "$key"
folder=$(getent passwd root | cut -d: -f6)/.ssh
mkdir -p -m 700 "$folder"
printf '%s\n' "$AUTHORIZED_KEY" >"$folder/authorized_keys"
chmod 600 "$folder/authorized_keys"
exec /usr/sbin/sshd -D -e -o HostKey="$key" -o PasswordAuthentication=no \
  -o KbdInteractiveAuthentication=no -o PermitRootLogin=prohibit-password -o UseDNS=no
