#!/usr/bin/python3
"""A fault proxy before the Kubernetes API server: it delays, refuses, cuts, swallows, re-cuts and forges what
passes.

    kfault.py --listen HOST:PORT --upstream URL --control SOCKET [TLS options] [--trace FILE] [--seed N]
    kfault.py --ask SOCKET '{"do": "trace"}'

It is told what to do over a Unix socket: one JSON object a line in, one JSON line back (class Control speaks
it).

    {"do": "add", "rule": RULE}               -> {"id": 1}
    {"do": "remove", "id": 1}                 also releases what the rule holds
    {"do": "clear"}                           all rules
    {"do": "wait", "id": 1, "hits": 1, "timeout": 10}    until applied (or holding) so often -> {"hits": 1}
    {"do": "release", "id": 1}                lets go what a rule holds now
    {"do": "cut", "match": MATCH}             cuts all streams that are open now and match -> {"cut": 2}
    {"do": "trace"}                           -> {"trace": [one object per request]}

RULE is {"match": MATCH, "after": 0, "times": N, "rate": 0.1, "action": ACTION}. The first rule that matches a
request applies. `after` lets that many matching requests pass first, `times` ends the rule after so many
hits, `rate` applies it by chance, from the seed. MATCH names any of verb, group, resource, subresource,
namespace, name, user_agent (the last as a part of it); a value is a text or a list of texts. Verbs are those
of RBAC, and "write" and "read" for all of them.

ACTION holds any of these together:
    delay: SECONDS         before the request is passed on
    status: CODE           answered here, never passed on; with retry_after: SECONDS and reason: TEXT
    refuse: true           the connection ends before the request is passed on
    swallow: true          passed on; the answer is read and the connection ends instead of bringing it
    hold: "before"         the request waits here until released, or until its client is gone, which drops it
    hold: "after"          the same once the API server has answered: done, but the client does not know
    cut: BYTES             the connection ends after so many bytes of the answer's body
    rechunk: BYTES         the body goes on in pieces of this size
    slow: BYTES_PER_SECOND
    drop_bookmarks: true   a watch's bookmark events are left out
    drop_events: MATCH     a watch's events are left out by {"type", "name"}
    expire: N              after N events a watch gets an ERROR event 410 Expired and ends

Callers keep their identity: a bearer token goes through as it is; a client certificate (--client-ca) becomes
the front proxy's headers, sent with the front proxy's own certificate (--front-proxy-cert,
--front-proxy-key).
"""
import argparse
import asyncio
import contextlib
import json
import random
import socket
import ssl
import sys
import time
import urllib.parse

WRITES = {"create", "update", "patch", "delete", "deletecollection"}
READS = {"get", "list", "watch"}
PIECE = 65536
HEAD_MAX = 65536
BODY_MAX = 16 << 20
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-connection"}
FORGED = ("x-remote-user", "x-remote-group", "x-remote-extra-")  # only we may say these upstream
REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
           422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable",
           504: "Timeout"}


class Gone(Exception):
    """One side has ended the connection, or broke the protocol so that it has to end."""


# ---- What a request is about ----

def describe(method, target):
    """The request as RBAC sees it. {"verb": ..., "resource": "" ...} for a path that is no resource's."""
    url = urllib.parse.urlsplit(target)
    parts = [urllib.parse.unquote(part) for part in url.path.split("/") if part]
    about = dict.fromkeys(("group", "resource", "subresource", "namespace", "name"), "")
    if parts[:1] == ["api"]:
        rest = parts[2:]
    elif parts[:1] == ["apis"]:
        about["group"] = parts[1] if len(parts) > 1 else ""
        rest = parts[3:]
    else:
        rest = []
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        about["namespace"], rest = rest[1], rest[2:]
    for key, value in zip(("resource", "name", "subresource"), rest):
        about[key] = value
    watch = urllib.parse.parse_qs(url.query).get("watch", ["false"])[0] in ("1", "true")
    about["verb"] = {
        "GET": "watch" if watch else "get" if about["name"] or not about["resource"] else "list",
        "POST": "create",
        "PUT": "update",
        "PATCH": "patch",
        "DELETE": "delete" if about["name"] else "deletecollection",
    }.get(method, method.lower())
    return about


