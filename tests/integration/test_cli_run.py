#!/usr/bin/python3
"""`kunal run` with the real programs: whole jobs on small data, and the bad input of which each must end in one line."""
import json
import os
import signal
import socket

from cli_tools import ROOT, CliTest, alive, children_of, csv_manifest, main, name_of, until, write_csv


class Real(CliTest):
    def setUp(self):
        super().setUp()
        self.data = self.path("data")

    def job(self, tree, *arguments, **env):
        return self.start(self.write_manifest(tree), "--run-dir", self.run_dir(), *arguments, **env)

    def trained(self, tree, *arguments, **env):
        run = self.job(tree, *arguments, **env).wait()
        self.assertEqual(run.code, 0, run.last + "\n" + run.said)
        self.assert_one_line(run, "succeeded epochs=")
        self.assert_no_sockets()
        return run

    def endless(self, *arguments, **spec):
        """A job that trains until it is stopped; comes back once it does."""
        write_csv(self.data)
        tree = csv_manifest(self.data, epochs=1000000, **spec)
        tree["spec"]["training"]["evaluation"] = {"everyEpochs": 1000000}
        run = self.job(tree, "--status-file", self.path("status.json"), *arguments)
        def epoch():
            try:
                with open(self.path("status.json")) as f:
                    return json.load(f).get("training", {}).get("epoch", 0)
            except FileNotFoundError:
                return 0
        until(lambda: epoch() >= 1 or run.process.poll() is not None, "the first epoch")
        self.assertIsNone(run.process.poll(), run.out.decode() + run.said)
        self.children = children_of(run.process.pid)
        return run

    def assert_no_children(self):
        until(lambda: not any(alive(pid) for pid in self.children), "the end of every child")
        self.assertNotEqual(self.children, [])


class Trains(Real):
    def test_a_table_is_learned_and_the_model_can_be_read(self):
        write_csv(self.data)
        run = self.trained(csv_manifest(self.data, epochs=8))
        self.assertEqual(run.field("epochs"), "8")
        self.assertGreater(float(run.field("accuracy")), 0.8)
        self.assertGreater(float(run.field("seconds")), 0)
        tree = json.loads(self.call("inspect", run.field("model"), "--json").stdout)
        self.assertEqual([(t["name"], t["shape"], t["nonFinite"]) for t in tree["tensors"]],
                         [("layer.0.weight", [3, 4], 0), ("layer.0.bias", [3], 0)])

    def test_several_shards_over_tcp_with_certificates(self):
        write_csv(self.data)
        self.trained(csv_manifest(self.data, shards=2), "--tls", "--listen", "127.0.0.1:0")
        tls = os.path.join(self.run_dir(), "tls")
        self.assertEqual(sorted(os.listdir(tls)), ["driver-0", "ps-0", "ps-1", "worker-0", "worker-1"])
        self.assertEqual({os.stat(os.path.join(tls, name)).st_mode & 0o777 for name in os.listdir(tls)}, {0o700})
        self.assertEqual(os.stat(os.path.join(tls, "ps-0", "tls.key")).st_mode & 0o777, 0o600)

    def test_certificates_over_sockets_too(self):
        write_csv(self.data)
        self.trained(csv_manifest(self.data, security={"transport": "MTLS"}))

    def test_the_model_goes_where_the_manifest_says(self):
        write_csv(self.data)
        run = self.trained(csv_manifest(self.data, output={"storageUri": "file://" + self.path("models")}))
        self.assertEqual(run.field("model"), os.path.realpath(self.path("models", "model.safetensors")))

    def test_paced_workers_train(self):
        write_csv(self.data)
        self.trained(csv_manifest(self.data, epochs=2), "--speeds", "1,0.5")
        with open(os.path.join(self.run_dir(), "pace.json")) as f:
            pace = json.load(f)
        self.assertGreater(pace["calibratedNs"], 0)
        self.assertGreaterEqual(pace["nominalNs"], 1.5 * pace["calibratedNs"] / (pace["cores"] / 2))

    def test_plain_progress_lines_when_there_is_no_terminal_and_none_when_quiet(self):
        run = self.endless()
        until(lambda: "epoch " in run.said or run.process.poll() is not None, "a progress line")
        run.process.send_signal(signal.SIGINT)
        run.wait()
        self.assertNotIn("\r", run.said)
        self.assertNotIn("\x1b", run.said)

    def test_quiet_has_no_progress(self):
        write_csv(self.data)
        self.assertNotIn("epoch ", self.trained(csv_manifest(self.data), "--quiet").said)


