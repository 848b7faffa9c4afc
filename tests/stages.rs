//! What the stages of both cards count: exactly what the writes make, and stalls where something is held up.

use verbena_abi::stages::Stage;
use verbena_host::{StageCounts, WriteFlags};
use verbena_sim::bench::{depth, Bench, BenchOptions, Point};
use verbena_sim::{LinkConfig, PcieConfig};
use verbena_tests::pair::{check_done, Link, Options, Pair, Write};

const LINE: usize = 64;
const MTU: usize = 1024;
/// Bytes that no read burst goes across, and no write burst.
const READ: usize = 512;
const PAGE: usize = 4096;

/// Returns how many aligned pieces of `size` bytes of memory `len` bytes at `offset` touch.
fn touched(size: usize, offset: usize, len: usize) -> usize {
    if len == 0 {
        0
    } else {
        (offset + len - 1) / size - offset / size + 1
    }
}

/// Cuts `len` bytes at `offset` into what packets carry.
fn packets(offset: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len.div_ceil(MTU)).map(move |packet| (offset + packet * MTU, MTU.min(len - packet * MTU)))
}

/// Stops the counting of both cards, and reads it.
fn held(pair: &Pair) -> [StageCounts; 2] {
    let adapters = pair.ends.each_ref().map(|end| &end.adapter);
    adapters.iter().for_each(|adapter| adapter.hold_stages(true).unwrap());
    adapters.map(|adapter| adapter.read_stages().unwrap())
}

#[test]
fn stages_count_exactly_what_the_writes_make() {
    let mut pair = Pair::new(Options { mtu: MTU as u32, capture: true, ..Options::default() });
    let half = pair.options.region_bytes / 2;
    let mut connection = pair.connect(&Link::default());
    let start = held(&pair);
    pair.run(1_000);
    let again = held(&pair);
    assert_eq!(start, again, "held stages count");
    pair.ends.iter().for_each(|end| end.adapter.hold_stages(false).unwrap());
    let first = pair.world.clock();

    // Offset in the source, in the target, and bytes: within a line, over its border, a packet, more than one, and nothing.
    let writes =
        [(0, 0, 1), (60, 3, 8), (128, 64, 64), (130, 1, 64), (4096, 4096, MTU), (4095, 63, MTU + 1), (7, 9_000, 5_000), (0, 64, 0)];
    for (context, (from, to, len)) in (0u64..).zip(writes) {
        let to = to + 16_384 * context as usize;
        pair.post(&mut connection, 0, context, &Write::new(half + from, to, len as u32), WriteFlags::NONE).unwrap();
    }
    let count = writes.len();
    check_done(&pair.reap(0, count, "all writes"), 0..count as u64);
    pair.settle("all writes");
    let last = pair.world.clock();
    let end = held(&pair);
    let [a, b] = [end[0].since(&start[0]), end[1].since(&start[1])];

    for (name, counts) in [("A", &a), ("B", &b)] {
        assert!(
            u64::from(counts.clocks()).abs_diff(last - first) <= 4,
            "{name}: {} clocks, the simulation ran {}",
            counts.clocks(),
            last - first
        );
        for count in counts.iter() {
            assert!(u64::from(count.beats) + u64::from(count.stalls) <= counts.clocks().into(), "{name}: {count:?} of {}", counts.clocks());
        }
    }

    // A request without bytes is a packet without payload.
    let parts = || writes.iter().flat_map(|&(from, to, len)| packets(from, len).map(move |(at, bytes)| (at, to + (at - from), bytes)));
    let payload_lines: usize = parts().map(|(from, _, len)| touched(LINE, from, len)).sum();
    let payload_bursts: usize = parts().map(|(from, _, len)| touched(READ, from, len)).sum();
    let written_lines: usize = parts().map(|(_, to, len)| touched(LINE, to, len)).sum();
    let written_bursts: usize = parts().map(|(_, to, len)| touched(PAGE, to, len)).sum();
    let sent_packets = parts().count() + writes.iter().filter(|(_, _, len)| *len == 0).count();
    let outcome = pair.close([connection]);
    let frames = |from: usize| outcome.packets.iter().filter(move |packet| packet.from == from);
    let beats = |from: usize| frames(from).map(|packet| packet.frame.len().div_ceil(LINE)).sum::<usize>();
    let (answers, wire, wire_back) = (frames(1).count(), beats(0), beats(1));
    assert_eq!(frames(0).count(), sent_packets);
    assert!(answers > 0);

    let expected_a = [
        (Stage::Bells, count),
        (Stage::FetchedLines, count),
        (Stage::Items, count),
        (Stage::RequestHeads, count),
        (Stage::PacketDescs, sent_packets),
        (Stage::GatherParts, parts().count()),
        (Stage::Issues, count),
        (Stage::PayloadRequests, parts().count()),
        (Stage::ReadBursts, a.get(Stage::FetchRequests).beats as usize + payload_bursts),
        (Stage::ReadBeats, count + payload_lines),
        (Stage::PayloadLines, payload_lines),
        (Stage::Packets, sent_packets),
        (Stage::Headers, sent_packets),
        (Stage::SealedBeats, wire),
        (Stage::TxBeats, wire),
        (Stage::RxBeats, wire_back),
        (Stage::RxHeads, answers),
        (Stage::RxLines, 0),
        (Stage::ScatterRequests, 0),
        (Stage::ScatterLines, 0),
        (Stage::Answers, 0),
        (Stage::Acks, answers),
        (Stage::Completions, count),
        (Stage::CqWrites, count),
    ];
    let expected_b = [
        (Stage::Bells, 0),
        (Stage::FetchedLines, 0),
        (Stage::ReadBursts, 0),
        (Stage::ReadBeats, 0),
        (Stage::PacketDescs, 0),
        (Stage::Packets, answers),
        (Stage::Headers, answers),
        (Stage::SealedBeats, wire_back),
        (Stage::TxBeats, wire_back),
        (Stage::RxBeats, wire),
        (Stage::RxHeads, sent_packets),
        (Stage::ScatterRequests, parts().count()),
        (Stage::ScatterLines, written_lines),
        (Stage::WriteBursts, written_bursts),
        (Stage::WriteBeats, written_lines),
        (Stage::Answers, answers),
        (Stage::Acks, 0),
        (Stage::Completions, 0),
        (Stage::CqWrites, 0),
    ];
    for (name, counts, expected) in [("A", &a, &expected_a[..]), ("B", &b, &expected_b[..])] {
        for (stage, beats) in expected {
            assert_eq!(counts.get(*stage).beats as usize, *beats, "{name}: beats of {stage:?}");
        }
        // What goes into the queue of payload comes out of it, and what goes into the ICRC too.
        assert_eq!(counts.get(Stage::GatheredLines).beats, counts.get(Stage::MergeLines).beats, "{name}: lines into and out of the queue");
        assert_eq!(counts.get(Stage::FrameBeats).beats, counts.get(Stage::SealedBeats).beats, "{name}: beats into and out of the ICRC");
        assert_eq!(counts.get(Stage::RxBeats).stalls, 0, "{name}: the MAC was stopped");
    }
    assert!((1..=count as u32).contains(&a.get(Stage::FetchRequests).beats));
}

