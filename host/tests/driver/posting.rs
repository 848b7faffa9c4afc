//! The posting path: slots, contexts, doorbells, silent and deferred requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use verbena_host::ndk::{NdkResult, NtStatus};
use verbena_host::{CqeStatus, Error, QpOptions, Sge, WriteFlags};
use zerocopy::IntoBytes;

use crate::{drain, Bench};

const SILENT: WriteFlags = WriteFlags::SILENT_SUCCESS;
const DEFER: WriteFlags = WriteFlags::DEFER;

fn post(bench: &mut Bench, context: u64, flags: WriteFlags) -> Result<(), Error> {
    bench.sq.write(context, &[], 0, 0, flags)
}

fn contexts(bench: &Bench) -> Vec<u64> {
    bench.drain().iter().map(|completion| completion.context).collect()
}

#[test]
fn the_full_depth_is_usable_also_when_it_is_no_power_of_two() {
    for depth in [1, 2, 3, 5, 8, 100, 512] {
        let mut bench = Bench::new(depth);
        bench.card.state().hold_requests = true;
        for round in 0..3 {
            for index in 0..u64::from(depth) {
                post(&mut bench, round << 32 | index, WriteFlags::NONE).unwrap();
            }
            assert!(matches!(post(&mut bench, 0, WriteFlags::NONE), Err(Error::QueueFull { .. })), "depth {depth}");
            bench.card.complete(2, depth as u16);
            assert!(
                matches!(post(&mut bench, 0, WriteFlags::NONE), Err(Error::QueueFull { .. })),
                "a slot is free when its completion was polled"
            );
            let expected: Vec<u64> = (0..u64::from(depth)).map(|index| round << 32 | index).collect();
            assert_eq!(contexts(&bench), expected);
            assert_eq!(bench.sq.free_slots(), depth);
        }
    }
}

#[test]
fn one_completion_frees_the_slots_of_all_earlier_requests() {
    let mut bench = Bench::new(4);
    bench.card.state().hold_requests = true;
    for context in 0..4 {
        post(&mut bench, context, if context == 2 { WriteFlags::NONE } else { SILENT }).unwrap();
    }
    bench.card.complete(2, 3);
    assert_eq!(contexts(&bench), [2]);
    assert_eq!(bench.sq.free_slots(), 3);
}

#[test]
fn silent_requests_alone_run_for_ever_by_the_progress_record() {
    let mut bench = Bench::new(4);
    // More than twice the range of the 16-bit indices.
    for context in 0..140_000 {
        post(&mut bench, context, SILENT).unwrap();
    }
    assert_eq!(bench.drain(), []);
    post(&mut bench, 7, WriteFlags::NONE).unwrap();
    assert_eq!(contexts(&bench), [7]);
    assert_eq!(bench.adapter.anomalies().stray_completions(), 0);
}

#[test]
fn free_slots_are_told_by_the_progress_record_while_others_are_known_to_be_free() {
    let mut bench = Bench::new(4);
    bench.card.state().hold_requests = true;
    for context in 0..4 {
        post(&mut bench, context, if context == 0 { WriteFlags::NONE } else { SILENT }).unwrap();
    }
    bench.card.complete(2, 3);
    assert_eq!(contexts(&bench), [0]);
    assert_eq!(bench.sq.free_slots(), 3, "one by its completion, two by the record");
    bench.card.complete(2, 1);
    assert_eq!(bench.sq.free_slots(), 4);
}

#[test]
fn the_progress_record_frees_no_slot_whose_completion_was_not_polled() {
    let mut bench = Bench::new(4);
    post(&mut bench, 10, SILENT).unwrap();
    post(&mut bench, 11, WriteFlags::NONE).unwrap();
    post(&mut bench, 12, SILENT).unwrap();
    post(&mut bench, 13, SILENT).unwrap();
    // All four are done, but 11 lies in the CQ and its context in its slot.
    post(&mut bench, 14, SILENT).unwrap();
    assert!(matches!(post(&mut bench, 15, SILENT), Err(Error::QueueFull { .. })));
    assert_eq!(contexts(&bench), [11]);
    post(&mut bench, 15, SILENT).unwrap();
}

#[test]
fn a_silent_request_that_fails_and_those_behind_it_complete_all_the_same() {
    let mut bench = Bench::new(8);
    bench.card.state().hold_requests = true;
    for context in 0..5 {
        post(&mut bench, context, SILENT).unwrap();
    }
    bench.card.complete(2, 2);
    bench.card.fail(2, CqeStatus::RemoteAccess, 0x62);
    let results: Vec<NdkResult> = bench.drain().into_iter().map(NdkResult::from).collect();
    let found: Vec<_> = results.iter().map(|r| (r.request_context, r.qp_context, r.status)).collect();
    assert_eq!(found, [(2, 77, NtStatus::ACCESS_VIOLATION), (3, 77, NtStatus::CANCELLED), (4, 77, NtStatus::CANCELLED)]);
    assert_eq!(results[0].provider_error_code, 0x620A);
}

