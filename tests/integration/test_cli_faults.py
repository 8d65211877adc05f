#!/usr/bin/python3
"""`kunal run` when things go wrong, with programs that are made up: who dies, who is silent, who does not stop."""
import json
import os
import signal

from cli_tools import FakeTest, alive, main, manifest, until


class Ends(FakeTest):
    def test_success_is_one_line_with_the_numbers_of_the_conductor(self):
        run = self.fake(manifest()).wait()
        self.assertEqual(run.code, 0, run.said)
        self.assertEqual(run.last, "succeeded epochs=10 accuracy=0.8750 loss=0.25 samples_per_second=500.0 seconds=2.000 "
                         "model=" + os.path.join(os.path.realpath(self.run_dir()), "model.safetensors"))
        self.assert_one_line(run, "succeeded")
        self.assert_nothing_left()
        self.assert_no_sockets()

    def test_the_failure_of_the_conductor_is_told_with_its_words_and_code(self):
        run = self.fake(manifest(), FAKE_PS="fail").wait()
        self.assertEqual(run.code, 65)
        self.assertEqual(run.last, 'failed reason=InvalidData message="row 3 says \\"no\\""')
        self.assert_nothing_left()
        self.assert_no_sockets()

    def test_the_run_folder_holds_everything(self):
        run = self.fake(manifest()).wait()
        self.assertEqual(run.code, 0, run.said)
        self.assertEqual(sorted(os.listdir(self.run_dir())),
                         ["job.json", "kunal-ps-0.log", "kunal-worker-0.log", "kunal-worker-1.log", "metrics.jsonl",
                          "model.safetensors"])
        self.assertEqual(os.stat(os.path.join(self.run_dir(), "job.json")).st_mode & 0o777, 0o600)
        self.assertIn('"listening"', self.log("metrics.jsonl"))
        self.assertEqual(json.loads(self.log("job.json"))["metadata"]["name"], "made-up")

    def test_a_run_folder_is_never_used_twice(self):
        self.assertEqual(self.fake(manifest()).wait().code, 0)
        again = self.fake(manifest()).wait()
        self.assertEqual(again.code, 73)
        self.assertIn("holds an earlier run", again.last)

    def test_two_runs_at_once_get_folders_of_their_own(self):
        job = self.write_manifest(manifest())
        env = dict(FAKE_FOLDER=self.path("notes"), FAKE_PYTHON=self.python)
        runs = [self.start(job, **env) for _ in range(3)]
        models = {run.wait().field("model") for run in runs}
        self.assertEqual(len(models), 3, [run.said for run in runs])
        self.assertTrue(all(os.path.exists(model) for model in models))

    def test_a_folder_too_deep_for_a_socket_works_too(self):
        deep = self.path(*["a-folder-with-a-rather-long-name"] * 4)
        env = dict(FAKE_FOLDER=self.path("notes"), FAKE_PYTHON=self.python, TMPDIR=self.path("notes"))
        run = self.start(self.write_manifest(manifest()), "--run-dir", deep, **env).wait()
        self.assertEqual(run.code, 0, run.last + run.said)
        self.assertIn(self.path("notes"), json.loads(self.note("env-ps-0"))["KUNAL_LISTEN"])
        self.assertEqual([n for n in os.listdir(self.path("notes")) if n.startswith("kunal-")], [])

    def test_an_address_with_a_free_port_is_learned_from_ps_0(self):
        run = self.fake(manifest(), "--listen", "127.0.0.1:0").wait()
        self.assertEqual(run.code, 0, run.last)
        self.assertEqual(json.loads(self.note("env-ps-0"))["KUNAL_LISTEN"], "127.0.0.1:0")
        self.assertRegex(self.note("env-worker-0"), r"KUNAL_CONDUCTOR=127\.0\.0\.1:[1-9][0-9]*\n")


