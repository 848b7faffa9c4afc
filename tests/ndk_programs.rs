//! A slice of the random programs; `cargo run --release -p verbena-tests --bin programs` runs as many as one likes.

use proptest::prelude::*;
use verbena_tests::ndk::Bench;
use verbena_tests::programs::{programs, run};

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_program_of_a_consumer_does_what_the_contract_says(program in programs(200)) {
        let mut bench = Bench::new();
        run(&mut bench, &program);
        bench.close();
    }
}