#[test]
fn deferred_requests_wait_for_the_next_plain_one_and_one_doorbell_shows_them_all() {
    let mut bench = Bench::new(8);
    for context in 0..3 {
        post(&mut bench, context, DEFER).unwrap();
    }
    assert!(bench.card.state().doorbells.is_empty());
    post(&mut bench, 3, WriteFlags::NONE).unwrap();
    assert_eq!(bench.card.state().doorbells, [(2, 4)]);
    assert_eq!(contexts(&bench), [0, 1, 2, 3]);
}

#[test]
fn a_failing_post_shows_deferred_requests_first_whatever_it_fails_of() {
    let sge = Sge { va: 0, len_bytes: u32::MAX, lkey: 0 };
    let failures: [(&[Sge], WriteFlags); 5] = [
        (&[sge; 3], WriteFlags::NONE),
        (&[sge; 2], WriteFlags::NONE),
        (&[sge], WriteFlags::INLINE),
        (&[], WriteFlags(1 << 31)),
        (&[sge; 3], DEFER),
    ];
    for (sges, flags) in failures {
        let mut bench = Bench::new(8);
        post(&mut bench, 1, DEFER).unwrap();
        post(&mut bench, 2, DEFER).unwrap();
        assert!(bench.sq.write(3, sges, 0, 0, flags).is_err());
        assert_eq!(bench.card.state().doorbells, [(2, 2)]);
        assert_eq!(contexts(&bench), [1, 2]);
    }
}

#[test]
fn a_chain_that_fills_the_queue_is_shown_by_the_refusal() {
    let mut bench = Bench::new(2);
    post(&mut bench, 1, DEFER).unwrap();
    post(&mut bench, 2, DEFER).unwrap();
    assert!(matches!(post(&mut bench, 3, DEFER), Err(Error::QueueFull { .. })));
    assert_eq!(bench.card.state().doorbells, [(2, 2)]);
}

#[test]
fn a_flush_shows_deferred_requests_so_that_they_are_cancelled() {
    let mut bench = Bench::new(8);
    bench.card.state().hold_requests = true;
    post(&mut bench, 1, WriteFlags::NONE).unwrap();
    post(&mut bench, 2, DEFER | SILENT).unwrap();
    bench.qp.flush();
    let found: Vec<_> = bench.drain().iter().map(|c| (c.context, c.status.raw())).collect();
    assert_eq!(found, [(1, 5), (2, 5)]);
    assert!(matches!(post(&mut bench, 3, WriteFlags::NONE), Err(Error::NotConnected { qpn: 2, .. })));
    assert_eq!(bench.drain(), [], "a refused post has no completion");
}

#[test]
fn six_sges_and_zero_lengths_are_laid_out_in_their_order() {
    let mut bench = Bench::with_options(QpOptions { send_sges: 6, ..QpOptions::sender(3) }, 3);
    let sges: Vec<Sge> = (0..6).map(|i| Sge { va: u64::from(i) << 40, len_bytes: i, lkey: 0x100 + i }).collect();
    for count in [6, 0, 3, 2] {
        bench.sq.write(count as u64, &sges[..count], 0xABCD, 0x55, WriteFlags::NONE).unwrap();
        let state = bench.card.state();
        let (qpn, wqe, more) = state.requests.last().unwrap();
        assert_eq!((*qpn, wqe.sges as usize, wqe.remote_va.get(), wqe.rkey.get()), (2, count, 0xABCD, 0x55));
        let laid_out: Vec<Sge> = wqe
            .sge
            .iter()
            .chain(&more.sge)
            .take(count)
            .map(|sge| Sge { va: sge.va.get(), len_bytes: sge.len_bytes.get(), lkey: sge.lkey.get() })
            .collect();
        assert_eq!(laid_out, sges[..count]);
        drop(state);
        assert_eq!(contexts(&bench), [count as u64]);
    }
}