class Processes(Real):
    def test_children_are_direct_and_have_their_names(self):
        run = self.endless(workers=3, shards=2)
        self.assertEqual(sorted(name_of(pid) for pid in self.children), ["kunal-ps"] * 2 + ["kunal-worker"] * 3)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait().code, 143, run.last)
        self.assert_no_children()

    def test_ctrl_c_saves_a_model_that_can_be_read(self):
        run = self.endless()
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130, run.last)
        self.assert_one_line(run, "stopped reason=Interrupted")
        self.assertEqual(self.call("inspect", run.field("model")).returncode, 0)
        self.assert_no_children()
        self.assert_no_sockets()

    def test_a_killed_worker_comes_back_and_joins_again(self):
        run = self.endless(workers=2)
        victim = next(pid for pid in self.children if name_of(pid) == "kunal-worker")
        os.kill(victim, signal.SIGKILL)
        until(lambda: self.log("metrics.jsonl").count('"worker_joined"') >= 3 or run.process.poll() is not None, "the third join")
        self.assertIsNone(run.process.poll(), run.out.decode() + run.said)
        self.assertRegex(run.said, r"kunal-worker-[01] died, killed \(signal 9\).*; it is started again")
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130)

    def test_a_killed_ps_ends_the_job(self):
        run = self.endless(shards=2)
        os.kill(next(pid for pid in self.children if name_of(pid) == "kunal-ps"), signal.SIGKILL)
        run.wait()
        self.assertNotEqual(run.code, 0)
        self.assert_one_line(run, "failed reason=ParameterServerLost")
        self.assert_no_children()

    def test_kill_9_of_kunal_leaves_nothing(self):
        run = self.endless()
        run.process.kill()
        run.wait()
        self.assert_no_children()


class BadInput(Real):
    def fails(self, tree, code, *says):
        run = self.job(tree).wait()
        self.assertEqual(run.code, code, run.last + "\n" + run.said)
        self.assert_one_line(run, "failed reason=")
        for text in says:
            self.assertIn(text, run.last)
        self.assert_no_sockets()

    def test_data_that_are_not_there(self):
        os.mkdir(self.data)
        self.fails(csv_manifest(self.data), 66, "train.csv")

    def test_a_field_that_is_no_number(self):
        write_csv(self.data, spoil=lambda row, fields: ["abc"] + fields[1:] if row == 7 else fields)
        self.fails(csv_manifest(self.data), 65, "train.csv: line 9", "abc")

    def test_a_line_with_too_few_fields(self):
        write_csv(self.data, spoil=lambda row, fields: fields[1:] if row == 7 else fields)
        self.fails(csv_manifest(self.data), 65, "train.csv: line 9")

    def test_an_empty_file(self):
        os.mkdir(self.data)
        open(os.path.join(self.data, "train.csv"), "w").close()
        self.fails(csv_manifest(self.data), 65, "train.csv")

    def test_a_port_in_use(self):
        write_csv(self.data)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            run = self.job(csv_manifest(self.data), "--listen", address).wait()
        self.assertEqual(run.code, 73, run.last)
        self.assert_one_line(run, "failed reason=LaunchFailed")
        self.assertIn(address, run.last)


if __name__ == "__main__":
    main()
