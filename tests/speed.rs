//! How fast: counted in clocks, so the machine that runs the tests does not matter.

use verbena_host::{Completion, WriteFlags};
use verbena_sim::ffi::CLOCK_NS;
use verbena_tests::pair::{check_done, Link, Options, Pair, Write};

/// Payload that one QP must move, Gb/s, of 98.0 that the wire allows.
const GOAL: f64 = 90.0;

/// Returns the payload rate between the completion of message `skip` and the last one, Gb/s.
fn rate(message: u32, count: u64, skip: u64) -> f64 {
    let mut pair = Pair::new(Options { region_bytes: 8 << 20, ..Options::default() });
    let mut connection = pair.connect(&Link { depth: 128, ..Link::default() });
    let mut times = Vec::new();
    let mut room = [Completion::default(); 16];
    let mut posted = 0;
    while (times.len() as u64) < count {
        let mut is_new = false;
        while posted < count && connection.queues[0].free_slots() != 0 {
            // The same bytes to the same place again and again, from the seventh mebibyte or so on.
            let place = (posted * u64::from(message)) as usize % (6 << 20);
            pair.post(&mut connection, 0, posted, &Write::new(place, place + 64, message), WriteFlags::DEFER).unwrap();
            (posted, is_new) = (posted + 1, true);
        }
        if is_new {
            connection.queues[0].ring_doorbell();
        }
        assert!(pair.world.clock() < 1_000_000, "{} of {count} messages are done; {}", times.len(), pair.describe());
        pair.run(25);
        let news = pair.ends[0].cq.poll(&mut room);
        check_done(&room[..news], times.len() as u64..(times.len() + news) as u64);
        times.extend((0..news).map(|_| pair.world.clock()));
    }
    pair.settle("all messages");
    pair.close([connection]);
    let clocks = times[count as usize - 1] - times[skip as usize];
    let bits = (count - 1 - skip) * u64::from(message) * 8;
    bits as f64 / (clocks * CLOCK_NS) as f64
}

#[test]
fn messages_of_64_kib_move_at_90_gbps() {
    let found = rate(64 << 10, 96, 16);
    println!("64 KiB messages: {found:.1} Gb/s");
    assert!(found >= GOAL, "{found:.1} Gb/s");
}

#[test]
fn messages_of_1_mib_move_at_90_gbps() {
    let found = rate(1 << 20, 8, 1);
    println!("1 MiB messages: {found:.1} Gb/s");
    assert!(found >= GOAL, "{found:.1} Gb/s");
}