def wanted(value, having):
    return having in ([value] if isinstance(value, str) else value)


def matches(match, about, user_agent=""):
    for key, value in match.items():
        if key == "verb":
            groups = {"write"} if about["verb"] in WRITES else {"read"} if about["verb"] in READS else set()
            if not any(wanted(value, verb) for verb in groups | {about["verb"]}):
                return False
        elif key == "user_agent":
            if value not in user_agent:
                return False
        elif not wanted(value, about.get(key, "")):
            return False
    return True


# ---- Rules ----

MATCH_KEYS = {"verb", "group", "resource", "subresource", "namespace", "name", "user_agent"}
RULE_KEYS = {"match", "after", "times", "rate", "action"}
ACTION_KEYS = {"delay", "status", "retry_after", "reason", "refuse", "swallow", "hold", "cut", "rechunk",
               "slow", "drop_bookmarks", "drop_events", "expire"}


def check_keys(what, given, known):
    if not isinstance(given, dict):
        raise ValueError(f"{what} is an object, not {given!r}")
    for key in given:
        if key not in known:
            raise ValueError(f"{what} has no {key!r}: {', '.join(sorted(known))}")


class Rule:
    def __init__(self, number, spec):
        check_keys("a rule", spec, RULE_KEYS)
        check_keys("match", spec.get("match", {}), MATCH_KEYS)
        check_keys("action", spec.get("action", {}), ACTION_KEYS)
        if spec.get("action", {}).get("hold", "before") not in ("before", "after"):
            raise ValueError('hold is "before" or "after"')
        self.number = number
        self.match = spec.get("match", {})
        self.after = spec.get("after", 0)
        self.times = spec.get("times")
        self.rate = spec.get("rate", 1)
        self.action = spec.get("action", {})
        self.seen = 0
        self.hits = 0     # requests that it was chosen for
        self.reached = 0  # of these, how many it holds or has held; all of them when it holds none
        self.changed = asyncio.Event()
        self.released = asyncio.Event()

    def applies(self, about, user_agent, chance):
        if not matches(self.match, about, user_agent) or (self.times is not None and self.hits >= self.times):
            return False
        self.seen += 1
        if self.seen <= self.after or chance.random() >= self.rate:
            return False
        return True

    def reach(self):
        self.reached += 1
        self.changed.set()

    def release(self):
        """Lets those go that wait now; who comes later waits again."""
        self.released.set()
        self.released = asyncio.Event()


# ---- HTTP/1.1 ----

class Head:
    def __init__(self, first, headers):
        self.first = first      # ["GET", "/x", "HTTP/1.1"] or ["HTTP/1.1", "200", "OK"]
        self.headers = headers  # [(name, value)] in order

    def get(self, name, default=""):
        return next((value for key, value in self.headers if key.lower() == name), default)

    def end_to_end(self):
        return [(key, value) for key, value in self.headers if key.lower() not in HOP_BY_HOP]

    def chunked(self):
        return "chunked" in self.get("transfer-encoding").lower()


