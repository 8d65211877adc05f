#!/usr/bin/python3
"""A small Kubernetes API server for tests: objects, versions, lists in pages, watches, and faults on demand.

usage: fake_api.py FOLDER, with ca.crt, tls.crt and tls.key in it. Prints its port, ends when its stdin does.
POST /_control {"do": ...} steers it, see World.control. HTTP/1.1 over TLS, Python's own library only.
"""
import http.server
import json
import os
import re
import socket
import ssl
import sys
import threading
import urllib.parse

PATH = re.compile(r"^/(?:api/v1|apis/([^/]+)/([^/]+))(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?$")


class World:
    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Condition()
        self.objects = {}  # plural -> {(namespace, name): object}
        self.pages = {}  # plural -> (version, objects) of the list that is being read
        self.log = []  # (version, plural, type, object)
        self.version = 1
        self.oldest = 0  # watches from before are gone
        self.rules = []
        self.trace = []
        self.tokens = None
        self.generation = 0  # raised to end what hangs
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_verify_locations(os.path.join(folder, "ca.crt"))
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.reload()

    def reload(self):
        self.tls.load_cert_chain(os.path.join(self.folder, "tls.crt"), os.path.join(self.folder, "tls.key"))

    def change(self, plural, kind, obj):
        self.version += 1
        obj = json.loads(json.dumps(obj))
        obj["metadata"]["resourceVersion"] = str(self.version)
        key = (obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        if kind == "DELETED":
            self.objects[plural].pop(key)
        else:
            self.objects.setdefault(plural, {})[key] = obj
        self.log.append((self.version, plural, kind, obj))
        self.lock.notify_all()
        return obj

    def put(self, plural, obj):
        meta = obj.setdefault("metadata", {})
        old = self.objects.get(plural, {}).get((meta.get("namespace", ""), meta["name"]))
        meta["uid"] = old["metadata"]["uid"] if old else meta.get("uid", "uid-%d" % self.version)
        return self.change(plural, "MODIFIED" if old else "ADDED", obj)

    def control(self, order):
        """Called with the lock held; returns what is answered."""
        do = order["do"]
        if do == "rules":  # [{match: regex over "METHOD path", times: 1, action: {...}}]
            self.rules = order["rules"]
        elif do == "put":
            return self.put(order["plural"], order["object"])
        elif do == "fill":  # many small ones
            for i in range(order["from"], order["to"]):
                self.put(order["plural"], {"metadata": {"namespace": "a", "name": "o-%d" % i}})
        elif do == "delete":
            self.change(order["plural"], "DELETED", self.objects[order["plural"]][("a", order["name"])])
        elif do == "forget":  # the log: watches from any version but the newest are gone
            self.log = []
            self.oldest = self.version
        elif do == "bookmark":
            self.version += 1
            self.log.append((self.version, order["plural"], "BOOKMARK",
                             {"metadata": {"resourceVersion": str(self.version)}}))
        elif do == "tokens":
            self.tokens = order["tokens"]
        elif do == "reload":
            self.reload()
        elif do == "trace":
            return self.trace
        elif do == "release":
            self.generation += 1
        else:
            raise ValueError(do)
        self.lock.notify_all()
        return {}


class Cut(Exception):
    """The connection is to be closed, whatever was promised."""


def status(code, reason, message, details=None):
    return code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                  "reason": reason, "details": details or {}, "code": code}


