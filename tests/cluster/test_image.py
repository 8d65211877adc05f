#!/usr/bin/python3
"""The archive that tests/cluster/image makes, from a small program of this machine in the place of ours."""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


def unpack(archive, folder):
    with tarfile.open(archive) as tar:
        tar.extractall(folder)


def parsed(folder, path):
    with open(os.path.join(folder, path), encoding="utf-8") as file:
        return json.load(file)


def blob(descriptor):
    return descriptor["digest"].replace("sha256:", "blobs/sha256/")


class Image(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.bin = self.path("bin")
        os.mkdir(self.bin)
        shutil.copy("/bin/cat", os.path.join(self.bin, "kunal-ps"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def image(self, *args, out="out.tar"):
        command = [os.path.join(HERE, "image"), "--bin", self.bin, "--out", self.path(out), *args]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def made(self, *args):
        """Makes the archive and unpacks it; gives {image name: (its OCI manifest, its configuration)}."""
        done = self.image(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.archive = self.path("archive")
        unpack(self.path("out.tar"), self.archive)
        images = {}
        for entry in parsed(self.archive, "index.json")["manifests"]:
            manifest = parsed(self.archive, blob(entry))
            name = entry["annotations"]["io.containerd.image.name"]
            images[name] = (manifest, parsed(self.archive, blob(manifest["config"])))
        self.assertEqual(done.stdout.split(), list(images))
        return images

    def test_the_same_input_gives_the_same_bytes(self):
        self.assertEqual(self.image(out="one.tar").returncode, 0)
        os.utime(os.path.join(self.bin, "kunal-ps"), (1, 1))
        self.assertEqual(self.image(out="two.tar").returncode, 0)
        with open(self.path("one.tar"), "rb") as one, open(self.path("two.tar"), "rb") as two:
            self.assertEqual(hashlib.sha256(one.read()).digest(), hashlib.sha256(two.read()).digest())

    def test_only_images_whose_program_is_built_are_made_with_the_prefix_and_tag_asked_for(self):
        images = self.made("--prefix", "example.org/team", "--tag", "9")
        expected = [f"example.org/team/kunal-{name}:9" for name in ("base", "ps", "test-tools")]
        self.assertEqual(sorted(images), expected)

    def test_every_image_runs_as_an_ordinary_user(self):
        for name, (_, config) in self.made().items():
            self.assertEqual(config["config"]["User"], "65532:65532", name)

    def test_an_image_starts_its_program(self):
        _, config = self.made()["localhost/kunal-ps:0.1.0"]
        self.assertEqual(config["config"]["Entrypoint"], ["/usr/bin/kunal-ps"])

    def test_every_blob_is_what_its_name_says_and_docker_sees_the_same_layers(self):
        images = self.made()
        blobs = os.path.join(self.archive, "blobs/sha256")
        for name in os.listdir(blobs):
            with open(os.path.join(blobs, name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), name)
        for entry in parsed(self.archive, "manifest.json"):
            manifest, config = images[entry["RepoTags"][0]]
            self.assertEqual(entry["Layers"], [blob(layer) for layer in manifest["layers"]])
            self.assertEqual(config["rootfs"]["diff_ids"], [layer["digest"] for layer in manifest["layers"]])

    def test_all_images_share_the_base_layer(self):
        self.assertEqual(len({manifest["layers"][0]["digest"] for manifest, _ in self.made().values()}), 1)

    @unittest.skipIf(os.geteuid() != 0, "chroot is for root")
    def test_programs_find_all_their_libraries_inside_the_image(self):
        manifest, _ = self.made()["localhost/kunal-test-tools:0.1.0"]
        root = self.path("root")
        for layer in manifest["layers"]:
            unpack(os.path.join(self.archive, blob(layer)), root)
        script = 'echo whole >/tmp/x && cat /tmp/x && getent passwd 65532 && ! test -w /etc'
        done = subprocess.run(["chroot", "--userspec=65532:65532", root, "/bin/sh", "-ec", script],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "whole\nkunal:x:65532:65532:kunal:/:/sbin/nologin\n")

    def test_bad_input_is_refused_in_one_line(self):
        cases = [
            (("--only", "kunal-nothing"), "no image is called kunal-nothing"),
            (("--only", "kunal-worker"), "kunal-worker is not built"),
            (("--out", "/nowhere/out.tar"), "/nowhere/out.tar"),
        ]
        for args, complaint in cases:
            done = self.image(*args)
            self.assertEqual(done.returncode, 1)
            self.assertIn(complaint, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)


def main():
    result = unittest.main(exit=False, verbosity=2).result
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