#[test]
fn inline_data_is_copied_piece_by_piece_into_the_place_of_the_entries() {
    let bytes: Vec<u8> = (1..=96).collect();
    for limit in [32, 33, 96] {
        let mut bench = Bench::with_options(QpOptions { inline_bytes: limit, ..QpOptions::sender(3) }, 3);
        let has_two_units = limit > 32;
        for len in [0, 1, 31, 32, 33, 64, 95, 96].into_iter().filter(|len| *len <= limit as usize) {
            let mut source = bytes[..len].to_vec();
            let (first, second) = source.split_at(len / 3);
            bench.sq.write_inline(len as u64, &[first, &[], second], 0xABCD, 0x55, WriteFlags::INLINE).unwrap();
            source.fill(0);
            let state = bench.card.state();
            let (_, wqe, more) = state.requests.last().unwrap();
            assert_eq!((wqe.sges, usize::from(wqe.inline_bytes), wqe.remote_va.get(), wqe.rkey.get()), (0, len, 0xABCD, 0x55));
            let laid_out = [wqe.sge.as_bytes(), if has_two_units { more.sge.as_bytes() } else { &[] }].concat();
            assert_eq!(laid_out[..len], bytes[..len]);
            drop(state);
            assert_eq!(contexts(&bench), [len as u64]);
        }
        let error = bench.sq.write_inline(0, &[&bytes, &bytes[..1]], 0, 0, WriteFlags::NONE).unwrap_err();
        assert_eq!(error.to_string(), format!("97 bytes of inline data, the limit is {limit}"));
    }
}

#[test]
fn a_send_queue_that_is_dropped_shows_its_deferred_requests_and_the_next_one_goes_on() {
    let mut bench = Bench::new(2);
    post(&mut bench, 1, DEFER | SILENT).unwrap();
    let qp = bench.qp.clone();
    drop(bench.sq);
    assert_eq!(bench.card.state().doorbells, [(2, 1)]);
    bench.sq = qp.take_send_queue().unwrap();
    post(&mut bench, 2, SILENT).unwrap();
    post(&mut bench, 3, WriteFlags::NONE).unwrap();
    assert_eq!(contexts(&bench), [3]);
}

