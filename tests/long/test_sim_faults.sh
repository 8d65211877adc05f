#!/bin/sh
# The random fault schedules of the simulator, many thousand of them: KML_LONG=1 of tests/unit/ps/faults.c.
# KML_SEED=N plays a run again.
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-$(dirname "${KML_BIN:-build/release/bin}")}
make BUILD="$BUILD" "$BUILD/tests/unit/ps/faults" || exit 1
KML_LONG=1 exec "$BUILD/tests/unit/ps/faults"
