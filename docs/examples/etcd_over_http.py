"""Three etcd members that compose brings up, as lock service and store, over their JSON gateway."""
import base64
import contextlib
import http.client
import json
from harness import Grant, RefusedError, Server, Stored

def ask(place, timeout_s, path, **body):
    line = http.client.HTTPConnection(place.address, place.port, timeout=timeout_s)
    line.request("POST", f"/v3/{path}", json.dumps(body))
    with line.getresponse() as answer:
        said = json.loads(answer.read())
    if answer.status != 200:
        raise OSError(said.get("message", "no reason given"))
    return said

def coded(text):
    return base64.b64encode(text.encode()).decode()

class Client:
    def __init__(self, cluster, timeout_s):
        self.places, self.timeout_s = list(cluster.places), timeout_s
    def ask(self, path, **body):
        try:
            return ask(self.places[0], self.timeout_s, path, **body)
        except (OSError, http.client.HTTPException):
            self.places.append(self.places.pop(0))  # no second try; another member next time
            raise
    def txn(self, lock, revision, refusal, then):
        compare = {"key": coded(lock), "target": "CREATE", "createRevision": str(revision)}
        said = self.ask("kv/txn", compare=[compare], success=[then])
        if not said.get("succeeded"):
            raise RefusedError(refusal)
        return int(said["header"]["revision"])
    def acquire(self, key, ttl_s):
        lease = self.ask("lease/grant", TTL=str(round(ttl_s)))
        put = {"requestPut": {"key": coded(key), "lease": lease["ID"]}}
        return Grant(key, self.txn(key, 0, "held", put), float(lease["TTL"]), lease["ID"])
    def renew(self, grant):
        if "TTL" not in self.ask("lease/keepalive", ID=grant.handle)["result"]:
            raise RefusedError("not-holder")
    def release(self, grant):
        then = {"requestDeleteRange": {"key": coded(grant.key)}}
        self.txn(grant.key, grant.token, "not-holder", then)
    def read(self, key):
        found = self.ask("kv/range", key=coded(f"data/{key}")).get("kvs")
        return Stored(*json.loads(base64.b64decode(found[0]["value"]))) if found else None
    def write(self, key, value, token):
        self.ask("kv/put", key=coded(f"data/{key}"), value=coded(json.dumps([value, token])))
    def close(self): ...

class Etcd:
    name, fence = "etcd-over-http", "none"
    def servers(self):
        return [Server(f"etcd{n}", argv=[], port=2379) for n in (1, 2, 3)]
    def lock(self, cluster, timeout_s):
        return Client(cluster, timeout_s)
    store = lock
    def leader(self, cluster):
        for place in cluster.places:
            with contextlib.suppress(OSError):
                said = ask(place, 0.5, "maintenance/status")
                if said.get("leader") == said["header"]["member_id"]:
                    return place.name