class Contract(FakeTest):
    def test_each_process_learns_who_it_is(self):
        tree = manifest(workers=2, shards=2)
        tree["spec"]["replicaSpecs"]["Worker"]["template"] = {
            "spec": {"containers": [{"name": "kunal", "image": "x", "env": [{"name": "MINE", "value": "7"}]}]}}
        run = self.fake(tree, KUNAL_PACE_NS="9", KUNAL_TLS_DIR="/left/over").wait()
        self.assertEqual(run.code, 0, run.last + run.said)
        worker = dict(line.split("=", 1) for line in self.note("env-worker-1").splitlines() if "=" in line)
        self.assertEqual((worker["KUNAL_ROLE"], worker["KUNAL_INDEX"], worker["MINE"]), ("Worker", "1", "7"))
        self.assertEqual(worker["KUNAL_CONDUCTOR"], "unix:" + os.path.join(os.path.realpath(self.run_dir()), "ps-0.sock"))
        self.assertNotIn("KUNAL_PACE_NS", worker)
        self.assertNotIn("KUNAL_TLS_DIR", worker)
        zero = json.loads(self.note("env-ps-0"))
        one = json.loads(self.note("env-ps-1"))
        self.assertEqual(zero["KUNAL_OUTPUT"], os.path.realpath(self.run_dir()))
        self.assertNotIn("KUNAL_CONDUCTOR", zero)
        self.assertEqual(one["KUNAL_CONDUCTOR"], worker["KUNAL_CONDUCTOR"])
        self.assertEqual(zero["KUNAL_JOB_UID"], worker["KUNAL_JOB_UID"])
        self.assertNotIn("MINE", zero)

    def test_a_program_of_ones_own_takes_the_workers_place(self):
        self.fake_program("my-model", "#!/bin/sh\necho \"$@\" >\"$FAKE_FOLDER/arguments\"\nwhile :; do sleep 0.1; done\n")
        tree = manifest(workers=1, model={"kind": "Custom"})
        del tree["spec"]["dataset"]
        tree["spec"]["replicaSpecs"]["Worker"]["template"] = {"spec": {"containers": [
            {"name": "kunal", "image": "x", "command": [self.path("bin", "my-model"), "first"], "args": ["second"]}]}}
        run = self.fake(tree).wait()
        self.assertEqual(run.code, 0, run.last + run.said)
        self.assertEqual(self.note("arguments"), "first second\n")

    def test_node_metrics_of_every_process_come_from_proc(self):
        self.go_on()
        run = self.fake(manifest())
        self.until_training(run)
        until(lambda: self.note("metrics") != "" or run.process.poll() is not None, "node metrics")
        run.process.send_signal(signal.SIGTERM)
        run.wait()
        told = json.loads(self.note("metrics").splitlines()[0])
        self.assertEqual(told["source"], "proc")
        self.assertEqual(sorted((role, index) for role, index, *_ in told["nodes"]), [(0, 0), (0, 1), (1, 0)])
        for _, _, cpu_known, memory_known, memory in told["nodes"]:
            self.assertTrue(cpu_known and memory_known and memory > 0)

    def test_the_status_file_is_always_whole_and_ends_with_the_end(self):
        self.go_on()
        run = self.fake(manifest(), "--status-file", self.path("status.json"))
        def phase():
            try:
                with open(self.path("status.json")) as f:
                    return json.load(f)["phase"]
            except FileNotFoundError:
                return None
        until(lambda: phase() == "Running" or run.process.poll() is not None, "the phase Running")
        run.process.send_signal(signal.SIGINT)
        run.wait()
        with open(self.path("status.json")) as f:
            tree = json.load(f)
        self.assertEqual(tree["phase"], "Stopped")
        self.assertEqual(tree["conditions"][-1]["reason"], "Interrupted")
        self.assertEqual(tree["training"]["epoch"], 4)
        self.assertEqual(tree["replicaStatuses"]["Worker"]["desired"], 2)
        self.assertEqual(tree["model"]["location"], run.field("model"))


