"""A lock service of your own, server and client: leases in memory, with fencing tokens."""
import asyncio
import json
import socket
import sys
import time
from harness import Grant, RefusedError, Server

LEASES = {}  # the server's memory: key -> (last token, when its lease ends)

async def serve(reader, writer):
    do, key, token, ttl_s = json.loads(await reader.readline())
    last, end_s = LEASES.get(key, (0, 0.0))
    held = time.monotonic() < end_s
    yes = not held if do == "acquire" else held and token == last
    if yes:
        last += do == "acquire"
        LEASES[key] = (last, 0.0 if do == "release" else time.monotonic() + ttl_s)
    writer.write(json.dumps([yes, last]).encode() + b"\n")
    writer.close()

class Client:
    def __init__(self, place, timeout_s):
        self.address, self.timeout_s = (place.address, place.port), timeout_s
    def ask(self, do, key, token, ttl_s):
        with socket.create_connection(self.address, self.timeout_s) as connection:
            connection.sendall(json.dumps([do, key, token, ttl_s]).encode() + b"\n")
            yes, last = json.loads(connection.makefile().readline())
        if not yes:
            raise RefusedError("held" if do == "acquire" else "not-holder")
        return last
    def acquire(self, key, ttl_s):
        return Grant(key, token=self.ask("acquire", key, None, ttl_s), ttl_s=ttl_s)
    def renew(self, grant):
        self.ask("renew", grant.key, grant.token, grant.ttl_s)
    def release(self, grant):
        self.ask("release", grant.key, grant.token, grant.ttl_s)
    def close(self): ...

class MyLock:
    name = "mylock"
    def servers(self):
        return [Server("mylock1", [sys.executable, __file__, "{address}"], port=7300)]
    def lock(self, cluster, timeout_s):
        return Client(cluster["mylock1"], timeout_s)
if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    loop.run_until_complete(asyncio.start_server(serve, sys.argv[1], 7300))
    loop.run_forever()
