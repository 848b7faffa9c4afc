//! A slice of the random programs; `cargo run --release -p verbena-tests --bin programs` runs as many as one likes.

use proptest::prelude::*;
use verbena_tests::programs::{bench, programs, run};

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_program_of_a_consumer_does_what_the_contract_says(program in programs(200)) {
        let mut bench = bench(0);
        run(&mut bench, &program);
        bench.close();
    }

    #[test]
    fn a_program_does_so_over_a_link_that_loses(program in programs(150)) {
        let mut bench = bench(30_000);
        run(&mut bench, &program);
        bench.close();
    }
}