class ServersFail(FakeTest):
    def test_a_ps_0_that_cannot_start_is_told_with_its_last_words(self):
        run = self.fake(manifest(), FAKE_PS="die").wait()
        self.assertEqual(run.code, 73)
        self.assertEqual(run.last, 'failed reason=LaunchFailed message="kunal-ps-0 ended with exit code 73 (cannot write): '
                         'cannot listen: it is so"')
        self.assertEqual(self.note("starts-0"), "")
        self.assert_nothing_left()

    def test_rubbish_on_stdout_is_no_address(self):
        run = self.fake(manifest(), FAKE_PS="rubbish").wait()
        self.assertEqual(run.code, 70)
        self.assertIn("never again", run.last)
        self.assert_nothing_left()

    def test_a_missing_program_is_named(self):
        os.unlink(self.path("bin", "kunal-worker"))
        run = self.fake(manifest(), PATH="/usr/bin:/bin").wait()
        self.assertEqual(run.code, 66)
        self.assert_one_line(run, "failed reason=LaunchFailed")
        self.assertIn("kunal-worker", run.last)
        self.assert_nothing_left()
        self.assert_no_sockets()

    def test_a_ps_0_that_crashes_ends_the_job(self):
        run = self.fake(manifest(), FAKE_PS="crash").wait()
        self.assertEqual(run.code, 70)
        self.assert_one_line(run, "failed reason=ParameterServerLost")
        self.assertIn("kunal-ps-0 died, segmentation fault (signal 11)", run.last)
        self.assert_nothing_left()

    def test_any_lost_shard_ends_the_job(self):
        self.go_on()
        run = self.fake(manifest(shards=2), FAKE_LOST="ps-1").wait()
        self.assertEqual(run.code, 75)
        self.assert_one_line(run, "failed reason=ParameterServerLost")
        self.assertIn("kunal-ps-1 died, killed (signal 9)", run.last)
        self.assert_nothing_left()

    def test_a_start_that_takes_too_long_is_ended_by_its_deadline(self):
        run = self.fake(manifest(runPolicy={"preRunningDeadlineSeconds": 1}), FAKE_PS="starting").wait()
        self.assertEqual(run.code, 75)
        self.assert_one_line(run, "failed reason=PreRunningDeadlineExceeded")
        self.assert_nothing_left()

    def test_a_silent_ps_0_is_ended_by_the_deadline_too(self):
        run = self.fake(manifest(runPolicy={"preRunningDeadlineSeconds": 1}), FAKE_PS="silent").wait()
        self.assertEqual(run.code, 75)
        self.assert_one_line(run, "failed reason=PreRunningDeadlineExceeded")
        self.assert_nothing_left()

    def test_the_active_deadline_saves_what_is_there(self):
        self.go_on()
        run = self.fake(manifest(runPolicy={"activeDeadlineSeconds": 2})).wait()
        self.assertEqual(run.code, 75)
        self.assert_one_line(run, "failed reason=DeadlineExceeded")
        self.assertIn("model.safetensors", run.last)
        self.assertEqual(self.note("stops"), "DeadlineExceeded\n")
        self.assert_nothing_left()


