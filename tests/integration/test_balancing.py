#!/usr/bin/python3
"""W-LSP and AW-LSP with the real processes: shares follow speed, and each change is a line of the metrics."""
import kunal_test as kt

SPEEDS = ("--speeds", "1,0.25", "--nominal", "1ms")


class Balancing(kt.Case):
    def setUp(self):
        super().setUp()
        self.data = kt.small_fashion(self.path("data"))

    def run_with(self, strategy, **more):
        balancing = {"strategy": strategy, "warmupSteps": 5, "everySteps": 10, **more}
        spec = {"synchronization": {"mode": "LSP", "limit": 1}, "training": {"batchSize": 32}, "balancing": balancing}
        run = self.succeed(kt.job(self.data, workers=2, **spec), "--quiet", *SPEEDS, name=strategy)
        self.assertEqual(run.metrics("finished")[-1]["samples"], 2 * 2000)
        return run.metrics("decision")

    def check_initial(self, decision, applied):
        self.assertEqual((decision["kind"], decision["reason"]), ("Initial", "WarmedUp"))
        self.assertEqual((decision["applied"], decision["total"]), (applied, 64))
        fast, slow = decision["shares"]
        self.assertEqual((fast["worker"], fast["before"], slow["worker"], slow["before"]), (0, 32, 1, 32))
        self.assertEqual(fast["after"] + slow["after"], 64)
        self.assertGreater(fast["after"], 1.5 * slow["after"])
        self.assertGreater(fast["speed"], 1.5 * slow["speed"])
        self.assertGreater(decision["expected_gain"], 0.2)
        self.assertNotIn("realised_gain", decision)

    def test_the_fast_worker_gets_more(self):
        decisions = self.run_with("WLBS")
        self.check_initial(decisions[0], True)
        self.assertNotIn("expert", decisions[0]["shares"][0])

    def test_predicted_speeds_name_who_predicted_them(self):
        decisions = self.run_with("AutoWLBS")
        self.check_initial(decisions[0], True)
        for share in decisions[0]["shares"]:
            self.assertGreater(share["predicted"], 0)
            self.assertIn(share["expert"], ("LastValue", "Average", "AR1", "Network"))

    def test_a_dry_run_only_says_what_it_would_do(self):
        decisions = self.run_with("WLBS", dryRun=True)
        self.check_initial(decisions[0], False)
        self.assertFalse(any(d["applied"] for d in decisions))


if __name__ == "__main__":
    kt.main()
