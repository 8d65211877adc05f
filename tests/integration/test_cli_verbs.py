#!/usr/bin/python3
"""The verbs of `kunal` that start nothing: help, version, validate, inspect; and manifests that `run` refuses."""
import hashlib
import json
import os
import struct

from cli_tools import ROOT, CliTest, main, manifest

EXAMPLES = sorted(name for name in os.listdir(os.path.join(ROOT, "examples")) if name.endswith(".yaml"))


class Help(CliTest):
    def test_kunal_alone_prints_its_verbs(self):
        for arguments in ([], ["help"], ["--help"], ["-h"]):
            told = self.call(*arguments)
            self.assertEqual(told.returncode, 0)
            for verb in ("run", "validate", "inspect", "version", "help"):
                self.assertRegex(told.stdout, r"(?m)^  %s +\S" % verb)

    def test_each_verb_has_flags_examples_and_exit_codes(self):
        for verb in ("run", "validate", "inspect", "version"):
            told = self.call(verb, "--help")
            self.assertEqual((told.returncode, told.stderr), (0, ""))
            for part in ("Usage: kunal " + verb, "Flags:", "--help", "Examples:\n  kunal " + verb, "Exit codes:\n  0"):
                self.assertIn(part, told.stdout)
            self.assertEqual(self.call("help", verb).stdout, told.stdout)

    def test_an_unknown_verb_is_wrong_use_with_a_proposal(self):
        told = self.call("vaildate", "x.yaml")
        self.assertEqual((told.returncode, told.stdout), (64, ""))
        self.assertIn('did you mean "validate"?', told.stderr)
        self.assertEqual(self.call("help", "nonsense").returncode, 64)

    def test_an_unknown_flag_is_wrong_use_with_a_proposal(self):
        told = self.call("run", "job.yaml", "--sped-profile", "x")
        self.assertEqual(told.returncode, 64)
        self.assertIn("did you mean --", told.stderr)

    def test_a_missing_argument_is_wrong_use(self):
        for verb in ("run", "validate", "inspect"):
            told = self.call(verb)
            self.assertEqual(told.returncode, 64, verb)
            self.assertIn("an argument is missing", told.stderr)

    def test_version_is_one_line(self):
        self.assertRegex(self.call("version").stdout, r"^kunal [0-9]+\.[0-9]+\.[0-9]+\n$")
        self.assertEqual(self.call("--version").stdout, self.call("version").stdout)


class Validate(CliTest):
    def test_every_example_is_valid(self):
        self.assertNotEqual(EXAMPLES, [])
        told = self.call("validate", *[os.path.join(ROOT, "examples", name) for name in EXAMPLES])
        self.assertEqual((told.returncode, told.stderr), (0, ""), told.stdout)
        self.assertEqual(told.stdout.count(": valid\n"), len(EXAMPLES))

    def test_all_problems_are_told_one_on_a_line_with_their_place(self):
        job = self.write("job.yaml", "apiVersion: kunal.ml/v1alpha1\nkind: KunalJob\nmetadata: {name: a}\nspec:\n"
                         "  model: {kind: Softmaks}\n  dataset: {storageUri: 'file:///d'}\n"
                         "  training: {epochs: -1, batchsize: 3}\n")
        told = self.call("validate", job)
        self.assertEqual(told.returncode, 65)
        lines = told.stdout.splitlines()
        self.assertEqual(len(lines), 3, told.stdout)
        self.assertTrue(all(line.startswith(job + ":") for line in lines), told.stdout)
        self.assertRegex(told.stdout, r"job\.yaml:5:\d+: spec\.model\.kind: .*Softmax")
        self.assertRegex(told.stdout, r"job\.yaml:7:\d+: spec\.training\.epochs")
        self.assertIn("batchSize", told.stdout)

    def test_set_overrides_and_is_named_in_errors(self):
        job = self.write_manifest(manifest())
        self.assertEqual(self.call("validate", job, "--set", "spec.training.epochs=7").returncode, 0)
        told = self.call("validate", job, "--set", "spec.training.epochs=many")
        self.assertEqual(told.returncode, 65)
        self.assertIn("--set spec.training.epochs=many", told.stdout)

    def test_a_missing_file_has_its_own_code(self):
        told = self.call("validate", self.path("nothing.yaml"))
        self.assertEqual(told.returncode, 66)
        self.assertIn("nothing.yaml", told.stdout)

    def test_the_driver_decides_what_is_possible(self):
        job = self.write_manifest(manifest(output={"storageUri": "configmap://model"}))
        self.assertEqual(self.call("validate", job, "--driver", "cluster").returncode, 0)
        self.assertEqual(self.call("validate", job).returncode, 65)
        told = self.call("validate", job, "--driver", "claster")
        self.assertEqual(told.returncode, 64)
        self.assertIn("did you mean cluster", told.stderr)

    def test_what_has_no_effect_is_a_note_on_stderr(self):
        job = self.write_manifest(manifest(synchronization={"mode": "BSP", "staleness": 4}))
        told = self.call("validate", job)
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertIn("note: ", told.stderr)
        self.assertIn("staleness", told.stderr)


