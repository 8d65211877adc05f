#!/usr/bin/python3
"""kfault before a small HTTP server that plays the API server: what it does to requests, answers, watches."""
import http.client
import http.server
import json
import os
import queue
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import kfault

HERE = os.path.dirname(os.path.abspath(__file__))
PODS = "/api/v1/namespaces/ns/pods"
EVENTS = [
    {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "1"}}},
    {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "2"}}},
    {"type": "MODIFIED", "object": {"kind": "Pod", "metadata": {"name": "b", "resourceVersion": "3"}}},
    {"type": "DELETED", "object": {"kind": "Pod", "metadata": {"name": "a", "resourceVersion": "4"}}},
]


class Api(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked; a watch with EVENTS, then silence if the path says forever."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.requests.put((self.command, self.path, dict(self.headers), body))
        if "watch=1" in self.path:
            return self.watch()
        said = {"method": self.command, "path": self.path, "body": body, "pad": "x" * 500}
        text = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        return None

    def watch(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in EVENTS:
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if "forever" in self.path:
            self.server.ended.put(self.connection.recv(1))  # until the other side is gone
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


def make_certificates(folder):
    """A CA that signed itself, and one certificate from it that everybody here shows."""
    ca, leaf = os.path.join(folder, "ca"), os.path.join(folder, "leaf")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", "/CN=ca")
    openssl("req", *key, "-keyout", f"{leaf}.key", "-out", f"{leaf}.csr", "-subj", "/O=crew/CN=operator")
    with open(f"{leaf}.ext", "w", encoding="utf-8") as file:
        file.write("subjectAltName=IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", f"{leaf}.csr", "-CA", f"{ca}.crt", "-CAkey", f"{ca}.key",
            "-CAcreateserial", "-out", f"{leaf}.crt", "-extfile", f"{leaf}.ext")
    return f"{ca}.crt", f"{leaf}.crt", f"{leaf}.key"


class ApiServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a proxy that leaves early is what is tested here
            super().handle_error(request, client_address)


class Kfault(unittest.TestCase):
    tls = False

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.api = ApiServer(("127.0.0.1", 0), Api)
        self.api.requests, self.api.ended = queue.Queue(), queue.Queue()
        self.addCleanup(self.api.server_close)
        flags = self.prepare_tls() if self.tls else []
        self.thread = threading.Thread(target=self.api.serve_forever, args=(0.01,))
        self.thread.start()
        self.addCleanup(self.stop_api)
        self.start_kfault(flags)

    def prepare_tls(self):
        self.ca, cert, key = self.certificates = make_certificates(self.folder.name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.api.socket = context.wrap_socket(self.api.socket, server_side=True)
        return ["--cert", cert, "--key", key, "--client-ca", self.ca, "--upstream-ca", self.ca,
                "--front-proxy-cert", cert, "--front-proxy-key", key]

    def stop_api(self):
        self.api.shutdown()
        self.thread.join()

    def start_kfault(self, flags):
        path = os.path.join(self.folder.name, "control")
        self.trace = os.path.join(self.folder.name, "trace")
        scheme = "https" if self.tls else "http"
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "kfault.py"), *flags, "--control", path,
             "--trace", self.trace, "--upstream", f"{scheme}://127.0.0.1:{self.api.server_address[1]}"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end_kfault)
        self.port = int(self.process.stdout.readline().split()[-1])
        self.control = kfault.Control(path)
        self.addCleanup(self.control.close)

    def end_kfault(self):
        self.process.send_signal(signal.SIGINT)
        self.process.stdout.close()
        self.assertEqual(self.process.wait(10), 0)

    def connect(self, certificate=False):
        if not self.tls:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        else:
            context = ssl.create_default_context(cafile=self.ca)
            if certificate:
                context.load_cert_chain(*self.certificates[1:])
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)
        self.addCleanup(connection.close)
        return connection

    def call(self, method, path, body=None, headers=None, connection=None):
        connection = connection or self.connect()
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer, answer.read()

    def events(self, path=PODS + "?watch=1"):
        return [json.loads(line) for line in self.call("GET", path)[1].splitlines()]

    def seen(self):
        """How many requests have come to the API server."""
        return self.api.requests.qsize()