/// What a random test does next.
#[derive(Clone, Debug)]
enum Step {
    Post { silent: bool, defer: bool },
    Complete(u16),
    Poll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<(bool, bool)>().prop_map(|(silent, defer)| Step::Post { silent, defer }),
        2 => (1u16..6).prop_map(Step::Complete),
        1 => Just(Step::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn each_request_completes_once_in_order_and_no_slot_is_lost(depth in 1u32..9, steps in proptest::collection::vec(step(), 1..300)) {
        let mut bench = Bench::new(depth);
        bench.card.state().hold_requests = true;
        // Requests whose slots are taken for sure: (context, makes a completion).
        let mut outstanding: VecDeque<(u64, bool)> = VecDeque::new();
        let mut next = 0;
        for step in steps {
            match step {
                Step::Post { silent, defer } => {
                    let mut flags = WriteFlags::NONE;
                    if silent { flags = flags | SILENT; }
                    if defer { flags = flags | DEFER; }
                    match post(&mut bench, next, flags) {
                        Ok(()) => {
                            outstanding.push_back((next, !silent));
                            next += 1;
                        }
                        Err(Error::QueueFull { .. }) => {
                            prop_assert!(outstanding.len() >= depth as usize, "{} of {depth}", outstanding.len());
                        }
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Complete(count) => {
                    let shown = {
                        let state = bench.card.state();
                        state.qps[&2].producer.wrapping_sub(state.qps[&2].consumer)
                    };
                    bench.card.complete(2, count.min(shown));
                }
                Step::Poll => {
                    for completion in bench.drain() {
                        prop_assert!(completion.status.is_success());
                        // Silent ones in front of it are done without a word.
                        while outstanding.front().is_some_and(|(_, signalled)| !signalled) {
                            outstanding.pop_front();
                        }
                        prop_assert_eq!(outstanding.pop_front().map(|(context, _)| context), Some(completion.context));
                    }
                }
            }
        }
        // In the end everything is done, and the whole depth is free.
        bench.sq.ring_doorbell();
        bench.card.complete(2, u16::MAX);
        let last: Vec<u64> = contexts(&bench);
        let expected: Vec<u64> = outstanding.iter().filter(|(_, signalled)| *signalled).map(|(context, _)| *context).collect();
        prop_assert_eq!(last, expected);
        bench.card.state().hold_requests = false;
        for context in 0..u64::from(depth) {
            post(&mut bench, context, SILENT).unwrap();
        }
        prop_assert_eq!(bench.adapter.anomalies().stray_completions(), 0);
    }
}

#[test]
fn a_slot_is_free_only_when_its_place_in_the_cq_is() {
    let mut bench = Bench::new(2);
    post(&mut bench, 1, WriteFlags::NONE).unwrap();
    post(&mut bench, 2, WriteFlags::NONE).unwrap();
    let Bench { card, adapter: _adapter, cq, qp: _qp, sq } = bench;
    let sq = Arc::new(Mutex::new(sq));
    let (poster, seen) = (sq.clone(), Arc::new(Mutex::new(None)));
    let record = seen.clone();
    // At this moment another thread could post: a free slot would let the CQ overrun.
    card.state().on_consumer = Some(Box::new(move || *record.lock().unwrap() = Some(poster.lock().unwrap().free_slots())));
    assert_eq!(drain(&cq).len(), 2);
    assert_eq!(*seen.lock().unwrap(), Some(0));
    assert_eq!(sq.lock().unwrap().free_slots(), 2);
    card.state().on_consumer = None;
}

#[test]
fn a_progress_record_of_an_earlier_time_frees_nothing() {
    let mut bench = Bench::new(64);
    post(&mut bench, 0, SILENT).unwrap();
    // A lap of the 16 bits of a request's index, with completions alone.
    for context in 1..1 << 16 {
        post(&mut bench, context, WriteFlags::NONE).unwrap();
        if context % 64 == 0 {
            bench.drain();
        }
    }
    bench.drain();
    bench.card.state().hold_requests = true;
    for context in 0..64 {
        post(&mut bench, context, SILENT).unwrap();
    }
    assert!(matches!(post(&mut bench, 64, SILENT), Err(Error::QueueFull { depth: 64, .. })));
}

#[test]
fn a_post_does_not_wait_for_who_polls() {
    let options = QpOptions { receive_depth: 4, inline_bytes: 32, ..QpOptions::sender(8) };
    let Bench { card, cq, qp, mut sq, .. } = Bench::with_options(options, 16);
    let mut rq = qp.take_receive_queue().unwrap();
    sq.write(1, &[], 0, 0, WriteFlags::NONE).unwrap();
    let (posted, told) = std::sync::mpsc::channel();
    let mut post = Some(move || {
        // Deferred: the card of this test can't take a doorbell while it is called.
        let outcomes = [sq.write(2, &[], 0, 0, WriteFlags::DEFER), sq.write_inline(3, &[&[3]], 0, 0, WriteFlags::DEFER), rq.post(5, &[])];
        posted.send(outcomes).unwrap();
        (sq, rq)
    });
    let seen = Arc::new(Mutex::new(None));
    let record = seen.clone();
    // The poller is inside its lock here.
    card.state().on_consumer = Some(Box::new(move || {
        let poster = std::thread::spawn(post.take().expect("one completion"));
        let outcomes = told.recv_timeout(Duration::from_secs(20)).expect("a post that waits for no lock");
        *record.lock().unwrap() = Some((outcomes, poster));
    }));
    assert_eq!(drain(&cq).len(), 1);
    card.state().on_consumer = None;
    let (outcomes, poster) = seen.lock().unwrap().take().expect("the posts");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    drop(poster.join().unwrap());
}

#[test]
fn posting_and_polling_in_two_threads_lose_nothing() {
    let mut bench = Bench::new(16);
    let cq = bench.cq.clone();
    const COUNT: u64 = 20_000;
    const LIMIT: Duration = Duration::from_secs(60);
    let started = Instant::now();
    let poller = std::thread::spawn(move || {
        let mut expected = 0;
        let mut batch = [verbena_host::Completion::default(); 8];
        while expected < COUNT {
            let count = cq.poll(&mut batch);
            for completion in &batch[..count] {
                assert_eq!(completion.context, expected);
                expected += 1;
            }
            if count == 0 {
                assert!(!cq.is_dead(), "overrun after {expected} completions: a slot was free before its place in the CQ");
                assert!(started.elapsed() < LIMIT, "waited {LIMIT:?} for completion {expected}");
                std::thread::yield_now();
            }
        }
    });
    let mut context = 0;
    while context < COUNT {
        let flags = if context % 3 == 0 { DEFER } else { WriteFlags::NONE };
        match post(&mut bench, context, flags) {
            Ok(()) => context += 1,
            Err(Error::QueueFull { .. }) if started.elapsed() < LIMIT && !poller.is_finished() => {
                bench.adapter.process_events();
                std::thread::yield_now();
            }
            Err(other) => panic!("post {context}: {other}"),
        }
    }
    bench.sq.ring_doorbell();
    poller.join().unwrap();
    assert!(!bench.cq.is_dead());
}

#[test]
fn each_post_that_raced_with_a_flush_and_succeeded_completes_once() {
    for round in 0..200u64 {
        let mut bench = Bench::new(64);
        bench.card.state().hold_requests = true;
        let qp = bench.qp.clone();
        let flusher = std::thread::spawn(move || {
            for _ in 0..round % 40 {
                std::hint::spin_loop();
            }
            qp.flush();
        });
        let mut posted = Vec::new();
        for context in 0..64 {
            match post(&mut bench, context, DEFER | SILENT) {
                Ok(()) => posted.push(context),
                Err(Error::NotConnected { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        flusher.join().unwrap();
        bench.adapter.process_events();
        assert_eq!(contexts(&bench), posted, "round {round}");
    }
}
