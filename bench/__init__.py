"""The benchmarks: beside the package, so that they are in no wheel. `berth bench` of a checkout runs them."""