def with_policy(policy, backoff=3, workers=2):
    tree = manifest(workers=workers, runPolicy={"backoffLimit": backoff})
    tree["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = policy
    return tree


class WorkersFail(FakeTest):
    def starts(self, worker):
        return len(self.note("starts-%d" % worker).split())

    def until_starts(self, run, worker, count):
        until(lambda: self.starts(worker) >= count or run.process.poll() is not None, "%d starts" % count)
        self.assertIsNone(run.process.poll(), run.out.decode() + run.said)

    def test_a_killed_worker_is_started_again(self):
        self.go_on()
        run = self.fake(with_policy("OnFailure"), FAKE_WORKER="kill-9", FAKE_WHO="1", FAKE_TIMES="2")
        self.until_starts(run, 1, 3)
        self.assertIn("kunal-worker-1 died, killed (signal 9); it is started again in 0.2 s", run.said)
        self.assertIn("it is started again in 0.4 s", run.said)
        self.assertEqual(self.starts(0), 1)
        os.unlink(self.path("notes", "go-on"))
        self.assertEqual(run.wait().code, 0, run.last)
        self.assert_nothing_left()

    def test_the_log_of_a_worker_is_appended_to_over_restarts(self):
        self.go_on()
        run = self.fake(with_policy("OnFailure"), FAKE_WORKER="exit-1", FAKE_WHO="0", FAKE_TIMES="2")
        self.until_starts(run, 0, 3)
        os.unlink(self.path("notes", "go-on"))
        self.assertEqual(run.wait().code, 0, run.last)
        self.assertEqual(self.log("kunal-worker-0.log").count("cannot train"), 2)

    def test_too_many_failures_fail_the_job_and_name_the_last(self):
        self.go_on()
        run = self.fake(with_policy("OnFailure", backoff=2), FAKE_WORKER="exit-69", FAKE_WHO="1").wait()
        self.assertEqual(run.code, 69)
        self.assertTrue(run.last.startswith('failed reason=BackoffLimitExceeded message="kunal-worker-1 ended with exit code 69'), run.last)
        self.assertIn('cannot train: line 3 is odd; failure 3, more than runPolicy.backoffLimit 2"', run.last)
        self.assertEqual(self.starts(1), 3)
        self.assert_nothing_left()

    def test_a_worker_with_bad_data_is_not_tried_again(self):
        self.go_on()
        run = self.fake(with_policy("OnFailure", backoff=2), FAKE_WORKER="exit-65", FAKE_WHO="1").wait()
        self.assertEqual(run.code, 65)
        self.assertEqual(run.last, 'failed reason=WorkerFailed message="kunal-worker-1 ended with exit code 65 (bad '
                         'data): cannot train: line 3 is odd; another try would end the same way"')
        self.assertEqual(self.starts(1), 1)
        self.assert_nothing_left()

    def test_under_never_the_others_go_on(self):
        self.go_on()
        run = self.fake(with_policy("Never"), FAKE_WORKER="exit-1", FAKE_WHO="1")
        until(lambda: "the others go on" in run.said or run.process.poll() is not None, "the word about worker 1")
        os.unlink(self.path("notes", "go-on"))
        self.assertEqual(run.wait().code, 0, run.last)
        self.assertEqual(self.starts(1), 1)

    def test_without_any_worker_the_job_has_failed(self):
        self.go_on()
        run = self.fake(with_policy("Never"), FAKE_WORKER="exit-7").wait()
        self.assertEqual(run.code, 7)
        self.assert_one_line(run, "failed reason=WorkerFailed")
        self.assertIn("no worker is left", run.last)
        self.assert_nothing_left()

    def test_exit_code_looks_at_the_code(self):
        self.go_on()
        run = self.fake(with_policy("ExitCode"), FAKE_WORKER="exit-75", FAKE_WHO="1", FAKE_TIMES="1")
        self.until_starts(run, 1, 2)
        os.unlink(self.path("notes", "go-on"))
        self.assertEqual(run.wait().code, 0, run.last)
        self.assertEqual(self.starts(1), 2)

    def test_exit_code_gives_up_on_a_permanent_failure(self):
        self.go_on()
        run = self.fake(with_policy("ExitCode", workers=1), FAKE_WORKER="exit-76").wait()
        self.assertEqual(run.code, 76)
        self.assert_one_line(run, "failed reason=WorkerFailed")
        self.assertEqual(self.starts(0), 1)

    def test_workers_that_end_well_too_early_do_not_hang_the_job(self):
        self.go_on()
        run = self.fake(with_policy("OnFailure"), FAKE_WORKER="exit-0").wait()
        self.assertEqual(run.code, 70)
        self.assertIn("the training is not over", run.last)
        self.assert_nothing_left()


class Stops(FakeTest):
    def test_ctrl_c_saves_and_says_where(self):
        self.go_on()
        run = self.fake(manifest())
        self.until_training(run)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130)
        self.assert_one_line(run, "stopped reason=Interrupted epochs=4 ")
        self.assertTrue(os.path.exists(run.field("model")))
        self.assertEqual(self.note("stops"), "Interrupted\n")
        self.assert_nothing_left()
        self.assert_no_sockets()

    def test_sigterm_does_the_same_with_its_own_code(self):
        self.go_on()
        run = self.fake(manifest())
        self.until_training(run)
        run.process.send_signal(signal.SIGTERM)
        self.assertEqual(run.wait().code, 143)
        self.assert_one_line(run, "stopped reason=Interrupted")
        self.assert_nothing_left()

    def test_a_stop_before_the_start_says_that_nothing_was_saved(self):
        run = self.fake(manifest(), FAKE_PS="silent")
        until(lambda: self.pids() or run.process.poll() is not None, "PS-0")
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130)
        self.assertEqual(run.last, 'stopped reason=Interrupted message="nothing was there to save"')
        self.assert_nothing_left()

    def test_a_second_ctrl_c_ends_everything_at_once(self):
        self.go_on()
        run = self.fake(manifest(), FAKE_PS="deaf", FAKE_WORKER="stubborn")
        self.until_training(run)
        run.process.send_signal(signal.SIGINT)
        until(lambda: self.note("stops") != "" or run.process.poll() is not None, "StopJob")
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130)
        self.assert_one_line(run, "stopped reason=Interrupted")
        self.assertIn("second signal", run.last)
        self.assert_nothing_left()
        self.assert_no_sockets()

    def test_who_does_not_hear_term_is_killed(self):
        self.go_on()
        run = self.fake(manifest(), FAKE_PS="deaf", FAKE_WORKER="stubborn")
        self.until_training(run)
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130)
        self.assertIn("did not save within 10 s", run.last)
        self.assert_nothing_left()

    def test_kill_9_of_kunal_leaves_no_child(self):
        self.go_on()
        run = self.fake(manifest(shards=2), FAKE_WORKER="stubborn")
        self.until_training(run)
        until(lambda: len(self.pids()) == 4, "all children")
        run.process.kill()
        run.wait()
        self.assert_nothing_left()

    def test_what_a_worker_started_itself_ends_with_it(self):
        self.go_on()
        run = self.fake(manifest(workers=1), FAKE_WORKER="child")
        self.until_training(run)
        until(lambda: len(self.pids()) == 3 or run.process.poll() is not None, "the child of the worker")
        self.assertTrue(all(alive(pid) for pid in self.pids()))
        run.process.send_signal(signal.SIGINT)
        run.wait()
        self.assert_nothing_left()