class Refused(CliTest):
    """What `run` finds in the manifest ends it before a folder or a process is made."""

    def refused(self, tree, code, *says):
        run = self.start(self.write_manifest(tree)).wait()
        self.assertEqual(run.code, code, run.last)
        self.assert_one_line(run, "failed reason=ValidationFailed")
        for text in says:
            self.assertIn(text, run.last)
        self.assertEqual(os.listdir(self.folder), ["job.json"] if os.path.exists(self.path("job.json")) else ["job.yaml"])

    def test_an_unknown_field(self):
        self.refused(manifest(trainning={"epochs": 1}), 65, "trainning", "did you mean")

    def test_a_wrong_type(self):
        self.refused(manifest(training={"epochs": "ten"}), 65, "spec.training.epochs")

    def test_a_negative_size(self):
        self.refused(manifest(training={"batchSize": -4}), 65, "spec.training.batchSize")

    def test_an_unknown_optimiser(self):
        self.refused(manifest(training={"optimizer": {"kind": "Adagrat"}}), 65, "Adagrad")

    def test_zero_workers(self):
        self.refused(manifest(workers=0), 65, "spec.replicaSpecs.Worker.replicas")

    def test_a_manifest_that_is_not_there(self):
        run = self.start("nowhere.yaml").wait()
        self.assertEqual(run.code, 66)
        self.assert_one_line(run, "failed reason=ValidationFailed")

    def test_a_run_folder_that_cannot_be_made(self):
        self.write("file", "")
        run = self.start(self.write_manifest(manifest()), "--run-dir", self.path("file", "run")).wait()
        self.assertEqual(run.code, 73, run.last)
        self.assert_one_line(run, "failed reason=")

    def test_a_status_file_that_cannot_be_written(self):
        run = self.start(self.write_manifest(manifest()), "--status-file", self.path("no", "such", "file")).wait()
        self.assertEqual(run.code, 66, run.last)
        self.assert_one_line(run, "failed reason=LaunchFailed")
        self.assertIn("no/such/file", run.last)


def safetensors(tensors, metadata):
    """[(name, dtype, shape, bytes)] as a file, written here a second time and independently."""
    header = {"__metadata__": metadata}
    at = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)


class Inspect(CliTest):
    def model(self):
        content = safetensors([
            ("layer.0.weight", "F32", [2, 2], struct.pack("<4f", 1, 2, 3, 4)),
            ("layer.0.bias", "F32", [3], struct.pack("<3f", float("nan"), -1, float("inf"))),
            ("steps", "I64", [1], struct.pack("<q", -5)),
        ], {"model": "MLP", "bad": "a\x1b[31mb"})
        with open(self.path("model.safetensors"), "wb") as f:
            f.write(content)
        return self.path("model.safetensors"), content

    def test_json_has_every_number(self):
        path, content = self.model()
        tree = json.loads(self.call("inspect", path, "--json").stdout)
        self.assertEqual(tree["sha256"], hashlib.sha256(content).hexdigest())
        weight, bias, steps = tree["tensors"]
        self.assertEqual((weight["name"], weight["shape"], weight["dtype"], weight["bytes"]), ("layer.0.weight", [2, 2], "F32", 16))
        self.assertEqual((weight["mean"], weight["min"], weight["max"], weight["nonFinite"]), (2.5, 1, 4, 0))
        self.assertAlmostEqual(weight["std"], 1.25 ** 0.5)
        self.assertEqual((bias["nonFinite"], bias["mean"], bias["std"]), (2, -1, 0))
        self.assertEqual(steps["mean"], -5)
        self.assertEqual(tree["metadata"]["model"], "MLP")

    def test_text_is_a_table_and_cannot_colour_the_terminal(self):
        path, content = self.model()
        told = self.call("inspect", path)
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        self.assertRegex(told.stdout, r"layer\.0\.weight +\[2,2\] +F32 +16 +2\.5 ")
        self.assertIn("sha256 " + hashlib.sha256(content).hexdigest(), told.stdout)
        self.assertIn("model = MLP", told.stdout)
        self.assertNotIn("\x1b", told.stdout)

    def test_damaged_and_missing_files_have_their_codes(self):
        path, content = self.model()
        with open(path, "wb") as f:
            f.write(content[:-1])
        told = self.call("inspect", path)
        self.assertEqual((told.returncode, told.stdout), (65, ""))
        self.assertEqual(len(told.stderr.splitlines()), 1)
        self.assertEqual(self.call("inspect", self.path("none")).returncode, 66)
        self.assertEqual(self.call("inspect", self.folder).returncode, 65)


if __name__ == "__main__":
    main()