/// Measures messages of `message` bytes over 16 QPs, with or without looking at the stages.
fn measure(options: BenchOptions, message: u32) -> Point {
    let options = BenchOptions { qps: 16, warm_up: 8_000, clocks: 16_000, ..options };
    let bench = Bench::new(options, depth(message, options.qps), message).unwrap();
    let (point, bench) = bench.measure(message).unwrap();
    if let Some(bench) = bench {
        bench.close().unwrap();
    }
    point
}

#[test]
fn a_mac_that_pauses_shows_as_stalls_of_the_beats_to_it() {
    for stall_percent in [0, 60, 85] {
        let link = LinkConfig { stall_percent, ..LinkConfig::default() };
        let point = measure(BenchOptions { explain: true, link, ..BenchOptions::default() }, 4096);
        let [a, b] = point.stages.as_ref().unwrap();
        let beats = a.get(Stage::TxBeats);
        // Without pauses of its own the MAC takes what 100 Gb/s carry of 128: 66 beats of each 4,174 bytes on the wire, at 50 a clock.
        let expected = if stall_percent == 0 { 100.0 - 100.0 * 66.0 / (4_174.0 / 50.0) } else { f64::from(stall_percent) };
        let stalled = a.per_cent(beats.stalls);
        assert!((stalled - expected).abs() < 2.0, "{stall_percent} % pauses: {stalled:.2} % stalls, expected {expected:.2} %");
        assert_eq!((a.held_up.as_slice(), b.held_up.as_slice()), (["TxBeats"].as_slice(), [].as_slice()), "{stall_percent} % pauses");
        assert_eq!(b.get(Stage::RxBeats).stalls, 0, "{stall_percent} % pauses");
        // Pressure goes back as far as what the card has room for.
        assert!(a.per_cent(a.get(Stage::SealedBeats).stalls) > stalled - 2.0);
        assert!(a.per_cent(a.get(Stage::Items).stalls) > 50.0);
    }
}

#[test]
fn a_host_that_answers_few_reads_at_once_shows_as_stalls_of_the_reads() {
    // Eight reads of 512 bytes in 200 clocks: a third of what the wire carries.
    let pcie = PcieConfig { tags: 8, ..PcieConfig::default() };
    let point = measure(BenchOptions { explain: true, pcie, ..BenchOptions::default() }, 4096);
    let [a, _] = point.stages.as_ref().unwrap();
    assert!(point.share < 0.5, "{:.3} of the limit", point.share);
    // As many bursts are under way as the read engine keeps, so it takes no further request.
    assert_eq!(a.held_up, ["PayloadRequests"]);
    // Behind the reads the path runs dry.
    for stage in [Stage::ReadBeats, Stage::GatheredLines, Stage::TxBeats] {
        assert!(a.per_cent(a.get(stage).idle) > 50.0, "{stage:?} is idle in {:.2} % of the clocks", a.per_cent(a.get(stage).idle));
    }
}

#[test]
fn looking_at_the_stages_changes_no_figure() {
    for message in [64, 4096] {
        let [seen, unseen] = [true, false].map(|explain| measure(BenchOptions { explain, ..BenchOptions::default() }, message));
        let difference = (seen.share - unseen.share).abs();
        assert!(difference < 0.005, "{message} bytes: {:.4} of the limit with stages, {:.4} without", seen.share, unseen.share);
        assert!(unseen.stages.is_none());
        for (name, card) in ["A", "B"].iter().zip(seen.stages.as_ref().unwrap()) {
            assert!(u64::from(card.clocks).abs_diff(seen.clocks) <= 16, "{name} counted {} clocks of {}", card.clocks, seen.clocks);
        }
    }
}