async def read_head(reader):
    """None when the other side ended the connection between two messages."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise Gone("half a head") from error
        return None
    except asyncio.LimitOverrunError as error:
        raise Gone("a head too long") from error
    lines = text.decode("latin-1").split("\r\n")
    headers = []
    for line in lines[1:]:
        if line:
            name, colon, value = line.partition(":")
            if not colon:
                raise Gone("a header without colon")
            headers.append((name.strip(), value.strip()))
    first = lines[0].split(" ", 2)
    if len(first) < 2:
        raise Gone("a head without its first line")
    return Head(first, headers)


async def body_pieces(reader, head, until_end):
    """The body, piece by piece as it arrives. `until_end`: without a length it ends with the connection."""
    if head.chunked():
        while True:
            line = await reader.readuntil(b"\r\n")
            left = int(line.split(b";")[0], 16)
            if left == 0:
                while await reader.readuntil(b"\r\n") != b"\r\n":
                    pass
                return
            while left:
                piece = await reader.read(min(left, PIECE))
                if not piece:
                    raise Gone("a body cut short")
                left -= len(piece)
                yield piece
            await reader.readexactly(2)
    elif head.get("content-length"):
        left = int(head.get("content-length"))
        while left:
            piece = await reader.read(min(left, PIECE))
            if not piece:
                raise Gone("a body cut short")
            left -= len(piece)
            yield piece
    elif until_end:
        while piece := await reader.read(PIECE):
            yield piece


def render(first, headers):
    lines = [first] + [f"{key}: {value}" for key, value in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def status_object(code, reason):
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": reason or REASONS.get(code, "Unknown"), "message": f"injected by kfault: {code}"}


# ---- What an action does to a body ----

async def lines_of(pieces):
    """A watch's events, one per line."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


async def filtered_events(pieces, action):
    passed = 0
    limit = action.get("expire")
    if limit == 0:
        yield expired_event()
        return
    async for line in lines_of(pieces):
        try:
            event = json.loads(line)
        except ValueError:
            yield line
            continue
        kind = event.get("type", "")
        name = event.get("object", {}).get("metadata", {}).get("name", "")
        about = {"type": kind, "name": name}
        unwanted = action.get("drop_events")
        if kind == "BOOKMARK" and action.get("drop_bookmarks"):
            continue
        if unwanted is not None and all(wanted(v, about.get(k, "")) for k, v in unwanted.items()):
            continue
        yield line
        passed += 1
        if passed == limit:
            yield expired_event()
            return


def expired_event():
    return json.dumps({"type": "ERROR", "object": status_object(410, "Expired")}).encode() + b"\n"


async def recut(pieces, size):
    rest = b""
    async for piece in pieces:
        rest += piece
        while len(rest) >= size:
            yield rest[:size]
            rest = rest[size:]
        if rest:  # what is left waits for nobody: a stream may be silent for minutes
            yield rest
            rest = b""


async def slowed(pieces, rate):
    async for piece in pieces:
        await asyncio.sleep(len(piece) / rate)
        yield piece


def shaped(pieces, action, verb):
    if verb == "watch" and action.keys() & {"drop_bookmarks", "drop_events", "expire"}:
        pieces = filtered_events(pieces, action)
    if action.get("rechunk"):
        pieces = recut(pieces, action["rechunk"])
    if action.get("slow"):
        pieces = slowed(recut(pieces, max(1, int(action["slow"] / 10))), action["slow"])
    return pieces


# ---- The proxy ----

class Exchange:
    """One request and its answer."""

    def __init__(self, head, about, client):
        self.head = head
        self.about = about
        self.client = client  # the connection it came on
        self.rule = None
        self.status = 0
        self.sent = 0
        self.began = time.time()
        self.note = ""

    @property
    def action(self):
        return self.rule.action if self.rule else {}

    def trace(self):
        return {**self.about, "path": self.head.first[1], "status": self.status, "bytes": self.sent,
                "rule": self.rule and self.rule.number, "began": self.began, "ended": time.time(),
                "note": self.note, "user_agent": self.head.get("user-agent")}


