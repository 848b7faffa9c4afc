//! A slice of the random programs; `cargo run --release -p verbena-tests --bin programs` runs as many as one likes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use verbena_tests::programs::{environments, programs};
use verbena_tests::repeat;

/// The same programs in every run, but for another `VERBENA_SEED`.
fn config() -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(repeat::seed());
    ProptestConfig { cases: 40, failure_persistence: None, max_shrink_iters: 100, rng_seed, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn programs_of_a_consumer_do_what_the_contract_says(
        environment in environments().no_shrink(),
        programs in prop::collection::vec(programs(250), 1..8),
    ) {
        let mut cards = environment.cards();
        for program in &programs {
            cards.run(program);
        }
        cards.close();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, max_shrink_iters: 0, ..config() })]

    #[test]
    fn programs_keep_no_numbers_of_queue_pairs(
        environment in environments(),
        programs in prop::collection::vec(programs(60), 12),
        side in 0usize..2,
    ) {
        let mut cards = environment.with_loss(0).cards();
        for program in &programs {
            cards.run(program);
        }
        cards.check_numbers(side);
        cards.close();
    }
}
