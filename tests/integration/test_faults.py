#!/usr/bin/python3
"""What a job does when processes die, stall, or are told to stop: with the real processes, over real connections."""
import os
import signal
import subprocess
import unittest

import kunal_test as kt

LONG = 400  # epochs of the small data set: nobody waits for them, the tests end such jobs


class Faults(kt.Case):
    def setUp(self):
        super().setUp()
        self.data = kt.small_fashion(self.path("data"))

    def begin(self, epochs, *flags, name="run", ps=1, workers=3, **spec):
        """A job that has committed something."""
        more = kt.merged({"training": {"epochs": epochs}}, spec)
        run = self.run_job(kt.job(self.data, ps=ps, workers=workers, **more), *flags, name=name)
        kt.until(lambda: run.metrics("epoch") or run.process.poll() is not None, f"an epoch of {run}: {run.stderr}")
        self.assertIsNone(run.process.poll(), run.stdout + run.stderr)
        return run

    def check_whole(self, run, epochs):
        """It succeeded, and each sample counts once in each epoch."""
        self.assertEqual(run.wait(), 0, run.stdout + run.stderr)
        self.assertEqual(len(run.lines), 1)
        self.assertEqual((run.summary()["result"], run.summary()["epochs"]), ("succeeded", str(epochs)))
        self.assertEqual(run.metrics("finished")[-1]["samples"], epochs * 2000)
        self.nothing_left(run)

    # ---- Workers ----

    def kill_and_come_back(self, epochs, **spec):
        run = self.begin(epochs, **spec)
        first = run.child("kunal-worker-1")
        os.kill(first, signal.SIGKILL)
        kt.until(lambda: len(run.metrics("worker_joined")) == 4, f"the return of worker 1: {run.stderr}")
        self.assertEqual(run.metrics("worker_joined")[-1]["worker"], 1)
        self.assertEqual(run.metrics("worker_left")[0]["worker"], 1)
        self.assertNotEqual(run.child("kunal-worker-1"), first, "it is another process")
        return run

    def test_a_killed_worker_joins_again_and_each_sample_counts_once(self):
        self.check_whole(self.kill_and_come_back(150, synchronization={"mode": "LSP", "limit": 2}), 150)

    def test_so_it_is_in_lockstep_with_static_shards_and_two_parameter_servers(self):
        self.check_whole(self.kill_and_come_back(100, ps=2, balancing={"strategy": "Static"}), 100)

    def test_a_killed_worker_that_may_not_return_leaves_its_samples_to_the_others(self):
        run = self.begin(60, replicaSpecs={"Worker": {"restartPolicy": "Never"}}, synchronization={"mode": "ASP"})
        os.kill(run.child("kunal-worker-2"), signal.SIGKILL)
        self.check_whole(run, 60)
        self.assertEqual(len(run.metrics("worker_joined")), 3)

    def test_a_worker_that_was_silent_for_too_long_comes_back(self):
        run = self.begin(LONG, synchronization={"mode": "ASP"})
        victim = run.child("kunal-worker-0")
        os.kill(victim, signal.SIGSTOP)
        kt.until(lambda: run.metrics("worker_left"), f"that silent worker 0 is given up: {run.stderr}")
        self.assertEqual(run.metrics("worker_left")[0]["worker"], 0)
        before = run.samples()
        kt.until(lambda: run.samples() > before, "that the others go on")
        os.kill(victim, signal.SIGCONT)
        kt.until(lambda: len(run.metrics("worker_joined")) == 4, f"the return of worker 0: {run.stderr}{run.log('kunal-worker-0')}")
        self.assertEqual(run.metrics("worker_joined")[-1]["worker"], 0)
        self.interrupt(run)

    # ---- Parameter servers ----

    def lose_server(self, index):
        run = self.begin(LONG, ps=2)
        os.kill(run.child(f"kunal-ps-{index}"), signal.SIGKILL)
        code = run.wait()
        self.assertEqual(len(run.lines), 1, run.stdout)
        summary = run.summary()
        self.assertEqual((summary["result"], summary["reason"]), ("failed", "ParameterServerLost"))
        self.assertRegex(summary["message"], f"kunal-ps-{index}|parameter server {index}")
        self.assertNotEqual(code, 0)
        self.assertFalse(os.path.exists(run.folder + "/model.safetensors"))
        self.nothing_left(run)

    def test_a_lost_conductor_ends_the_job(self):
        self.lose_server(0)

    def test_a_lost_shard_ends_the_job(self):
        self.lose_server(1)

    # ---- Stopping ----

    def interrupt(self, run, number=signal.SIGINT):
        run.signal(number)
        self.assertEqual(run.wait(), 128 + number, run.stdout + run.stderr)
        self.assertEqual(len(run.lines), 1)
        summary = run.summary()
        self.assertEqual(summary["result"], "stopped")
        self.assertTrue(os.path.isabs(summary["model"]))
        tensors, metadata = kt.read_safetensors(summary["model"])
        self.assertEqual(tensors["layer.0.weight"].shape, (32, 784))
        self.nothing_left(run)
        return summary, tensors, metadata

    def test_ctrl_c_saves_the_model_and_says_where(self):
        summary, tensors, metadata = self.interrupt(self.begin(LONG, ps=2))
        accuracy = kt.mlp_accuracy(tensors, metadata, *(a[:500] for a in kt.fashion("t10k")))
        self.assertGreater(accuracy, 0.3, "it had learned something")
        self.assertEqual(summary["reason"], "Interrupted")

    def test_sigterm_does_the_same(self):
        self.interrupt(self.begin(LONG), signal.SIGTERM)

    def test_sigterm_to_ps_0_itself_saves_the_model_too(self):
        run = self.begin(LONG)
        os.kill(run.child("kunal-ps-0"), signal.SIGTERM)
        run.wait()
        summary = run.summary()
        self.assertEqual((summary["result"], summary["reason"]), ("stopped", "StoppedByRequest"), run.stdout)
        self.assertEqual(kt.read_safetensors(summary["model"])[0]["layer.0.weight"].shape, (32, 784))
        self.nothing_left(run)

    def test_a_kunal_that_slept_through_the_end_still_says_how_it_went(self):
        run = self.run_job(kt.job(self.data, training={"epochs": 30}))
        kt.until(lambda: run.metrics("epoch"), "the first epoch")
        ps = run.child("kunal-ps-0")
        run.signal(signal.SIGSTOP)
        kt.until(lambda: not os.path.exists(f"/proc/{ps}/exe") or open(f"/proc/{ps}/stat").read().rsplit(") ", 1)[1][0] == "Z",
                 "the end of PS-0")
        run.signal(signal.SIGCONT)
        self.assertEqual(run.wait(), 0, run.stdout + run.stderr)
        self.assertEqual(run.summary()["epochs"], "30")
        self.nothing_left(run)

    def test_kill_9_of_kunal_leaves_nobody_behind(self):
        run = self.begin(LONG, ps=2)
        self.assertEqual(len(run.family()), 6)
        run.signal(signal.SIGKILL)
        self.assertEqual(run.wait(), 137)
        self.nothing_left(run)

    # ---- TLS ----

    def test_an_encrypted_run_works_and_keeps_its_keys_to_itself(self):
        run = self.succeed(kt.job(self.data, ps=2, workers=2), "--tls")
        for folder, _, files in os.walk(run.folder + "/tls"):
            self.assertEqual(os.stat(folder).st_mode & 0o077, 0, folder)
            self.assertTrue(all(os.stat(os.path.join(folder, f)).st_mode & 0o077 == 0 for f in files if f.endswith(".key")))

    # ---- A full disk ----

    @unittest.skipUnless(os.geteuid() == 0, "a small file system is mounted, which takes root")
    def test_a_full_disk_at_the_end_is_one_clear_line_and_leaves_no_half_model(self):
        small = self.path("small")
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
        self.addCleanup(subprocess.run, ["umount", small], check=False)
        run = self.run_job(kt.job(self.data, workers=2, output={"storageUri": f"file://{small}"}))
        self.assertEqual(run.wait(), 73, run.stdout + run.stderr)
        self.assertEqual(len(run.lines), 1)
        summary = run.summary()
        self.assertEqual((summary["result"], summary["reason"]), ("failed", "ModelNotSaved"))
        self.assertIn(small, summary["message"])
        self.assertIn("No space left on device", summary["message"])
        self.assertEqual(os.listdir(small), [])
        self.nothing_left(run)


if __name__ == "__main__":
    kt.main()