class Paced(FakeTest):
    def pace(self):
        with open(os.path.join(self.run_dir(), "pace.json")) as f:
            return json.load(f)

    def test_speeds_and_the_measured_nominal_time_reach_the_workers(self):
        run = self.fake(manifest(workers=2), "--speeds", "1,0.25", FAKE_COST="0.001").wait()
        self.assertEqual(run.code, 0, run.last + run.said)
        nominal = self.pace()["nominalNs"]
        self.assertGreaterEqual(nominal, 1.25e6 / (self.pace()["cores"] / 2))
        self.assertIn("KUNAL_SPEED=0.250000000\n", self.note("env-worker-1"))
        self.assertIn("KUNAL_PACE_NS=%.3f\n" % nominal, self.note("env-worker-0"))
        self.assertIn("paced workers: %.0f ns a sample" % nominal, run.said)

    def test_a_profile_is_split_by_worker(self):
        profile = self.write("profile", "# slow down\n1 1 0.5\n2 0 0.25\n3 1 1\n")
        run = self.fake(manifest(workers=2), "--speed-profile", profile, "--nominal", "1s").wait()
        self.assertEqual(run.code, 0, run.last + run.said)
        self.assertIn("KUNAL_PROFILE=%s\n" % os.path.join(os.path.realpath(self.run_dir()), "speed-1.txt"),
                      self.note("env-worker-1"))
        self.assertEqual(self.log("speed-1.txt"), "1 0.5\n3 1\n")

    def test_an_infeasible_nominal_time_is_refused_before_anything_starts(self):
        run = self.fake(manifest(workers=2), "--speeds", "1,1", "--nominal", "1ms", FAKE_COST="0.1").wait()
        self.assertEqual(run.code, 64)
        self.assertIn("not feasible", run.last)
        self.assertIn("the smallest is --nominal ", run.last)
        self.assertEqual(self.note("pids"), "")

    def test_the_wrong_number_of_speeds_is_refused(self):
        run = self.fake(manifest(workers=3), "--speeds", "1,1").wait()
        self.assertEqual(run.code, 64)
        self.assertIn("the job has 3 workers", run.last)

    def test_a_calibration_can_be_interrupted(self):
        run = self.fake(manifest(workers=2), "--speeds", "1,1", FAKE_CALIBRATE_HANGS="1")
        until(lambda: self.note("calibrating") != "" or run.process.poll() is not None, "the calibration")
        run.process.send_signal(signal.SIGINT)
        self.assertEqual(run.wait().code, 130, run.last)
        self.assert_one_line(run, "stopped reason=Interrupted")
        self.assert_nothing_left()

    def test_a_calibration_that_fails_is_told(self):
        run = self.fake(manifest(workers=2), "--speeds", "1,1", FAKE_CALIBRATE_FAILS="1").wait()
        self.assertIn("exit code 66 (missing input): no data: x", run.last)
        self.assertEqual(run.code, 66)


if __name__ == "__main__":
    main()