class WithoutRules(Kfault):
    def test_requests_and_answers_pass_unchanged_on_one_connection(self):
        connection = self.connect()
        for method in ("GET", "POST", "PATCH", "DELETE"):
            answer, body = self.call(method, PODS + "/a?x=1", "hello", {"Content-Type": "text/x"}, connection)
            self.assertEqual(answer.status, 200)
            self.assertEqual({**json.loads(body), "pad": ""},
                             {"method": method, "path": PODS + "/a?x=1", "body": "hello", "pad": ""})
            self.assertEqual(self.api.requests.get()[2]["Content-Type"], "text/x")

    def test_a_chunked_request_arrives_whole(self):
        _, body = self.call("POST", PODS, iter([b"one ", b"two"]))
        self.assertEqual(json.loads(body)["body"], "one two")

    def test_a_watch_passes_unchanged(self):
        self.assertEqual(self.events(), EVENTS)

    def test_a_client_that_leaves_a_silent_watch_frees_the_api_server(self):
        connection = self.connect()
        connection.request("GET", PODS + "?watch=1&forever")
        connection.getresponse().readline()
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        self.assertEqual(self.api.ended.get(timeout=10), b"")

    def test_the_trace_names_each_request_as_rbac_does(self):
        self.call("GET", PODS)
        job = "/apis/kunal.ml/v1alpha1/namespaces/ns/kunaljobs/j"
        self.call("PATCH", f"{job}/status", "{}", {"User-Agent": "me/1"})
        first, second = self.control.ask("trace")["trace"]
        self.assertEqual((first["verb"], first["resource"], first["namespace"]), ("list", "pods", "ns"))
        keys = ("verb", "group", "resource", "name", "subresource")
        self.assertEqual([second[key] for key in keys], ["patch", "kunal.ml", "kunaljobs", "j", "status"])
        self.assertEqual((second["status"], second["user_agent"], second["rule"]), (200, "me/1", None))
        with open(self.trace, encoding="utf-8") as file:
            self.assertEqual([json.loads(line) for line in file], [first, second])

    def test_an_api_server_that_is_gone_is_a_502(self):
        self.stop_api()
        self.api.server_close()
        answer, body = self.call("GET", PODS)
        self.assertEqual(answer.status, 502)
        self.assertIn("cannot reach the API server", json.loads(body)["reason"])