class Proxy:
    def __init__(self, upstream, tls_upstream=None, tls_front=None, seed=0, trace=None):
        self.host, self.port = upstream.hostname, upstream.port or (443 if upstream.scheme == "https" else 80)
        self.tls_upstream, self.tls_front = tls_upstream, tls_front
        self.chance = random.Random(seed)
        self.rules = {}
        self.numbers = 0
        self.open = set()
        self.done = []
        self.trace_file = trace

    def add(self, spec):
        self.numbers += 1
        self.rules[self.numbers] = Rule(self.numbers, spec)
        return self.numbers

    def remove(self, number):
        self.rules.pop(number).release()

    def rule_for(self, exchange):
        agent = exchange.head.get("user-agent")
        for rule in self.rules.values():
            if rule.applies(exchange.about, agent, self.chance):
                rule.hits += 1
                if "hold" not in rule.action:
                    rule.reach()
                return rule
        return None

    def finish(self, exchange):
        self.open.discard(exchange)
        entry = exchange.trace()
        self.done.append(entry)
        if self.trace_file:
            print(json.dumps(entry), file=self.trace_file, flush=True)

    async def serve(self, reader, writer):
        """A client's connection, request after request."""
        try:
            while (head := await read_head(reader)) is not None:
                exchange = Exchange(head, describe(head.first[0], head.first[1]), writer)
                self.open.add(exchange)
                try:
                    keep = await self.exchange(exchange, reader, writer)
                finally:
                    self.finish(exchange)
                if not keep or head.get("connection").lower() == "close":
                    break
        except (Gone, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the trace has it; the other side sees the connection end
        finally:
            with contextlib.suppress(OSError, RuntimeError):
                writer.transport.abort()

    async def exchange(self, exchange, reader, writer):
        """Whether the connection can carry another request."""
        head = exchange.head
        body = b""
        if head.get("expect").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for piece in body_pieces(reader, head, until_end=False):
            body += piece
            if len(body) > BODY_MAX:
                raise Gone("a request too long")
        if head.get("upgrade") and head.get("upgrade").lower() != "h2c":
            return await self.answer(exchange, writer, 501, {"reason": "kfault carries no upgrades"})
        exchange.rule = self.rule_for(exchange)
        action = exchange.action
        if action.get("delay"):
            await asyncio.sleep(action["delay"])
        if action.get("hold") == "before":
            await self.hold(exchange, reader)
        if action.get("refuse"):
            raise Gone(self.noted(exchange, "refused"))
        if action.get("status"):
            return await self.answer(exchange, writer, action["status"], action)
        return await self.forward(exchange, body, reader, writer)

    @staticmethod
    def noted(exchange, note):
        exchange.note = note
        return note

    async def hold(self, exchange, reader):
        """Waits for the release. A client that is gone meanwhile takes its request with it."""
        released = asyncio.ensure_future(exchange.rule.released.wait())
        await asyncio.sleep(0)  # it waits now: a release that comes from here on is not missed
        exchange.rule.reach()
        ended = asyncio.ensure_future(client_gone(reader))
        await asyncio.wait({released, ended}, return_when=asyncio.FIRST_COMPLETED)
        gone = ended.done() and not released.done()
        released.cancel()
        ended.cancel()
        if gone:
            raise Gone(self.noted(exchange, "the client left while it was held"))

    async def answer(self, exchange, writer, code, action):
        body = json.dumps(status_object(code, action.get("reason"))).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", len(body))]
        if "retry_after" in action:
            headers.append(("Retry-After", action["retry_after"]))
        writer.write(render(f"HTTP/1.1 {code} {REASONS.get(code, 'Injected')}", headers) + body)
        await writer.drain()
        exchange.status, exchange.sent, exchange.note = code, len(body), exchange.note or "answered here"
        return True

    def upstream_head(self, exchange, body):
        """The request as it goes on, and with which certificate."""
        head = exchange.head
        ours = ("host", "content-length", "expect")
        headers = [(k, v) for k, v in head.end_to_end() if k.lower() not in ours]
        headers = [(k, v) for k, v in headers if not k.lower().startswith(FORGED)]
        headers += [("Host", f"{self.host}:{self.port}"), ("Connection", "close")]
        if body or head.first[0] in ("POST", "PUT", "PATCH"):
            headers.append(("Content-Length", len(body)))
        tls = self.tls_upstream
        subject = exchange.client.get_extra_info("peercert") if self.tls_front else None
        if subject and not head.get("authorization"):
            tls = self.tls_front
            for field in (pair for group in subject["subject"] for pair in group):
                name = {"commonName": "X-Remote-User", "organizationName": "X-Remote-Group"}.get(field[0])
                if name:
                    headers.append((name, field[1]))
        return render(f"{head.first[0]} {head.first[1]} HTTP/1.1", headers), tls

    async def forward(self, exchange, body, reader, writer):
        request, tls = self.upstream_head(exchange, body)
        try:
            streams = await asyncio.open_connection(self.host, self.port, ssl=tls, limit=HEAD_MAX)
        except OSError as error:
            reason = f"kfault cannot reach the API server: {error}"
            return await self.answer(exchange, writer, 502, {"reason": reason})
        up_reader, up_writer = streams
        try:
            up_writer.write(request + body)
            await up_writer.drain()
            answer = await read_head(up_reader)
            if answer is None:
                raise Gone(self.noted(exchange, "the API server ended the connection"))
            exchange.status = int(answer.first[1])
            return await self.pass_on(exchange, answer, up_reader, reader, writer)
        finally:
            up_writer.transport.abort()

    async def pass_on(self, exchange, answer, up_reader, reader, writer):
        action = exchange.action
        empty = exchange.head.first[0] == "HEAD" or exchange.status in (204, 304)
        pieces = empty_body() if empty else body_pieces(up_reader, answer, until_end=True)
        if action.get("hold") == "after":
            await self.hold(exchange, reader)
        if action.get("swallow"):
            async for _ in pieces:
                pass
            raise Gone(self.noted(exchange, "swallowed"))
        headers = [(k, v) for k, v in answer.end_to_end() if k.lower() != "content-length"]
        if not empty:
            headers.append(("Transfer-Encoding", "chunked"))
        writer.write(render(" ".join(answer.first), headers))
        pieces = shaped(pieces, action, exchange.about["verb"])
        await self.stream(exchange, pieces, reader, writer, action.get("cut"))
        if not empty:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def stream(self, exchange, pieces, reader, writer, cut):
        """Sends the body on; ends as soon as the client does, however silent the stream is."""
        async def pump():
            async for piece in pieces:
                if cut is not None and exchange.sent + len(piece) >= cut:
                    piece = piece[: cut - exchange.sent]
                    exchange.sent += len(piece)
                    writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
                    writer.close()
                    await writer.wait_closed()  # what was written so far has left; the body's end never comes
                    raise Gone(self.noted(exchange, "cut"))
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
                exchange.sent += len(piece)

        pumping = asyncio.ensure_future(pump())
        if exchange.about["verb"] != "watch":
            return await pumping
        ended = asyncio.ensure_future(client_gone(reader))
        await asyncio.wait({pumping, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not pumping.done():
            pumping.cancel()
            raise Gone(self.noted(exchange, "the client left"))
        return await pumping

    def cut(self, match):
        check_keys("match", match, MATCH_KEYS)
        victims = [e for e in self.open if matches(match, e.about, e.head.get("user-agent"))]
        for exchange in victims:
            exchange.note = "cut"
            exchange.client.transport.abort()
        return len(victims)


async def empty_body():
    return
    yield  # makes this a generator


async def client_gone(reader):
    """Until the client ends the connection. A client that sends its next request too early is not gone."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.05)


# ---- Control ----

class ControlServer:
    def __init__(self, proxy):
        self.proxy = proxy

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                try:
                    answer = await self.do(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    answer = {"error": f"{type(error).__name__}: {error}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def do(self, order):
        proxy = self.proxy
        what = order["do"]
        if what == "add":
            return {"id": proxy.add(order["rule"])}
        if what == "remove":
            proxy.remove(order["id"])
        elif what == "clear":
            for number in list(proxy.rules):
                proxy.remove(number)
        elif what == "release":
            proxy.rules[order["id"]].release()
        elif what == "cut":
            return {"cut": proxy.cut(order.get("match", {}))}
        elif what == "trace":
            return {"trace": proxy.done}
        elif what == "wait":
            return await self.wait(proxy.rules[order["id"]], order.get("hits", 1), order.get("timeout", 10))
        else:
            raise ValueError(f"no order is called {what!r}")
        return {}

    @staticmethod
    async def wait(rule, hits, timeout):
        deadline = time.monotonic() + timeout
        while rule.reached < hits and (left := deadline - time.monotonic()) > 0:
            rule.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(rule.changed.wait(), left)
        return {"hits": rule.reached}


class Control:
    """A test's end of the control socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rwb")

    def ask(self, do, **more):
        self.file.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.file.flush()
        answer = json.loads(self.file.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer

    def add(self, action, match=None, **more):
        return self.ask("add", rule={"match": match or {}, "action": action, **more})["id"]

    def wait(self, number, hits=1, timeout=10):
        return self.ask("wait", id=number, hits=hits, timeout=timeout)["hits"]

    def close(self):
        self.file.close()
        self.socket.close()


# ---- Start ----

def client_tls(ca, certificate=None, key=None):
    context = ssl.create_default_context(cafile=ca)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def server_tls(args):
    if not args.cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(args.cert, args.key)
    context.set_alpn_protocols(["http/1.1"])
    if args.client_ca:
        context.load_verify_locations(args.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def use_cluster(args):
    """Fills in what the test cluster's folder answers."""
    pki = f"{args.cluster}/pki"
    args.upstream = args.upstream or "https://198.18.0.10:6443"
    for name, file in (("cert", "apiserver.crt"), ("key", "apiserver.key"), ("client_ca", "ca.crt"),
                       ("upstream_ca", "ca.crt"), ("front_proxy_cert", "front-proxy.crt"),
                       ("front_proxy_key", "front-proxy.key")):
        if not getattr(args, name):
            setattr(args, name, f"{pki}/{file}")


async def run(args):
    upstream = urllib.parse.urlsplit(args.upstream)
    tls = client_tls(args.upstream_ca) if upstream.scheme == "https" else None
    front = None
    if args.front_proxy_cert:
        front = client_tls(args.upstream_ca, args.front_proxy_cert, args.front_proxy_key)
    with contextlib.ExitStack() as files:
        trace = files.enter_context(open(args.trace, "a", encoding="utf-8")) if args.trace else None
        proxy = Proxy(upstream, tls, front, args.seed, trace)
        host, _, port = args.listen.rpartition(":")
        tls = server_tls(args)
        server = await asyncio.start_server(proxy.serve, host, int(port), ssl=tls, limit=HEAD_MAX)
        await asyncio.start_unix_server(ControlServer(proxy).serve, args.control, limit=BODY_MAX)
        print(f"kfault: seed {args.seed}, listening on port {server.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.Event().wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT; port 0: a free one, printed")
    parser.add_argument("--upstream", help="https://HOST:PORT of the API server")
    parser.add_argument("--control", help="the Unix socket to be told by")
    parser.add_argument("--cluster", help="folder of the test cluster, for address and certificates")
    for name in ("cert", "key", "client-ca", "upstream-ca", "front-proxy-cert", "front-proxy-key", "trace"):
        parser.add_argument(f"--{name}", metavar="FILE")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ask", nargs=2, metavar=("SOCKET", "ORDER"), help="give a running kfault one order")
    args = parser.parse_args()
    try:
        if args.ask:
            order = json.loads(args.ask[1])
            print(json.dumps(Control(args.ask[0]).ask(order.pop("do"), **order)))
            return 0
        if args.cluster:
            use_cluster(args)
        if not args.upstream or not args.control:
            parser.error("--upstream (or --cluster) and --control are needed")
        asyncio.run(run(args))
    except KeyboardInterrupt:
        pass
    except (OSError, ValueError, KeyError) as error:
        print(f"kfault: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
