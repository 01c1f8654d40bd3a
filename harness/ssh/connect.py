"""One SSH connection to one host, to the host key that the inventory gives and to no other.

Nothing else decides who is trusted: no agent, no keys that happen to lie about, no list of known
hosts.  TCP_USER_TIMEOUT lets the kernel give the connection up when a partition keeps anything from
being acknowledged; without it a reader waits for good.  A frozen host acknowledges, so it is found
by the heartbeat (`harness.ssh.link`).
"""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from harness.errors import HarnessError
from harness.ssh.carrier import END_S, LAST_S
from harness.ssh.inventory import Host, key_bytes

if TYPE_CHECKING:
    import paramiko

CONNECT_S = 10.0
_RECEIVE_BYTES = 1 << 18
_READ_BYTES = 1 << 16


def connect(host: Host, silence_s: float) -> "paramiko.SSHClient":
    """Return an authenticated connection.  Raises HarnessError with what to do."""
    import paramiko

    # It would print the trace of every refused connection; what matters is raised.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    key = _private_key(host)
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    if host.host_key is not None:
        public = _public_key(host, host.host_key)
        client.get_host_keys().add(host.address, public.get_name(), public)
    with _explained(host):
        connection = socket.create_connection((host.address, host.port), timeout=CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence_s * 1000))
        try:
            client.connect(
                host.address,
                username=host.user,
                pkey=key,
                sock=connection,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                allow_agent=False,
                look_for_keys=False,
            )
        except BaseException:
            client.close()
            connection.close()
            raise
    return client


def _public_key(host: Host, text: str) -> "paramiko.PKey":
    import paramiko

    try:
        return paramiko.PKey.from_type_string(*key_bytes(text))
    except Exception as error:  # paramiko and cryptography raise what they like for a torn key
        raise HarnessError(
            f"host {host.name}: the inventory's `host_key` is no public key: {error}"
        ) from error


def _private_key(host: Host) -> "paramiko.PKey":
    import paramiko

    if host.key is None:
        raise HarnessError(f"host {host.name}: the inventory names no `key`")
    try:
        return paramiko.PKey.from_path(host.key)
    except OSError as error:
        raise HarnessError(
            f"host {host.name}: the key {host.key} cannot be read: {error.strerror}"
        ) from error
    except paramiko.PasswordRequiredException as error:
        raise HarnessError(
            f"host {host.name}: the key {host.key} has a passphrase; a run asks nobody, so give it"
            " a key without one"
        ) from error
    except (paramiko.SSHException, ValueError, TypeError) as error:
        raise HarnessError(f"host {host.name}: {host.key} is no private key: {error}") from error


@contextmanager
def _explained(host: Host) -> Iterator[None]:
    """Turn whatever paramiko raises into a message for a person."""
    import paramiko

    where = f"host {host.name} ({host.address} port {host.port})"
    try:
        yield
    except paramiko.BadHostKeyException as error:
        raise HarnessError(f"{where}: {_other_key(error.key, error.expected_key)}") from error
    except paramiko.AuthenticationException as error:
        raise HarnessError(
            f"{where}: it refuses the key {host.key} for user {host.user}: is the public key in the"
            " user's authorized_keys there?"
        ) from error
    except TimeoutError as error:
        raise HarnessError(
            f"{where}: no answer within {CONNECT_S:g} s: it is down, cut off, or a firewall drops"
            " what comes"
        ) from error
    except paramiko.SSHException as error:
        raise HarnessError(f"{where}: {_spoken(error)}") from error
    except OSError as error:
        raise HarnessError(f"{where}: cannot be connected to: {error.strerror or error}") from error


def _other_key(found: "paramiko.PKey", expected: "paramiko.PKey") -> str:
    kind = found.get_name()
    if kind != expected.get_name():
        return (
            f"it offers a host key of type {kind}, the inventory has one of type"
            f" {expected.get_name()}: take the text of the other one on its console"
        )
    return (
        f"its host key is not the one of the inventory: found {kind} {found.fingerprint}, expected"
        f" {expected.fingerprint}; it was installed anew, or another machine answers: find out on"
        " its console before you change `host_key`"
    )


def _spoken(error: Exception) -> str:
    text = str(error)
    if "banner" in text or "No existing session" in text:  # nothing at all, or nothing any more
        return "it accepts connections and says nothing: it is frozen, or that is no sshd"
    if "not found in known_hosts" not in text:
        return f"no SSH connection: {text}"
    return (
        "the inventory has no `host_key` for it: take the text of its"
        " /etc/ssh/ssh_host_ed25519_key.pub on its console"
    )


class SshCarrier:
    """A command that runs on a host; see `harness.ssh.carrier.Carrier`."""

    def __init__(self, host: Host, silence_s: float, command: str) -> None:
        """Connect and start it.  Raises HarnessError."""
        self._client = connect(host, silence_s)
        self._said = b""
        self._closed = self._ended = False
        try:
            with _explained(host):
                transport = self._client.get_transport()
                assert transport is not None
                self._transport = transport
                self._channel = transport.open_session(timeout=CONNECT_S)
                self._channel.exec_command(command)
        except HarnessError:
            self._client.close()
            raise

    def send(self, data: bytes) -> None:
        """Send all of it; the channel's window is what may be full."""
        view = memoryview(data)
        while view:
            try:
                view = view[self._channel.send(view) :]
            except TimeoutError:
                if self._closed:
                    raise OSError("it was closed") from None

    def receive(self, wait_s: float) -> bytes:
        """Return what has come."""
        self._channel.settimeout(wait_s)
        data: bytes = self._channel.recv(_RECEIVE_BYTES)
        if not data and not self._transport.is_active():
            raise OSError(str(self._transport.get_exception() or "no acknowledgement came"))
        self._ended = not data
        return data

    def complaints(self) -> str:
        """Return what the command wrote to its standard error; all of it when it has ended."""
        if self._ended:
            self._channel.status_event.wait(LAST_S)
        while self._channel.recv_stderr_ready():
            self._said += self._channel.recv_stderr(_READ_BYTES)
        return self._said.decode("utf-8", "replace").strip()

    def await_end(self) -> None:
        """Wait until the command's exit status came, or 5 s are over."""
        self._channel.status_event.wait(END_S)

    def close(self) -> None:
        """Close the connection."""
        self._closed = True
        self._client.close()