def merge(old, patch):
    if not isinstance(patch, dict):
        return patch
    out = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 0
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def setup(self):
        self.request.settimeout(None)
        self.request = self.server.world.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def do(self):
        self.action = {}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self.answer()
        except (Cut, BrokenPipeError, ConnectionError, ssl.SSLError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

    def answer(self):
        w = self.server.world
        with w.lock:
            if self.path == "/_control":
                return self.send_json(200, w.control(json.loads(self.body)))
            entry = self.note(w)
            self.generation = w.generation
            self.action = self.find_action(w)
        if self.action.get("hang"):
            self.hang()
        if "status" in self.action:
            a = self.action
            code, body = status(a["status"], a.get("reason", ""), a.get("message", "made up"), a.get("details"))
            entry["code"] = code
            return self.send_json(code, body, a.get("retry_after"))
        with w.lock:
            allowed = w.tokens is None or self.headers.get("Authorization", "")[7:] in w.tokens
        if not allowed:
            entry["code"] = 401
            return self.send_json(*status(401, "Unauthorized", "Unauthorized"))
        self.route(w, entry)

    def note(self, w):
        peer = self.connection.getpeercert()
        name = [v for part in peer.get("subject", ()) for k, v in part if k == "commonName"] if peer else []
        entry = {"method": self.command, "path": self.path, "agent": self.headers.get("User-Agent", ""),
                 "token": self.headers.get("Authorization", "")[7:], "type": self.headers.get("Content-Type", ""),
                 "peer": name[0] if name else "", "body": self.body.decode(), "code": 0}
        w.trace.append(entry)
        return entry

    def find_action(self, w):
        for rule in w.rules:
            if rule.get("times", 1) > 0 and re.search(rule["match"], self.command + " " + self.path):
                rule["times"] = rule.get("times", 1) - 1
                return rule["action"]
        return {}

    def hang(self):
        w = self.server.world
        with w.lock:
            while w.generation == self.generation:
                w.lock.wait()

    # ---- Answers ----

    def send_json(self, code, body, retry_after=None):
        data = json.dumps(body).encode()
        if self.action.get("swallow"):
            raise Cut
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after is not None:
            self.send_header("Retry-After", str(retry_after))
        self.end_headers()
        if "cut" in self.action:
            self.wfile.write(data[:self.action["cut"]])
            raise Cut
        self.write_split(data, self.wfile.write)

    def write_split(self, data, write):
        step = self.action.get("split", len(data)) or 1
        for at in range(0, len(data), step):
            write(data[at:at + step])

    def start_stream(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def end_stream(self):
        self.wfile.write(b"0\r\n\r\n")

    # ---- The API ----

    def route(self, w, entry):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        entry["code"] = 200
        if url.path == "/version":
            return self.send_json(200, {"major": "1", "minor": "34"})
        found = PATH.match(url.path)
        if not found:
            return self.send_json(*status(404, "NotFound", "no such path"))
        _, _, ns, plural, name, sub = found.groups()
        if sub == "log":
            return self.log_stream(query)
        if self.command == "GET" and name is None and query.get("watch") == "1":
            return self.watch(w, plural, ns, query)
        with w.lock:
            code, body = self.serve(w, plural, ns, name, query)
        entry["code"] = code
        return self.send_json(code, body)

    def serve(self, w, plural, ns, name, query):
        if self.command == "GET" and name is None:
            return self.list(w, plural, ns, query)
        obj = json.loads(self.body) if self.body else {}
        name = name or obj.get("metadata", {}).get("name")
        old = w.objects.get(plural, {}).get((ns or "", name))
        if self.command == "POST":
            if old:
                return status(409, "AlreadyExists", '%s "%s" already exists' % (plural, name))
            obj.setdefault("metadata", {})["namespace"] = ns
            return 201, w.put(plural, obj)
        if old is None and "apply" not in self.headers.get("Content-Type", ""):
            return status(404, "NotFound", '%s "%s" not found' % (plural, name))
        if self.command == "GET":
            return 200, old
        if self.command == "DELETE":
            wanted = obj.get("preconditions", {})
            for key, value in wanted.items():
                if old["metadata"][key] != value:
                    return status(409, "Conflict", "the %s in the precondition is another one" % key)
            w.change(plural, "DELETED", old)
            return 200, {"kind": "Status", "status": "Success"}
        version = obj.get("metadata", {}).get("resourceVersion")
        if version is not None and version != old["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        if self.command == "PATCH":
            obj = merge(old, obj)
        obj["metadata"].update({"name": name, "namespace": ns})
        return 200, w.put(plural, obj)

    def list(self, w, plural, ns, query):
        """Later pages are of the moment of the first one, as those of the real server."""
        if "continue" not in query:
            every = w.objects.get(plural, {})
            w.pages[plural] = w.version, [every[k] for k in sorted(every) if ns is None or k[0] == ns]
        version, every = w.pages[plural]
        limit = int(query.get("limit", 0)) or len(every)
        start = int(query.get("continue", 0))
        meta = {"resourceVersion": str(version)}
        if start + limit < len(every):
            meta["continue"] = str(start + limit)
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": every[start:start + limit]}

    def watch(self, w, plural, ns, query):
        self.start_stream("application/json")
        if "frames" in self.action:
            for frame in self.action["frames"]:
                self.write_split(frame.encode(), self.chunk)
            while self.action.get("endless"):  # until the client has enough
                self.chunk(b"x" * 100000)
            then = self.action.get("then", "eof")
            if then == "cut":
                raise Cut
            if then == "hold":
                self.hang()
            return self.end_stream()
        seen = int(query["resourceVersion"])
        left = self.action.get("events", 1 << 30)
        while left > 0:
            with w.lock:
                while not (fresh := [e for e in w.log if e[0] > seen and e[1] == plural]) and seen >= w.oldest:
                    w.lock.wait()
                    if w.generation != self.generation:
                        return self.end_stream()
                if seen < w.oldest:
                    fresh = [(0, plural, "ERROR", status(410, "Expired", "too old resource version")[1])]
            for version, _, kind, obj in fresh[:left]:
                line = json.dumps({"type": kind, "object": obj}, ensure_ascii=False) + "\n"
                self.write_split(line.encode(), self.chunk)
                seen = max(seen, version)
                left -= 1
            if fresh[0][2] == "ERROR":
                break
        return self.end_stream()

    def log_stream(self, query):
        self.start_stream("text/plain")
        for i in range(3):
            self.chunk(b"line %d\n" % i)
        if query.get("follow") == "true":
            self.hang()
            self.chunk(b"last\n")
        self.end_stream()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a client that does not like our certificate


def end_with_parent():
    sys.stdin.buffer.read()
    os._exit(0)


def main():
    threading.Thread(target=end_with_parent, daemon=True).start()
    server = Server(("127.0.0.1", 0), Handler)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.world = World(sys.argv[1])
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