class Rules(Kfault):
    def test_an_injected_status_never_reaches_the_api_server(self):
        self.control.add({"status": 429, "retry_after": 7}, {"verb": "create"})
        answer, body = self.call("POST", PODS, "{}")
        self.assertEqual((answer.status, answer.headers["Retry-After"]), (429, "7"))
        body = json.loads(body)
        self.assertEqual((body["kind"], body["reason"]), ("Status", "TooManyRequests"))
        self.assertEqual(self.seen(), 0)
        self.assertEqual(self.call("GET", PODS)[0].status, 200)

    def test_a_rule_matches_by_name_namespace_resource_and_user_agent(self):
        match = {"resource": ["pods", "services"], "namespace": "ns", "name": "a", "user_agent": "operator"}
        self.control.add({"status": 500}, match)
        agent = {"User-Agent": "kunal-operator/1"}
        cases = [(PODS + "/a", agent, 500), (PODS + "/b", agent, 200), (PODS + "/a", {}, 200),
                 ("/api/v1/namespaces/other/pods/a", agent, 200),
                 ("/api/v1/namespaces/ns/services/a", agent, 500)]
        for path, headers, status in cases:
            self.assertEqual(self.call("GET", path, headers=headers)[0].status, status, path)

    def test_a_rule_hits_the_third_write_and_that_one_only(self):
        self.control.add({"status": 503}, {"verb": "write"}, after=2, times=1)
        codes = [self.call(m, PODS)[0].status for m in ("POST", "GET", "PUT", "PATCH", "DELETE", "POST")]
        self.assertEqual(codes, [200, 200, 200, 503, 200, 200])

    def test_a_rate_hits_some_requests_the_same_ones_with_the_same_seed(self):
        number = self.control.add({"status": 500}, rate=0.5)
        codes = [self.call("GET", PODS)[0].status for _ in range(40)]
        self.assertEqual(set(codes), {200, 500})
        self.assertEqual(self.control.wait(number, 0), codes.count(500))
        chance = random.Random(1)
        self.assertEqual(codes, [200 if chance.random() >= 0.5 else 500 for _ in range(40)])

    def test_a_removed_rule_no_longer_applies(self):
        number = self.control.add({"status": 500})
        self.assertEqual(self.call("GET", PODS)[0].status, 500)
        self.control.ask("remove", id=number)
        self.assertEqual(self.call("GET", PODS)[0].status, 200)

    def test_a_refused_request_ends_the_connection_before_the_api_server_sees_it(self):
        self.control.add({"refuse": True})
        with self.assertRaises((http.client.BadStatusLine, ConnectionError)):
            self.call("GET", PODS)
        self.assertEqual(self.seen(), 0)

    def test_a_swallowed_answer_leaves_the_write_done(self):
        self.control.add({"swallow": True}, {"verb": "create"})
        with self.assertRaises((http.client.BadStatusLine, ConnectionError)):
            self.call("POST", PODS, "{}")
        self.assertEqual(self.seen(), 1)

    def test_a_cut_answer_is_seen_as_incomplete(self):
        self.control.add({"cut": 100})
        with self.assertRaises(http.client.IncompleteRead) as caught:
            self.call("GET", PODS)
        self.assertEqual(len(caught.exception.partial), 100)

    def test_a_rechunked_answer_is_the_same_in_small_pieces(self):
        self.control.add({"rechunk": 7})
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(f"GET {PODS}?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            head, _, rest = b"".join(iter(lambda: client.recv(65536), b"")).partition(b"\r\n\r\n")
        self.assertIn(b"chunked", head)
        pieces = []
        while (size := int(rest.partition(b"\r\n")[0], 16)) > 0:
            rest = rest.partition(b"\r\n")[2]
            pieces.append(rest[:size])
            rest = rest[size + 2 :]
        self.assertLessEqual(max(map(len, pieces)), 7)
        self.assertEqual([json.loads(line) for line in b"".join(pieces).splitlines()], EVENTS)

    def test_a_slow_and_a_delayed_answer_are_whole(self):
        self.control.add({"delay": 0.01, "slow": 100000})
        self.assertEqual(len(json.loads(self.call("GET", PODS)[1])["pad"]), 500)

    def test_a_client_that_leaves_while_it_is_held_takes_its_request_along(self):
        number = self.control.add({"hold": "before"}, {"verb": "create"})
        connection = self.connect()
        connection.request("POST", PODS, "{}")
        self.assertEqual(self.control.wait(number), 1)
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        entry = self.until_traced()
        self.assertEqual(entry["note"], "the client left while it was held")
        self.assertEqual(self.seen(), 0)

    def until_traced(self):
        """The first finished request; the control socket is asked until there is one."""
        for _ in range(100000):
            trace = self.control.ask("trace")["trace"]
            if trace:
                return trace[0]
        self.fail("the request never ended")

    def test_a_held_request_goes_on_when_released(self):
        number = self.control.add({"hold": "before"}, {"verb": "create"})
        connection = self.connect()
        connection.request("POST", PODS, "{}")
        self.assertEqual(self.control.wait(number), 1)
        self.assertEqual(self.seen(), 0)
        self.control.ask("release", id=number)
        self.assertEqual(connection.getresponse().status, 200)

    def test_a_held_answer_means_that_the_write_is_done(self):
        number = self.control.add({"hold": "after"}, {"verb": "create"})
        connection = self.connect()
        connection.request("POST", PODS, "{}")
        self.assertEqual(self.control.wait(number), 1)
        self.assertEqual(self.seen(), 1)
        self.control.ask("release", id=number)
        self.assertEqual(connection.getresponse().status, 200)


class Watches(Kfault):
    def test_bookmarks_can_be_left_out(self):
        self.control.add({"drop_bookmarks": True}, {"verb": "watch"})
        self.assertEqual(self.events(), [e for e in EVENTS if e["type"] != "BOOKMARK"])

    def test_single_events_can_be_left_out(self):
        self.control.add({"drop_events": {"type": ["ADDED", "DELETED"], "name": "a"}})
        self.assertEqual(self.events(), EVENTS[1:3])

    def test_a_watch_expires_after_so_many_events(self):
        for count in (0, 2):
            number = self.control.add({"expire": count}, times=1)
            got = self.events(PODS + "?watch=1&forever")
            self.assertEqual(got[:-1], EVENTS[:count])
            self.assertEqual((got[-1]["type"], got[-1]["object"]["code"], got[-1]["object"]["reason"]),
                             ("ERROR", 410, "Expired"))
            self.control.ask("remove", id=number)

    def test_a_list_is_not_taken_for_a_watch(self):
        self.control.add({"expire": 0, "drop_bookmarks": True})
        self.assertEqual(json.loads(self.call("GET", PODS)[1])["method"], "GET")

    def test_open_streams_can_be_cut_at_any_time(self):
        connection = self.connect()
        connection.request("GET", PODS + "?watch=1&forever")
        answer = connection.getresponse()
        self.assertEqual(json.loads(answer.readline()), EVENTS[0])
        self.assertEqual(self.control.ask("cut", match={"resource": "services"}), {"cut": 0})
        self.assertEqual(self.control.ask("cut", match={"verb": "watch"}), {"cut": 1})
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            answer.read()


class Tls(Kfault):
    tls = True

    def test_a_bearer_token_passes_and_forged_front_proxy_headers_do_not(self):
        headers = {"Authorization": "Bearer t", "X-Remote-User": "admin", "X-Remote-Extra-a": "b"}
        self.assertEqual(self.call("GET", PODS, headers=headers)[0].status, 200)
        got = self.api.requests.get()[2]
        self.assertEqual(got["Authorization"], "Bearer t")
        self.assertFalse([name for name in got if name.lower().startswith("x-remote")])

    def test_a_client_certificate_becomes_the_front_proxys_headers(self):
        self.assertEqual(self.call("GET", PODS, connection=self.connect(certificate=True))[0].status, 200)
        got = self.api.requests.get()[2]
        self.assertEqual((got["X-Remote-User"], got["X-Remote-Group"]), ("operator", "crew"))

    def test_a_client_that_breaks_off_inside_tls_does_no_harm(self):
        with socket.create_connection(("127.0.0.1", self.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.recv(100)
        self.assertEqual(self.call("GET", PODS)[0].status, 200)


class BadInput(Kfault):
    def test_a_bad_order_is_answered_with_what_is_wrong(self):
        cases = [
            ({"do": "dance"}, "no order is called 'dance'"),
            ({"do": "add", "rule": {"match": {"colour": "red"}}}, "match has no 'colour'"),
            ({"do": "add", "rule": {"action": {"explode": 1}}}, "action has no 'explode'"),
            ({"do": "add", "rule": {"action": {"hold": "never"}}}, "hold is"),
            ({"do": "add", "rule": 5}, "a rule is an object"),
            ({"do": "remove", "id": 99}, "99"),
        ]
        for order, complaint in cases:
            with self.assertRaisesRegex(ValueError, complaint):
                self.control.ask(**order)

    def test_rubbish_from_a_client_ends_its_connection_only(self):
        for rubbish in (b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"x" * 200000,
                        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            with socket.create_connection(("127.0.0.1", self.port)) as client:
                try:
                    client.sendall(rubbish)
                    client.shutdown(socket.SHUT_WR)
                    self.assertEqual(client.recv(100), b"")
                except ConnectionError:
                    pass  # it did not even wait for the end
        self.assertEqual(self.call("GET", PODS)[0].status, 200)


class Descriptions(unittest.TestCase):
    def test_paths_are_read_as_the_api_server_reads_them(self):
        cases = [
            ("GET", "/healthz", ("get", "", "", "", "", "")),
            ("GET", "/api/v1/namespaces/x", ("get", "", "namespaces", "", "", "x")),
            ("PUT", "/api/v1/namespaces/x/finalize", ("update", "", "namespaces", "finalize", "", "x")),
            ("GET", "/api/v1/namespaces?watch=true", ("watch", "", "namespaces", "", "", "")),
            ("DELETE", PODS, ("deletecollection", "", "pods", "", "ns", "")),
            ("DELETE", PODS + "/a%2Fb", ("delete", "", "pods", "", "ns", "a/b")),
            ("POST", "/apis/coordination.k8s.io/v1/namespaces/n/leases",
             ("create", "coordination.k8s.io", "leases", "", "n", "")),
            ("GET", PODS + "/a/log", ("get", "", "pods", "log", "ns", "a")),
        ]
        for method, path, expected in cases:
            about = kfault.describe(method, path)
            keys = ("verb", "group", "resource", "subresource", "namespace", "name")
            self.assertEqual(tuple(about[k] for k in keys), expected, path)


def main():
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
